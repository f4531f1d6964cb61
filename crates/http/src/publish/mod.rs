//! What a layer publishes: its specification, as JSON and as a page, and each caller's own operations.

mod page;
pub(crate) mod resource;
mod specification;
