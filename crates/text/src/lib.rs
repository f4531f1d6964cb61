//! Values as people write them, and text that is safe to show.
//!
//! **What lives here**: dates, durations, sizes, addresses and parts of URLs, read from text and written as text; which
//! characters may be printed, URLs without their secrets, and lines of a width. Every function is pure. **What must
//! never**: files, sockets, clocks, another crate, of ours or of anybody else, and a rule of Semel's: what a key, a
//! caller or a record means is decided in the core.

pub mod address;
pub mod calendar;
pub mod duration;
pub mod masked;
pub mod percent;
pub mod printable;
pub mod size;
pub mod wrap;
