//! The codec as its users see it: on records made by the state machine, and on files that must stay readable.

#![expect(clippy::unwrap_used, reason = "what makes the samples and fixtures is test code, too")]

mod describe;
mod fixtures;
mod samples;
mod unreadable;
