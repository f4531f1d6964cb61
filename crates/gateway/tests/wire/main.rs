//! What clients meet on the wire: raw sockets against a listening gateway.

mod differential;
mod drain;
mod http2;
mod ordinary;
mod places;
mod scanning;
mod slow;
mod smuggling;
mod tls;
mod upgrade;
mod world;
