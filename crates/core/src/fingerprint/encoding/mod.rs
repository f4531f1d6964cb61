//! Content encodings, undone.
//!
//! What lives here: reading `Content-Encoding` and decoding gzip, deflate, br and zstd within a limit. What must
//! never: an allocation whose size the sender alone decides. Decoded bytes stop at the limit; a decoder's own
//! window is bounded by its format (gzip, deflate, br) or refused above 8 MiB (zstd).

mod brotli;
mod flate;
mod xxh64;
mod zstd;

use std::borrow::Cow;

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

/// A body with its codings undone, or as it came.
pub(super) struct Decoded<'a> {
    bytes: Cow<'a, [u8]>,
    left: Vec<Vec<u8>>,
}

impl Decoded<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The codings still on the body: none, or all of those named where one of them is unknown.
    pub(super) fn left(&self) -> &[Vec<u8>] {
        &self.left
    }
}

/// Undoes the one coding that the `lines` of the header name.
///
/// Several known ones on top of one another are refused: each multiplies what a few bytes can ask for.
pub(super) fn decode<'a>(lines: &[&[u8]], body: &'a [u8], bytes_max: usize) -> Result<Decoded<'a>, Error> {
    if body.len() > bytes_max {
        return Err(too_large(bytes_max));
    }
    let as_it_came = |left| Ok(Decoded { bytes: Cow::Borrowed(body), left });
    // An empty body is just empty, whatever is said about it.
    if body.is_empty() {
        return as_it_came(Vec::new());
    }
    let names = names(lines);
    if names.len() > CODINGS_MAX {
        return Err(Error::new(ErrorKind::Malformed, SUBJECT, "more than four codings on one body"));
    }
    let decoders: Option<Vec<Decoder>> = names.iter().map(|name| decoder(name)).collect();
    match decoders.as_deref() {
        None => as_it_came(names),
        Some([]) => as_it_came(Vec::new()),
        Some([decode]) => {
            let decoded_max = decoded_max(body.len(), bytes_max);
            let mut output = Output { bytes: Vec::new(), bytes_max: decoded_max };
            decode(body, &mut output).map_err(|error| {
                let is_expanded = error.kind() == ErrorKind::TooLarge && decoded_max < bytes_max;
                if is_expanded { expanded(decoded_max) } else { error }
            })?;
            Ok(Decoded { bytes: Cow::Owned(output.bytes), left: Vec::new() })
        }
        Some(_) => {
            let problem = "more than one coding on one body; send it with one of gzip, deflate, br and zstd";
            Err(Error::new(ErrorKind::Malformed, SUBJECT, problem))
        }
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

type Decoder = fn(&[u8], &mut Output) -> Result<(), Error>;

fn decoder(name: &[u8]) -> Option<Decoder> {
    match name {
        b"gzip" | b"x-gzip" => Some(flate::gzip),
        b"deflate" => Some(flate::deflate),
        b"br" => Some(brotli::decode),
        b"zstd" => Some(zstd::decode),
        _ => None,
    }
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

/// Decoded bytes, up to the limit.
struct Output {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Output {
    /// Appends a piece, or refuses it where it would pass the limit.
    fn extend(&mut self, piece: &[u8]) -> Result<(), Error> {
        if piece.len() > self.bytes_max - self.bytes.len() {
            return Err(too_large(self.bytes_max));
        }
        let needed = self.bytes.len() + piece.len();
        if needed > self.bytes.capacity() {
            let doubled = needed.max(self.bytes.capacity() * 2);
            // Near the limit one step goes all the way: old and new memory together stay below 1.25 times it.
            let capacity = if doubled > self.bytes_max / 4 { self.bytes_max } else { doubled };
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

/// Pieces that a decoder hands over: small beside its window.
const PIECE_BYTES: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_doubles_and_goes_to_the_limit_in_one_step_past_a_quarter_of_it() {
        let mut output = Output { bytes: Vec::new(), bytes_max: 640 };
        let mut steps = Vec::new();
        for _ in 0..64 {
            let before = output.bytes.capacity();
            output.extend(&[7; 10]).expect("there is room");
            if output.bytes.capacity() != before {
                steps.push((output.bytes.len(), output.bytes.capacity()));
            }
        }
        assert_eq!(steps, [(10, 10), (20, 20), (30, 40), (50, 80), (90, 160), (170, 640)]);
        assert_eq!(output.extend(&[7]), Err(too_large(640)));
        assert_eq!(output.bytes, [7; 640]);
    }
}
