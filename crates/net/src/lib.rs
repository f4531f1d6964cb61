//! What connections to other programs need, whoever opens them.
//!
//! **What lives here**: certificate authorities and the client's side of TLS; the parameters of a store's URL, and the
//! files and passwords that they name; JSON from programs that are not trusted. **What must never**: the protocol of a
//! store or of HTTP, a clock, a listener, and another crate of ours except that of texts.

#[cfg(feature = "json")]
pub mod json;
pub mod named_file;
pub mod parameters;
pub mod password;
pub mod tls;
