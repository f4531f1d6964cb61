//! Brotli. Its window is at most 16 MiB; the variant with larger ones is not accepted.

use brotli_decompressor::{BrotliDecompressStream, BrotliResult, BrotliState, StandardAlloc};

use super::{Error, Output, PIECE_BYTES, corrupt};

/// The largest window of the format.
pub(super) const WINDOW_BYTES_MAX: usize = 16 << 20;

pub(super) fn decode(body: &[u8], output: &mut Output<'_>) -> Result<(), Error> {
    let alloc = StandardAlloc::default;
    let mut state = BrotliState::new_strict(alloc(), alloc(), alloc());
    let mut piece = vec![0; PIECE_BYTES];
    let mut available = body.len();
    let mut read = 0;
    let mut total = 0;
    loop {
        let mut free = piece.len();
        let mut written = 0;
        let result = BrotliDecompressStream(
            &mut available,
            &mut read,
            body,
            &mut free,
            &mut written,
            &mut piece,
            &mut total,
            &mut state,
        );
        output.extend(&piece[..written])?;
        match result {
            BrotliResult::ResultSuccess if available == 0 => return Ok(()),
            BrotliResult::ResultSuccess => {
                return Err(corrupt("unexpected data after the brotli stream", read));
            }
            BrotliResult::NeedsMoreInput => {
                return Err(corrupt("the brotli stream is cut short", body.len()));
            }
            BrotliResult::ResultFailure => return Err(corrupt("not brotli, or damaged", read)),
            BrotliResult::NeedsMoreOutput => {}
        }
    }
}
