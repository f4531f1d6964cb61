//! The layer under a real server.

mod bodies;
mod failing;
mod grpc;
mod handing;
mod identity;
mod once;
mod published;
mod settings;
mod streams;
mod table;
mod world;
