//! Content encodings, undone.
//!
//! Contents: reading `Content-Encoding` and decoding gzip, deflate, br and zstd within a limit. Never here: an
//! allocation whose size the sender alone decides. Decoded bytes stop at the limit; a decoder's own window is bounded
//! by its format (gzip, deflate, br) or refused above 8 MiB (zstd).

mod brotli;
mod flate;
mod xxh64;
mod zstd;

use super::error::{Error, ErrorKind};

const SUBJECT: &str = "Content-Encoding";

/// A list with more names than this has no honest use.
const CODINGS_MAX: usize = 4;

/// More gzip members or zstd frames in one body than this have no honest use either, and each of them sets a
/// decoder up anew.
const MEMBERS_MAX: usize = 4096;

/// So many bytes may come of however few.
const EXPANDED_FREELY: usize = 1 << 20;

/// Beyond that, a body that expands more than so many times has no honest use: JSON and forms come to a tenth of it.
const EXPANSION_MAX: usize = 100;

/// The most bytes that come of a body of `encoded` bytes, where `bytes_max` are allowed.
pub(super) fn decoded_max(encoded: usize, bytes_max: usize) -> usize {
    encoded.saturating_mul(EXPANSION_MAX).max(EXPANDED_FREELY).min(bytes_max)
}

/// What the `Content-Encoding` of a body comes to.
pub(super) enum Coding {
    /// Nothing is to be undone.
    None,
    /// One of those named is unknown: all of them stay on the body.
    Unknown(Vec<Vec<u8>>),
    /// One that is undone.
    Known(Decoder),
}

/// What the `lines` of the header say about `body`.
///
/// Several known ones on top of one another are refused: each multiplies what a few bytes can ask for.
pub(super) fn coding(lines: &[&[u8]], body: &[u8], bytes_max: usize) -> Result<Coding, Error> {
    if body.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    // An empty body is just empty, whatever is said about it.
    if body.is_empty() {
        return Ok(Coding::None);
    }
    let names = names(lines);
    if names.len() > CODINGS_MAX {
        return Err(Error::new(ErrorKind::Malformed, SUBJECT, "more than four codings on one body"));
    }
    let decoders: Option<Vec<Decoder>> = names.iter().map(|name| Decoder::by_name(name)).collect();
    match decoders.as_deref() {
        None => Ok(Coding::Unknown(names)),
        Some([]) => Ok(Coding::None),
        Some([decoder]) => Ok(Coding::Known(*decoder)),
        Some(_) => {
            let problem = "more than one coding on one body; send it with one of gzip, deflate, br and zstd";
            Err(Error::new(ErrorKind::Malformed, SUBJECT, problem))
        }
    }
}

/// Takes what is decoded, piece by piece.
pub(super) trait Pieces {
    /// A piece that is not empty.
    fn piece(&mut self, bytes: &[u8]);

    /// What came so far was read as what it is not: it comes again from the beginning.
    fn restart(&mut self);
}

/// One coding.
#[derive(Clone, Copy)]
pub(super) struct Decoder {
    decode: Decode,
    /// The most that it holds besides what it is given and what it hands over.
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

    /// The most bytes that decoding a body of `encoded` bytes takes where its pieces are not kept.
    pub(super) fn bytes_max(self, encoded: usize, bytes_max: usize) -> usize {
        // A window that is never filled takes no more memory than what came.
        let filled = decoded_max(encoded, bytes_max).saturating_mul(2).max(flate::WINDOW_BYTES);
        self.held_bytes_max.min(filled) + PIECE_BYTES
    }

    /// Undoes the coding of `body`, of which at most `bytes_max` may come, and hands it over as it comes.
    pub(super) fn stream(self, body: &[u8], bytes_max: usize, to: &mut dyn Pieces) -> Result<(), Error> {
        let decoded_max = decoded_max(body.len(), bytes_max);
        let mut output = Output { to, count: 0, bytes_max: decoded_max };
        (self.decode)(body, &mut output).map_err(|error| {
            let is_expanded = error.kind() == ErrorKind::TooLarge && decoded_max < bytes_max;
            if is_expanded { expanded(decoded_max) } else { error }
        })
    }

    /// The same, kept as a whole.
    pub(super) fn whole(self, body: &[u8], bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut kept = Kept { bytes: Vec::new(), bytes_max: decoded_max(body.len(), bytes_max) };
        self.stream(body, bytes_max, &mut kept)?;
        Ok(kept.bytes)
    }
}

/// The codings in the order they were applied: lower case, without `identity`, and at most one too many.
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

fn expanded(decoded_max: usize) -> Error {
    Error::new(ErrorKind::TooLarge, "body", "decoded, it is more than a hundred times as long")
        .at(decoded_max)
}

fn corrupt(problem: &'static str, position: usize) -> Error {
    Error::malformed(SUBJECT, problem, position)
}

/// Where decoded bytes go, up to the limit.
struct Output<'a> {
    to: &'a mut dyn Pieces,
    count: usize,
    bytes_max: usize,
}

impl Output<'_> {
    /// Hands a piece over, or refuses it if it would pass the limit.
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

    /// What came so far is taken back.
    fn restart(&mut self) {
        self.count = 0;
        self.to.restart();
    }
}

/// Decoded bytes, all of them.
struct Kept {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Pieces for Kept {
    fn piece(&mut self, piece: &[u8]) {
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let doubled = needed.max(self.bytes.capacity() * 2);
            // Near the limit one step goes all the way: old and new memory together stay below 1.25 times it.
            let capacity = if doubled > self.bytes_max / 4 { self.bytes_max.max(needed) } else { doubled };
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
    }

    fn restart(&mut self) {
        self.bytes.clear();
    }
}

/// Pieces that a decoder hands over: small beside its window.
const PIECE_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_doubles_and_goes_to_the_limit_in_one_step_past_a_quarter_of_it() {
        let mut kept = Kept { bytes: Vec::new(), bytes_max: 640 };
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
    fn nothing_is_handed_over_beyond_the_limit() {
        let mut kept = Kept { bytes: Vec::new(), bytes_max: 640 };
        let mut output = Output { to: &mut kept, count: 0, bytes_max: 640 };
        assert_eq!(output.extend(&[7; 640]), Ok(()));
        assert_eq!(output.extend(&[7]), Err(too_large(640)));
        assert_eq!(kept.bytes, [7; 640]);
    }
}
