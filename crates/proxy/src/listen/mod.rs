//! The sockets that clients connect to: TLS, HTTP/1.1, HTTP/2, limits on slow and on many clients, and a graceful
//! shutdown.
//!
//! The service given to [`Bound::serve`] decides what a request means.

mod accept;
mod answer;
mod body;
mod connection;
mod error;
mod options;
mod proxies;
mod requests;
mod slots;
mod taking;
mod tls;

pub use crate::wire::{MessageRefusal, Rate, RefusalObserver};
pub use accept::{Bound, Drained};
pub use answer::{ClientCertificate, Peer};
pub use body::Body;
pub use body::BodyWatch;
pub use error::Error;
pub use options::{Clients, Options, Prefix, Tls};
pub use proxies::Proxies;
pub use requests::Slot;
pub use tls::{Credentials, LoadedTls};
