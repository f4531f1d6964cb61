//! The layer under a real server, and the guide's pages about its errors.

mod bodies;
mod callers;
mod deadlines;
mod down;
mod errors_have_pages;
mod failing;
mod forwarding;
mod grpc;
mod identity;
mod observing;
mod once;
mod published;
mod responses;
mod retained;
mod sealing_and_rates;
mod settings;
mod shadow;
mod sources;
mod spelling;
mod streams;
mod table;
mod tonic;
mod trailers;
mod unread;
mod world;
