//! Scopes.
