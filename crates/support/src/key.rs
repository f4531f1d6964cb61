//! What requests of the tests have in common.

/// The usual idempotency key.
pub const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
