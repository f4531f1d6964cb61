//! A socket that knows whether a byte was sent. After [`seal`](Socket::seal), no byte is sent.

use crate::wire::poll_read_piece;
use semel::Attempt;
use socket2::SockRef;
use std::io::{self, ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// One connection's socket, shared by its driver and by those that ask about it.
#[derive(Debug)]
pub(super) struct Socket {
    writing: OwnedWriteHalf,
    sending: Mutex<Sending>,
}

/// The bytes sent, and whether more may be. A lock, not atomics: "was a byte sent" and "send no more" must be one
/// step, or a request could be reported as unsent and then be sent.
#[derive(Debug, Default)]
struct Sending {
    accepted: u64,
    is_sealed: bool,
    attempt: Option<Attempt>,
}

impl Socket {
    /// The socket, and the I/O object that drives its connection.
    pub(super) fn new(stream: TcpStream) -> (Arc<Self>, Io) {
        let (reading, writing) = stream.into_split();
        let socket = Arc::new(Self { writing, sending: Mutex::default() });
        (Arc::clone(&socket), Io { socket, reading })
    }

    fn stream(&self) -> &TcpStream {
        self.writing.as_ref()
    }

    /// A request is about to be handed over, on a connection that carries nothing else. For a protected one, its
    /// attempt is checked right before the first byte, and nothing is sent after its deadline.
    pub(super) fn begin(&self, attempt: Option<Attempt>) {
        let mut sending = self.sending();
        sending.accepted = 0;
        sending.attempt = attempt;
    }

    /// The exchange is over.
    pub(super) fn end(&self) {
        self.sending().attempt = None;
    }

    /// How many bytes the system accepted since [`begin`](Self::begin), or in total. With TLS, bytes of records.
    pub(super) fn accepted(&self) -> u64 {
        self.sending().accepted
    }

    /// Sends nothing from now on. Returns how many bytes were sent, as [`accepted`](Self::accepted) counts them.
    pub(super) fn seal(&self) -> u64 {
        let mut sending = self.sending();
        sending.is_sealed = true;
        sending.accepted
    }

    /// Whether it may send.
    pub(super) fn is_open(&self) -> bool {
        !self.sending().is_sealed
    }

    /// Whether nothing was received: no end, no error, no unrequested byte. Asks the system, because the runtime may
    /// not know yet.
    pub(super) fn is_quiet(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        matches!(SockRef::from(self.stream()).peek(&mut byte), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether the peer has ended the connection, although there may still be bytes to read.
    pub(super) fn is_ended(&self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(self.stream()).peek(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    fn write(&self, write: impl FnOnce(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let mut sending = self.sending();
        if sending.is_sealed {
            return Err(io::Error::new(ErrorKind::BrokenPipe, "the request was abandoned"));
        }
        // Only the first byte needs the lease: a request that has begun is in doubt anyway.
        let refused = match &sending.attempt {
            Some(attempt) if sending.accepted == 0 => attempt.check().err().map(io::Error::other),
            Some(attempt) if attempt.is_overdue() => Some(io::Error::other("the deadline is over")),
            _ => None,
        };
        if let Some(error) = refused {
            sending.is_sealed = true;
            return Err(error);
        }
        let written = write(self.stream())?;
        sending.accepted += written as u64;
        Ok(written)
    }

    fn sending(&self) -> MutexGuard<'_, Sending> {
        // No change can panic half-way.
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The socket for the connection's driver.
#[derive(Debug)]
pub(super) struct Io {
    socket: Arc<Socket>,
    reading: OwnedReadHalf,
}

impl Io {
    fn poll_write_by(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.socket.stream().poll_write_ready(context))?;
            match self.socket.write(&write) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return Poll::Ready(done),
            }
        }
    }
}

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // After a read that did not fill its buffer, the runtime knows that there is no more, and the next read waits
        // without a system call.
        poll_read_piece(&mut self.get_mut().reading, context, into)
    }
}

impl AsyncWrite for Io {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write(data))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_by(context, |stream| stream.try_write_vectored(data))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(SockRef::from(self.socket.stream()).shutdown(Shutdown::Write))
    }
}
