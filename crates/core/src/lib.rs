//! The pure half of Semel.

pub mod classify;
pub mod fingerprint;
pub mod history;
pub mod id;
pub mod key;
pub mod machine;
pub mod outcome;
pub mod policy;
pub mod record;
pub mod scope;
pub mod time;
