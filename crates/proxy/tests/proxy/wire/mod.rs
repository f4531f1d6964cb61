//! What clients see on the wire: raw sockets against a listening gateway.

mod differential;
mod drain;
mod http2;
mod limits;
mod ordinary;
mod scanning;
mod slow;
mod smuggling;
mod tls;
mod upgrade;
mod world;
