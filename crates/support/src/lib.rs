//! Shared support for the tests of several crates.
//!
//! **What lives here**: files, printed texts, clients, servers and how they are started, and the service
//! behind the gateway. **What must never**: a dependency on our own
//! crates, or an option that only one test program needs.

#[cfg(feature = "http")]
mod address;
#[cfg(feature = "http")]
pub mod client;
mod key;
pub mod launcher;
mod postgres;
mod redis;
#[cfg(feature = "http")]
pub mod reply;
mod scratch;
pub mod services;
pub mod texts;
#[cfg(feature = "http")]
pub mod upstream;
#[cfg(feature = "http")]
pub mod wait;

#[cfg(feature = "http")]
pub use address::ReservedAddress;
pub use key::KEY;
pub use postgres::PostgresServer;
#[cfg(feature = "postgres")]
pub use postgres::schema;
pub use redis::{RedisClient, RedisCluster, RedisReply, RedisServer};
#[cfg(feature = "http")]
pub use reply::Reply;
pub use scratch::ScratchDir;
