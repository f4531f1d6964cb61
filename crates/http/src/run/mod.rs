//! How a request goes through the layer: run once by the engine, joined in the handler's own transaction, only
//! observed, or passed on.
//!
//! The inner service is called here and nowhere else.

mod execute;
mod local;
mod running_work;
mod service;
mod shadow;

pub use service::Service;
