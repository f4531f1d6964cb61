//! What is stored of a response, and how a replay is made from it.
//!
//! Whether a response is stored at all is decided elsewhere.

mod headers;
pub(crate) mod rebuild;
pub(crate) mod replay;

pub use headers::StoredHeaders;
pub use rebuild::{Rebuild, Retain, StoredSummary, is_header};
