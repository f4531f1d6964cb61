//! What passes from one side to the other.
//!
//! What lives here: [`Inbound`], which every request meets first, and [`Outbound`], which stands right before the upstream;
//! Semel's layer is between the two. What must never: a path, a query or a body changed; a header that one of Semel and the
//! upstream sees and the other does not, except for those that each writes itself.
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
pub(crate) use origin::is_told;
pub use origin::{Client, Trust};
pub use outbound::{Host, Options, Outbound};
