//! The program `semel`: a gateway in front of any HTTP service, which makes the effects of requests happen once.
//!
//! **What lives here**: the command line, the configuration, and the wiring of parts that other crates define: client →
//! [`semel_proxy`] → the layer → [`semel_proxy`] → service, and beside it the [admin address](semel_admin). **What must never**: a rule about what a
//! record means, or about what a client is answered; those are in [`semel::core::machine`] and [`semel_http`].

pub mod admin_client;
mod bounded_read;
pub mod callbacks;
pub mod caller_rules;
pub mod cli;
pub mod config;
pub mod demo;
pub mod difference;
pub mod doctor;
pub mod invalid_value;
pub mod serve;
pub mod stores;
mod terminal;
#[cfg(test)]
mod texts;
mod unsealed;
