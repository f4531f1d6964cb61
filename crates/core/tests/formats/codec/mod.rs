//! The codec as its users see it: on records made by the state machine, and on files that must stay readable.

mod describe;
mod fixtures;
mod samples;
mod unreadable;
