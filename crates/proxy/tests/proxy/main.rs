//! The proxy against real clients and servers on loopback.

mod upstream;
mod wire;
