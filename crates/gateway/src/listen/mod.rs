//! The sockets that clients connect to.
//!
//! What lives here: binding, TLS, HTTP/1.1 and HTTP/2 over it, limits on slow and on many clients, and the end: no new
//! connections, running requests answered, the rest cut off at a deadline. What must never: a rule about what a request
//! means; the service that [`Bound::serve`] is given knows.

mod accept;
mod answer;
mod body;
mod connection;
mod error;
mod options;
mod places;
mod proxies;
mod requests;
mod taking;
mod tls;

pub use crate::wire::Rate;
pub use accept::{Bound, Drained};
pub use answer::{ClientCertificate, Peer};
pub use body::Body;
pub use error::Error;
pub use options::{Clients, Options, Prefix, Tls};
pub(crate) use places::network;
pub use proxies::Proxies;
pub(crate) use requests::Place;
pub use tls::{Credentials, Fresh};
