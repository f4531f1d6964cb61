//! Reading numbers, times, texts and byte strings.
//!
//! The cursor only moves forward and checks every length against the remaining bytes before it allocates. Every value
//! has exactly one encoding.

use super::Error;
use crate::time::Time;
use bytes::Bytes;

/// 64 bits, seven in each byte.
const VARINT_BYTES_MAX: usize = 10;

/// A position in the bytes of an entry.
pub(super) struct Reader<'a> {
    input: &'a Bytes,
    rest: &'a [u8],
    end: usize,
}

impl<'a> Reader<'a> {
    /// At the beginning of the first `end` bytes of `input`.
    pub(super) fn new(input: &'a Bytes, end: usize) -> Self {
        Self { input, rest: &input[..end], end }
    }

    /// The current position.
    pub(super) fn at(&self) -> usize {
        self.end - self.rest.len()
    }

    /// How many bytes are left.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// An error at the current position.
    pub(super) fn damaged(&self, what: &'static str) -> Error {
        Error::Damaged { at: self.at(), what }
    }

    pub(super) fn byte(&mut self) -> Result<u8, Error> {
        self.array().map(|[byte]: [u8; 1]| byte)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (array, rest) = self.rest.split_first_chunk().ok_or_else(|| self.damaged("cut short"))?;
        self.rest = rest;
        Ok(*array)
    }

    /// A number in its shortest form.
    pub(super) fn varint(&mut self) -> Result<u64, Error> {
        let mut value = 0;
        for (index, &byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            value |= bits << (7 * index);
            if byte < 0x80 {
                if index > 0 && bits == 0 {
                    return Err(self.damaged("a number is not in its shortest form"));
                }
                // The last byte has room for the 64th bit only.
                if index + 1 == VARINT_BYTES_MAX && bits > 1 {
                    return Err(self.damaged("a number has more than 64 bits"));
                }
                self.rest = &self.rest[index + 1..];
                return Ok(value);
            }
        }
        if self.rest.len() < VARINT_BYTES_MAX {
            return Err(Error::Damaged { at: self.end, what: "cut short" });
        }
        Err(self.damaged("a number has more than 64 bits"))
    }

    /// A number that fits in a smaller type.
    pub(super) fn number<T: TryFrom<u64>>(&mut self) -> Result<T, Error> {
        let at = self.at();
        T::try_from(self.varint()?).map_err(|_| Error::Damaged { at, what: "a number is too large" })
    }

    pub(super) fn time(&mut self) -> Result<Time, Error> {
        self.varint().map(Time::from_millis)
    }

    /// How many items follow. Fails if they do not fit, with at least `item_bytes_min` bytes each.
    pub(super) fn count(&mut self, item_bytes_min: usize) -> Result<usize, Error> {
        let at = self.at();
        let count: usize = self.number()?;
        if count > self.left() / item_bytes_min {
            return Err(Error::Damaged { at, what: "a length exceeds the remaining bytes" });
        }
        Ok(count)
    }

    /// A byte string, as a slice of the input.
    pub(super) fn slice(&mut self) -> Result<&'a [u8], Error> {
        let at = self.at();
        let length = self.number()?;
        let (slice, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(Error::Damaged { at, what: "a length exceeds the remaining bytes" })?;
        self.rest = rest;
        Ok(slice)
    }

    /// A byte string that keeps the input alive.
    pub(super) fn bytes(&mut self) -> Result<Bytes, Error> {
        let length = self.slice()?.len();
        let end = self.at();
        Ok(self.input.slice(end - length..end))
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Error> {
        let slice = self.slice()?;
        std::str::from_utf8(slice).map_err(|error| {
            let at = self.at() - slice.len() + error.valid_up_to();
            Error::Damaged { at, what: "invalid UTF-8" }
        })
    }

    /// The bytes read since `start`, as a slice that keeps the input alive.
    pub(super) fn since(&self, start: usize) -> Bytes {
        self.input.slice(start..self.at())
    }
}
