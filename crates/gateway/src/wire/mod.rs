//! What stands between a client's socket and the HTTP library.
//!
//! What lives here: the [`Scanner`], which follows HTTP/1 message framing over the bytes of a connection and refuses every
//! shape that two parsers could read differently; and the [`Stream`], which lets nothing through that the scanner has not
//! passed, and waits for slow clients only so long. What must never: a byte changed on its way, or a rule about what a
//! request means.
//!
//! The library behind it merges two equal lengths into one and drops a length that stands beside a transfer coding, both
//! before any handler sees the request: whoever wants to refuse those has to look at the bytes.

mod chunked;
mod closing;
mod exchange;
mod head;
mod head_room;
mod line;
mod patience;
mod piece;
mod rate;
mod refusal;
mod scanner;
mod stream;

pub(crate) use exchange::{Exchange, Running};
pub(crate) use head_room::{HeadPlace, HeadRoom};
pub(crate) use line::is_disguised;
pub(crate) use patience::Patience;
pub(crate) use piece::{BUFFER_BYTES, poll_read_piece};
pub(crate) use rate::Allowance;
pub use rate::Rate;
pub use refusal::Refusal;
pub use scanner::{Limits, Protocol, Scanner};
pub(crate) use stream::Stream;
