//! The gateway as a library: its parts, called from here. Tests that start the program `semel` are in `tests/gateway`
//! and `tests/cli`.

mod demo;
mod identity;
