//! An HTTP proxy that knows what it sent: client → [`listen`] (with [`wire`]'s head scanner) → [`forward`] → a service
//! of the caller's → [`forward`] → [`upstream`].
//!
//! **What lives here**: sockets, the server's and the client's side of TLS, the framing of HTTP, the pool of connections
//! to the upstream, and the proof that no byte of a request was sent. **What must never**: a rule about what a record
//! means, or about what a client is answered (that is [`semel_http`]), a metric, and the gateway's configuration.

pub mod forward;
pub mod listen;
pub mod upstream;
pub mod wire;
