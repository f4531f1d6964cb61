//! The pure half of Semel.

pub mod fingerprint;
pub mod id;
pub mod key;
pub mod scope;
pub mod time;
