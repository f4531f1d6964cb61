//! Who is believed to be calling, and who is not.
//!
//! What lives here: the identity of callers from the outside, with real tokens, files and key servers. What must never: the
//! machine's clock; it stands still until a test turns it.

mod attacks;
mod issuers;
mod key_server;
mod operations;
mod refreshing;
mod settings;
mod sources;
mod tenants;
mod world;
