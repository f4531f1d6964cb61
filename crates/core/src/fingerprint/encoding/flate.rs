//! gzip and deflate.

use std::io::Read;

use flate2::bufread::GzDecoder;
use flate2::{Decompress, FlushDecompress, Status};

use super::{Error, MEMBERS_MAX, Output, PIECE_BYTES, corrupt};

/// The window of the format, and the other memory of its decoder.
pub(super) const WINDOW_BYTES: usize = 64 * 1024;

/// All gzip members up to the end of the body. Checksums and lengths are verified.
pub(super) fn gzip(body: &[u8], output: &mut Output<'_>) -> Result<(), Error> {
    let mut rest = body;
    let mut piece = vec![0; PIECE_BYTES];
    for _ in 0..MEMBERS_MAX {
        let mut decoder = GzDecoder::new(rest);
        loop {
            match decoder.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => output.extend(&piece[..read])?,
                Err(_) => {
                    let position = body.len() - decoder.get_ref().len();
                    return Err(corrupt("not gzip, or damaged, or cut short", position));
                }
            }
        }
        rest = decoder.into_inner();
        if rest.is_empty() {
            return Ok(());
        }
    }
    Err(corrupt("too many gzip members", body.len() - rest.len()))
}

/// The zlib format of the standard, or the raw deflate stream that some senders use.
pub(super) fn deflate(body: &[u8], output: &mut Output<'_>) -> Result<(), Error> {
    let zlib = matches!(body, [cmf, flg, ..]
        if cmf & 0x0f == 8 && (u16::from(*cmf) << 8 | u16::from(*flg)).is_multiple_of(31));
    if zlib {
        match inflate(Decompress::new(true), body, output) {
            // A raw stream may start like a zlib header; if it does not decode as zlib, try it as raw.
            Err(error) if error.kind() == super::ErrorKind::Malformed => {
                output.restart();
                inflate(Decompress::new(false), body, output).map_err(|_| error)
            }
            result => result,
        }
    } else {
        inflate(Decompress::new(false), body, output)
    }
}

fn inflate(mut state: Decompress, body: &[u8], output: &mut Output<'_>) -> Result<(), Error> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = position(state.total_in());
        let before = state.total_out();
        let status = state
            .decompress(&body[read..], &mut piece, FlushDecompress::None)
            .map_err(|_| corrupt("not deflate, or damaged", read))?;
        let written = position(state.total_out() - before);
        output.extend(&piece[..written])?;
        let now = position(state.total_in());
        match status {
            Status::StreamEnd if now == body.len() => return Ok(()),
            Status::StreamEnd => return Err(corrupt("unexpected data after the deflate stream", now)),
            _ if written == 0 && now == read => return Err(corrupt("the deflate stream is cut short", now)),
            _ => {}
        }
    }
}

fn position(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}
