//! What connections to other programs need, whoever opens them.
//!
//! **What lives here**: certificate authorities and the client's side of TLS; the parameters of a store's URL, and the
//! files and passwords that they name; JSON from programs that are not trusted; with the feature `client`, the URLs of
//! HTTP services and requests to them. **What must never**: the protocol of a store, a pool that decides what may be sent
//! again (that is `semel-proxy`'s `upstream`), a listener, and another crate of ours except that of texts.

#[cfg(feature = "client")]
pub mod client;
#[cfg(feature = "json")]
pub mod json;
pub mod named_file;
pub mod parameters;
pub mod password;
#[cfg(feature = "client")]
pub mod target;
pub mod tls;
