//! How a private server is started and stopped: its programs, its account, its settings, its process.
//!
//! `cargo xtask services` starts servers that many tests share, and [`PostgresServer`](crate::PostgresServer) and
//! [`RedisServer`](crate::RedisServer) start one for a single test. Both do it with this module, so both have the same
//! settings. **What must never**: a panic, the choice of a folder or a port, or the installation of a package.

mod account;
mod command;
mod files;
pub mod postgres;
pub mod process;
pub mod redis;

pub use account::Account;
pub use command::output;
pub use files::describe;
