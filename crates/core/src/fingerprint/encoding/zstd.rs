//! Zstandard: frames one after the other, skippable ones skipped.

use std::io::Read;

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::{Error, MEMBERS_MAX, Output, PIECE_BYTES, corrupt, too_large};

/// The largest window that the standard allows for this content encoding.
const WINDOW_BYTES_MAX: usize = 8 << 20;
/// The decoder keeps the window in a ring buffer of the next power of two.
pub(super) const HELD_BYTES_MAX: usize = 2 * WINDOW_BYTES_MAX;

pub(super) fn decode(body: &[u8], output: &mut Output<'_>) -> Result<(), Error> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_BYTES_MAX as u64);
    let mut rest = body;
    for _ in 0..MEMBERS_MAX {
        let start = body.len() - rest.len();
        match decoder.init(&mut rest) {
            Ok(()) => frame(&mut decoder, body, start, &mut rest, output)?,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                length, ..
            })) => {
                let skipped = usize::try_from(length).ok().and_then(|length| rest.get(length..));
                rest = skipped.ok_or_else(|| corrupt("a zstd frame is cut short", start))?;
            }
            Err(FrameDecoderError::WindowSizeTooBig { .. }) => {
                return Err(corrupt("a zstd frame requires a window of more than 8 MiB", start));
            }
            Err(_) => return Err(corrupt("not zstd, or damaged", start)),
        }
        if rest.is_empty() {
            return Ok(());
        }
    }
    Err(corrupt("too many zstd frames", body.len() - rest.len()))
}

/// Decodes the frame that starts at `start` after the decoder has read its header; `rest` follows the header.
fn frame(
    decoder: &mut FrameDecoder,
    body: &[u8],
    start: usize,
    rest: &mut &[u8],
    output: &mut Output<'_>,
) -> Result<(), Error> {
    let before = output.count;
    let declared = declares_size(&body[start..]).then(|| decoder.content_size());
    if declared.is_some_and(|size| size > (output.bytes_max - before) as u64) {
        return Err(too_large(output.bytes_max));
    }
    let position = |rest: &[u8]| body.len() - rest.len();
    let mut piece = vec![0; PIECE_BYTES];
    while !decoder.is_finished() {
        decoder
            .decode_blocks(&mut *rest, BlockDecodingStrategy::UptoBlocks(1))
            .map_err(|_| corrupt("a zstd frame is damaged or cut short", position(rest)))?;
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => {
                    output.extend(&piece[..read])?;
                }
                Err(_) => return Err(corrupt("a zstd frame is damaged", position(rest))),
            }
        }
    }
    // The decoder calculates the checksum, and leaves the comparison to its caller.
    let stated = decoder.get_checksum_from_data();
    let sum_matches = stated.is_none() || stated == decoder.get_calculated_checksum();
    if !sum_matches || declared.is_some_and(|size| size != (output.count - before) as u64) {
        return Err(corrupt("a zstd frame does not match its checksum or size", start));
    }
    Ok(())
}

/// Whether the header of a frame states the content size, in its own field or as a single segment.
fn declares_size(frame: &[u8]) -> bool {
    frame.get(4).is_some_and(|descriptor| descriptor >> 6 != 0 || descriptor & 0x20 != 0)
}
