//! Forwards requests: [`Inbound`] is the first step, [`Outbound`] the last one before the upstream, and Semel's layer
//! is between them.
//!
//! Path, query and body are not changed. Semel and the upstream see the same headers, except for those that they add
//! themselves.
//!
//! ```text
//! client → Inbound → semel_http::Layer → Outbound → Upstream
//! ```

mod hops;
mod inbound;
mod origin;
mod outbound;
mod refusal;
mod tunnel;

pub use inbound::{Inbound, Rules};
pub use origin::is_origin_header;
pub use origin::{Client, Trust};
pub use outbound::{Host, Options, Outbound};
pub use refusal::RefusalWithoutCode;
