//! The demo: its story adds up, and its payment service answers those who try it.

mod page;
mod service;
mod story;
mod stripe;
mod world;
