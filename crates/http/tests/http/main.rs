//! The layer under a real server.

mod bodies;
mod table;
mod world;
