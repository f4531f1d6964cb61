//! The layer under a real server.

mod bodies;
mod failing;
mod grpc;
mod handing;
mod identity;
mod once;
mod published;
mod streams;
mod table;
mod tonic;
mod trailers;
mod world;
