//! What is between a client's socket and the HTTP library: the [`Scanner`], which follows HTTP/1 framing and refuses
//! every form that two parsers could read differently; and the [`Stream`], which passes on only what the scanner
//! accepted, and limits slow clients. No byte is changed.
//!
//! The library behind it merges two equal lengths into one and drops a length that stands beside a transfer coding, both
//! before any handler sees the request: whoever wants to refuse those has to look at the bytes.

mod chunked;
mod client_timeouts;
mod closing;
mod exchange;
mod head;
mod head_room;
mod line;
mod piece;
mod rate;
mod refusal;
mod scanner;
mod stream;

pub(crate) use client_timeouts::ClientTimeouts;
pub(crate) use exchange::{Exchange, Running};
pub(crate) use head_room::{HeadRoom, HeadSlot};
pub(crate) use line::is_disguised;
pub(crate) use piece::{BUFFER_BYTES, poll_read_piece};
pub(crate) use rate::Allowance;
pub use rate::Rate;
pub(crate) use refusal::Refusals;
pub use refusal::{MessageRefusal, RefusalObserver};
pub use scanner::{Limits, Protocol, Scanner};
pub(crate) use stream::Stream;
