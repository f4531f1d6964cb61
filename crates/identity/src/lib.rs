//! Who is calling: the settings ([`Identity`]), their check ([`IdentityError`]), and the rules made from them
//! ([`IdentityRules`]).
//!
//! A name is not trusted because a request contains it. A header is trusted only from the proxy's addresses, a token
//! only with its issuer's keys. A credential that fails its check is refused; it never falls back to a weaker source.
//!
//! **What lives here**: from the head of a request to its caller and its tenant, by tokens, client certificates, API
//! keys, cookies and headers of trusted proxies; the check of settings that would trust the wrong callers; fetching the
//! keys of issuers. **What must never**: a clock, a configuration file, a listener, the layer that asks, and what a
//! caller means for a record, which is decided in the core.

mod caller_error;
pub mod caller_text;
mod certificate;
mod check;
mod cookie;
mod der;
mod description;
pub mod jwt;
mod network;
mod peer;
mod rules;
mod settings;
mod surroundings;
mod tenant;
mod validity;

pub use caller_error::CallerError;
pub use certificate::CertificateName;
pub use check::IdentityError;
pub use network::{Network, NetworkError};
pub use peer::Peer;
pub use rules::{IdentityRule, IdentityRules};
pub use settings::{Identity, Source, Tenant};
pub use surroundings::{Clock, HttpLayer, PeerOf};
pub use validity::expires_at;
