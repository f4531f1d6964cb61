//! The codec as its users see it: on records made by the state machine, and on files that must stay readable.

#![expect(clippy::unwrap_used, reason = "samples and fixtures are test code")]

mod describe;
mod fixtures;
mod samples;
mod unreadable;
