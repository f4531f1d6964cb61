//! Limits how much is read at once.
//!
//! The HTTP library makes its buffer twice as long whenever a read fills it, up to what a head may take, and each piece of a body that
//! waits anywhere keeps a buffer as long as that. Reading less than it makes room for keeps its buffers at [`BUFFER_BYTES`].

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// The longest buffer that results.
pub(crate) const BUFFER_BYTES: usize = 16 * 1024;

/// Reads from `io`, at most one byte less than a buffer.
pub(crate) fn poll_read_piece<I: AsyncRead + Unpin>(
    io: &mut I,
    context: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    if buffer.remaining() < BUFFER_BYTES {
        return Pin::new(io).poll_read(context, buffer);
    }
    let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(BUFFER_BYTES - 1));
    ready!(Pin::new(io).poll_read(context, &mut piece))?;
    let count = piece.filled().len();
    buffer.advance(count);
    Poll::Ready(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test]
    async fn a_long_buffer_is_filled_in_pieces() {
        let sent: Vec<u8> = (0..100_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let (mut source, mut room) = (&sent[..], vec![0; 128 * 1024]);
        let mut buffer = ReadBuf::new(&mut room);
        let mut before = 0;
        while before < sent.len() {
            poll_fn(|context| poll_read_piece(&mut source, context, &mut buffer)).await.expect("read");
            let count = buffer.filled().len() - before;
            assert!((1..BUFFER_BYTES).contains(&count), "{count}");
            before += count;
        }
        assert_eq!(buffer.filled(), sent);
    }
}
