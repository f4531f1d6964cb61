//! Scopes.

pub(crate) mod encoding;
