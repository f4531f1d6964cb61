//! The demo: its story adds up, and its payment service works.

mod page;
mod service;
mod story;
mod stripe;
mod world;
