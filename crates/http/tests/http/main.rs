//! The layer under a real server.

mod bodies;
mod callers;
mod down;
mod failing;
mod grpc;
mod handing;
mod identity;
mod keeping;
mod once;
mod published;
mod responses;
mod retained;
mod settings;
mod shadow;
mod sources;
mod spelling;
mod streams;
mod table;
mod tonic;
mod trailers;
mod unread;
mod watching;
mod world;
