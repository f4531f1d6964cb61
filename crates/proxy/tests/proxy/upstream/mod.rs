//! The upstream client, against real servers on loopback.

mod answers;
mod foreign;
mod forwarding;
mod http2;
mod layered;
mod reuse;
mod sent;
mod slow;
mod tls;
mod tunnels;
mod world;
