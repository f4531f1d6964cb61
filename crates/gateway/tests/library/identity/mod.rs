//! Which callers are trusted, tested from the outside with real tokens, files and key servers. The clock is a fake
//! one.

mod attacks;
mod issuers;
mod key_server;
mod operations;
mod refreshing;
mod settings;
mod sources;
mod tenants;
mod world;
