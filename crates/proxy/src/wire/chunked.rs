//! The framing of chunked bodies, byte by byte. Sizes that parsers could read differently are refused.

use super::line;
use super::refusal::MessageRefusal;

/// The maximum for all extensions of one body. They have no honest use.
const EXTENSION_BYTES_MAX: u32 = 8 * 1024;
/// Sixteen hexadecimal digits fill 64 bits.
const SIZE_DIGITS_MAX: u8 = 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunked {
    state: State,
    size: u64,
    extension_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Size { digits: u8 },
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
}

/// How far it went.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// This many bytes belong to the body and are valid.
    pub(super) bytes: usize,
    /// Trailers or the end come next, or the next byte is wrong.
    pub(super) end: Option<Result<(), MessageRefusal>>,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self { state: State::Size { digits: 0 }, size: 0, extension_bytes: 0 }
    }

    pub(super) fn advance(&mut self, bytes: &[u8]) -> Progress {
        let mut at = 0;
        while at < bytes.len() {
            if self.state == State::Data {
                let rest = bytes.len() - at;
                let taken = usize::try_from(self.size).map_or(rest, |size| size.min(rest));
                at += taken;
                self.size -= taken as u64;
                if self.size == 0 {
                    self.state = State::DataReturn;
                }
                continue;
            }
            match self.byte(bytes[at]) {
                Ok(false) => at += 1,
                Ok(true) => return Progress { bytes: at + 1, end: Some(Ok(())) },
                Err(refusal) => return Progress { bytes: at, end: Some(Err(refusal)) },
            }
        }
        Progress { bytes: at, end: None }
    }

    /// Takes one byte of framing; returns whether it ends the last chunk's line.
    fn byte(&mut self, byte: u8) -> Result<bool, MessageRefusal> {
        self.state = match (self.state, byte) {
            (State::Size { digits }, _) => self.size(digits, byte)?,
            (State::Extension, b'\r') => State::SizeLineFeed,
            (State::Extension, b'\n') => return Err(MessageRefusal::BareLineFeed),
            (State::Extension, _) => {
                self.extension_bytes += 1;
                if self.extension_bytes > EXTENSION_BYTES_MAX || !line::is_extension(byte) {
                    return Err(MessageRefusal::ChunkExtension);
                }
                State::Extension
            }
            (State::SizeLineFeed, b'\n') if self.size == 0 => return Ok(true),
            (State::SizeLineFeed, b'\n') => State::Data,
            (State::SizeLineFeed, _) => return Err(MessageRefusal::BareCarriageReturn),
            (State::DataReturn, b'\r') => State::DataLineFeed,
            (State::DataLineFeed, b'\n') => {
                self.size = 0;
                State::Size { digits: 0 }
            }
            (State::Data | State::DataReturn | State::DataLineFeed, _) => {
                return Err(MessageRefusal::ChunkEnd);
            }
        };
        Ok(false)
    }

    fn size(&mut self, digits: u8, byte: u8) -> Result<State, MessageRefusal> {
        match byte {
            b'\r' if digits > 0 => return Ok(State::SizeLineFeed),
            b';' if digits > 0 => return Ok(State::Extension),
            b'\n' if digits > 0 => return Err(MessageRefusal::BareLineFeed),
            _ => {}
        }
        let Some(digit) = char::from(byte).to_digit(16) else { return Err(MessageRefusal::ChunkSize) };
        if digits == SIZE_DIGITS_MAX || self.size > i64::MAX.cast_unsigned() >> 4 {
            return Err(MessageRefusal::ChunkSize);
        }
        self.size = (self.size << 4) | u64::from(digit);
        Ok(State::Size { digits: digits + 1 })
    }
}
