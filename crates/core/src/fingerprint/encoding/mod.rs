//! Decoding of content encodings.
//!
//! Reads `Content-Encoding` and decodes gzip, deflate, br and zstd within a limit. The sender alone never decides the
//! size of an allocation: decoded bytes stop at the limit, and a decoder's own window is bounded by its format (gzip,
//! deflate, br) or refused above 8 MiB (zstd).

mod brotli;
mod flate;
mod zstd;

use super::error::{Error, ErrorKind};

const SUBJECT: &str = "Content-Encoding";

/// Longer lists have no legitimate use.
const CODINGS_MAX: usize = 4;

/// More gzip members or zstd frames have no legitimate use either, and each one needs a new decoder.
const MEMBERS_MAX: usize = 4096;

/// The content encoding of a body.
pub(super) enum Coding {
    /// Nothing to decode.
    None,
    /// At least one coding is unknown: the body is not decoded at all.
    Unknown(Vec<Vec<u8>>),
    /// One known coding.
    Known(Decoder),
}

/// Reads the header `lines` for `body`.
///
/// Several known codings are refused: each multiplies what a few bytes can expand to.
pub(super) fn coding(lines: &[&[u8]], body: &[u8], bytes_max: usize) -> Result<Coding, Error> {
    if body.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    // An empty body is empty under any coding.
    if body.is_empty() {
        return Ok(Coding::None);
    }
    let names = names(lines);
    if names.len() > CODINGS_MAX {
        return Err(Error::new(ErrorKind::Malformed, SUBJECT, "more than four content codings"));
    }
    let decoders: Option<Vec<Decoder>> = names.iter().map(|name| Decoder::by_name(name)).collect();
    match decoders.as_deref() {
        None => Ok(Coding::Unknown(names)),
        Some([]) => Ok(Coding::None),
        Some([decoder]) => Ok(Coding::Known(*decoder)),
        Some(_) => {
            let problem = "more than one content coding; use only one of gzip, deflate, br and zstd";
            Err(Error::new(ErrorKind::Malformed, SUBJECT, problem))
        }
    }
}

/// Receives the decoded body in pieces.
pub(super) trait Pieces {
    /// A piece that is not empty.
    fn piece(&mut self, bytes: &[u8]);

    /// The pieces so far were decoded in the wrong format: decoding starts again from the beginning.
    fn restart(&mut self);
}

/// One coding.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    decode: Decode,
    /// The most memory that it needs, besides input and output.
    held_bytes_max: usize,
}

type Decode = fn(&[u8], &mut Output<'_>) -> Result<(), Error>;

impl Decoder {
    fn by_name(name: &[u8]) -> Option<Self> {
        let (decode, held_bytes_max): (Decode, _) = match name {
            b"gzip" | b"x-gzip" => (flate::gzip, flate::WINDOW_BYTES),
            b"deflate" => (flate::deflate, flate::WINDOW_BYTES),
            b"br" => (brotli::decode, brotli::WINDOW_BYTES_MAX),
            b"zstd" => (zstd::decode, zstd::HELD_BYTES_MAX),
            _ => return None,
        };
        Some(Self { decode, held_bytes_max })
    }

    /// The most memory that decoding a body needs if its pieces are not kept.
    pub(super) fn bytes_max(self, bytes_max: usize) -> usize {
        // A window that is never filled uses only as much memory as was decoded.
        let filled = bytes_max.saturating_mul(2).max(flate::WINDOW_BYTES);
        self.held_bytes_max.min(filled) + PIECE_BYTES
    }

    /// Decodes `body`, at most `bytes_max` bytes, and passes the pieces to `to`.
    pub(super) fn stream(self, body: &[u8], bytes_max: usize, to: &mut dyn Pieces) -> Result<(), Error> {
        (self.decode)(body, &mut Output { to, count: 0, bytes_max })
    }

    /// Decodes `body` into one buffer.
    pub(super) fn decode_all(self, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut kept = DecodedBytes { bytes: Vec::new(), bytes_max };
        self.stream(body, bytes_max, &mut kept)?;
        Ok(kept.bytes)
    }
}

/// The codings in the order they were applied: lower case, without `identity`, and at most one more than allowed.
fn names(lines: &[&[u8]]) -> Vec<Vec<u8>> {
    lines
        .iter()
        .flat_map(|line| line.split(|byte| *byte == b','))
        .map(|name| name.trim_ascii().to_ascii_lowercase())
        .filter(|name| !name.is_empty() && name != b"identity")
        .take(CODINGS_MAX + 1)
        .collect()
}

fn too_large(bytes_max: usize) -> Error {
    Error::new(ErrorKind::TooLarge, "body", "it is larger than allowed").at(bytes_max)
}

fn corrupt(problem: &'static str, position: usize) -> Error {
    Error::malformed(SUBJECT, problem, position)
}

/// The output of a decoder, up to the limit.
struct Output<'a> {
    to: &'a mut dyn Pieces,
    count: usize,
    bytes_max: usize,
}

impl Output<'_> {
    /// Passes on a piece, or fails if it would exceed the limit.
    fn extend(&mut self, piece: &[u8]) -> Result<(), Error> {
        if piece.len() > self.bytes_max - self.count {
            return Err(too_large(self.bytes_max));
        }
        self.count += piece.len();
        if !piece.is_empty() {
            self.to.piece(piece);
        }
        Ok(())
    }

    /// Discards the output so far.
    fn restart(&mut self) {
        self.count = 0;
        self.to.restart();
    }
}

/// All decoded bytes.
struct DecodedBytes {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Pieces for DecodedBytes {
    fn piece(&mut self, piece: &[u8]) {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let doubled = needed.max(self.bytes.capacity() * 2);
            // Near the limit, grow to the limit in one step: the old and the new buffer together stay below 1.25
            // times the limit.
            let capacity = if doubled > self.bytes_max / 4 { self.bytes_max.max(needed) } else { doubled };
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    fn restart(&mut self) {
        self.bytes.clear();
    }
}

/// The size of a decoder's pieces: small compared to its window.
const PIECE_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_doubles_and_jumps_to_the_limit_past_a_quarter() {
        let mut kept = DecodedBytes { bytes: Vec::new(), bytes_max: 640 };
        let mut steps = Vec::new();
        for _ in 0..64 {
            let before = kept.bytes.capacity();
            kept.piece(&[7; 10]);
            if kept.bytes.capacity() != before {
                steps.push((kept.bytes.len(), kept.bytes.capacity()));
            }
        }
        assert_eq!(steps, [(10, 10), (20, 20), (30, 40), (50, 80), (90, 160), (170, 640)]);
        assert_eq!(kept.bytes, [7; 640]);
    }

    #[test]
    fn nothing_beyond_the_limit_is_returned() {
        let mut kept = DecodedBytes { bytes: Vec::new(), bytes_max: 640 };
        let mut output = Output { to: &mut kept, count: 0, bytes_max: 640 };
        assert_eq!(output.extend(&[7; 640]), Ok(()));
        assert_eq!(output.extend(&[7]), Err(too_large(640)));
        assert_eq!(kept.bytes, [7; 640]);
    }
}
