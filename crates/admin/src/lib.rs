//! The admin address as a service over an engine, and clients of it.
//!
//! **What lives here**: health and readiness, records for operators, claims for workers, the page at `/`, and the
//! description as `OpenAPI`; tokens, roles and limits of that address; its clients, over the network and in the same
//! process; what is counted in shadow mode, and the advice that follows. **What must never**: a configuration file, a
//! listener, a store's URL, and a rule about what a record means or which verdict is allowed: the machine decides that.

mod address;
pub mod client;
pub mod inboxes;
mod line_budget;
pub mod moment;
mod options;
pub mod reason;
mod service;
pub mod shadow;

pub use address::{Address, AddressError};
pub use line_budget::LineBudget;
pub use options::{
    COMMAND_LINE, LOOPBACK, OpenToOthers, Options, OptionsError, Role, Token, TokenHash, check_token_name,
};
pub use service::{AccessRefusal, Admin, Peer, ResponseLimits, Sources, is_claim, service};
