//! A client's connection as the HTTP library sees it: it reads through the scanner, and waits within limits.
//!
//! A refusal ends the stream: once every earlier request is answered and its answer is out, the refusal is written as the
//! last thing, and the library behind is told that nothing more comes. So answers stay in order, whatever a client sends
//! without waiting for them.

use super::client_timeouts::{ClientTimeouts, ReadTimer, Wait};
use super::closing::Closing;
use super::exchange::Exchange;
use super::head_room::HeadSlot;
use super::piece::poll_read_piece;
use super::rate::Allowance;
use super::refusal::{MessageRefusal, Refusals};
use super::scanner::{Protocol, Scanner};
use std::any::Any;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much is read at once while a head is incomplete.
const READ_BYTES: usize = 4 * 1024;

/// One connection, over any transport.
pub(crate) struct Stream<I> {
    io: I,
    scanner: Scanner,
    exchange: Arc<Exchange>,
    /// Received bytes that were not handed on; the first `passed` of them may be.
    held: Vec<u8>,
    passed: usize,
    /// The memory for them.
    head_slot: HeadSlot,
    /// Requests whose responses were sent completely.
    answered: u64,
    read_timer: ReadTimer,
    /// The time for the client to read.
    taking: Allowance,
    closing: Option<Closing>,
    refusals: Refusals,
    /// This connection's slot; a tunnel keeps it.
    _slot: Box<dyn Any + Send + Sync>,
}

impl<I: AsyncRead + AsyncWrite + Unpin> Stream<I> {
    pub(crate) fn new(
        io: I,
        scanner: Scanner,
        exchange: Arc<Exchange>,
        timeouts: ClientTimeouts,
        refusals: Refusals,
        (slot, head_slot): (impl Any + Send + Sync, HeadSlot),
    ) -> Self {
        Self {
            io,
            scanner,
            exchange,
            held: Vec::new(),
            passed: 0,
            head_slot,
            answered: 0,
            read_timer: ReadTimer::new(timeouts),
            taking: Allowance::writing(timeouts.rate, timeouts.write),
            closing: None,
            refusals,
            _slot: Box::new(slot),
        }
    }

    /// Reads until the first bytes show the protocol. A connection that ends, idles or is refused before that counts
    /// as HTTP/1, whose server then finds the same.
    pub(crate) async fn protocol(&mut self) -> io::Result<Protocol> {
        poll_fn(|context| {
            while self.scanner.protocol().is_none() {
                if self.poll_time(context).is_ready() || !ready!(self.poll_hold(context))? {
                    return Poll::Ready(Ok(Protocol::Http1));
                }
            }
            Poll::Ready(Ok(self.scanner.protocol().unwrap_or(Protocol::Http1)))
        })
        .await
    }

    /// Reads more into the buffer and scans it; `false` at the end.
    fn poll_hold(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let note_input = self.held.len();
        self.held.resize(note_input + READ_BYTES, 0);
        let mut buffer = ReadBuf::new(&mut self.held[note_input..]);
        let read = Pin::new(&mut self.io).poll_read(context, &mut buffer);
        let count = buffer.filled().len();
        self.held.truncate(note_input + count);
        ready!(read)?;
        self.scan_held();
        self.count_held();
        Poll::Ready(Ok(count > 0))
    }

    /// Reserves memory for the buffer.
    fn count_held(&mut self) {
        if self.head_slot.resize(self.held.len()).is_err() {
            self.scanner.refuse(MessageRefusal::Busy);
        }
    }

    fn scan_held(&mut self) {
        self.passed += self.scanner.scan(&self.held[self.passed..]);
        self.exchange.note_input(!self.scanner.is_amid_message());
    }

    /// Reads directly into the reader's buffer; bytes that must not pass are removed again.
    fn poll_through(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<bool>> {
        let before = buffer.filled().len();
        ready!(poll_read_piece(&mut self.io, context, buffer))?;
        let note_input = &buffer.filled()[before..];
        let count = note_input.len();
        let passed = self.scanner.scan(note_input);
        self.exchange.note_input(!self.scanner.is_amid_message());
        self.held.extend_from_slice(&note_input[passed..]);
        buffer.set_filled(before + passed);
        self.count_held();
        Poll::Ready(Ok(count > 0))
    }

    /// Whether a request was handed on that is not answered yet.
    fn is_busy(&self) -> bool {
        self.scanner.messages() > self.answered
    }

    /// Ready when the client has taken too long between messages, and closing has begun.
    fn poll_time(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.closing.is_some() {
            return Poll::Ready(());
        }
        if self.scanner.is_unscanned() || self.is_busy() {
            return Poll::Pending;
        }
        let messages = self.scanner.messages();
        let wait = match (self.held.is_empty(), messages) {
            (false, _) => Wait::Head,
            (true, 0) => Wait::First,
            (true, _) => Wait::Next,
        };
        ready!(self.read_timer.poll(wait, messages, context));
        if wait == Wait::Head {
            self.refuse(MessageRefusal::HeadTimeout, false);
        } else {
            self.closing = Some(Closing::new(None, "", false));
        }
        Poll::Ready(())
    }

    /// The result of reading after a refusal.
    fn poll_refused(&mut self, refusal: MessageRefusal, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.scanner.is_amid_message() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal)));
        }
        if self.is_busy() {
            // Flushing the last answer wakes this task.
            return Poll::Pending;
        }
        self.refuse(refusal, true);
        self.poll_close(context)
    }

    /// Answers with `refusal` as the last thing on this connection.
    fn refuse(&mut self, refusal: MessageRefusal, is_sending: bool) {
        self.refusals.observer.observe(refusal);
        self.closing = Some(Closing::new(Some(refusal), &self.refusals.prefix, is_sending));
    }

    /// Closes the connection from this side.
    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let is_sending = self.scanner.is_amid_message();
        let closing = self.closing.get_or_insert_with(|| Closing::new(None, "", is_sending));
        let closed = closing.poll(&mut self.io, context);
        if closing.is_listening() {
            return closed;
        }
        self.poll_patiently(closed, context)
    }

    /// Whether an upgrade was decided; pending while nothing else can be done.
    fn poll_decision(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        self.exchange.wake_reader(context.waker());
        match self.exchange.decision() {
            Some(is_granted) => {
                self.scanner.decide(is_granted);
                self.scan_held();
                Poll::Ready(true)
            }
            None if self.scanner.is_amid_message() => Poll::Ready(false),
            None => Poll::Pending,
        }
    }

    fn hand_on(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.passed.min(buffer.remaining());
        buffer.put_slice(&self.held[..count]);
        self.held.drain(..count);
        self.passed -= count;
        if self.held.is_empty() {
            self.held = Vec::new();
        }
        // What is left is less than there was.
        let _ = self.head_slot.resize(self.held.len());
    }

    fn poll_written(
        &mut self,
        written: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.exchange.wrote(bytes);
            self.taking.moved(bytes, true);
        }
        self.poll_patiently(written, context)
    }

    fn poll_patiently<T>(
        &mut self,
        result: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.taking.moved(0, true);
            return result;
        }
        ready!(self.taking.poll_waiting(context, true));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client reads too slowly")))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<I> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if this.closing.is_some() {
                return this.poll_close(context);
            }
            if this.passed > 0 {
                this.hand_on(buffer);
                return Poll::Ready(Ok(()));
            }
            if let Some(refusal) = this.scanner.refusal() {
                return this.poll_refused(refusal, context);
            }
            if this.scanner.is_undecided() && ready!(this.poll_decision(context)) {
                continue;
            }
            let before = buffer.filled().len();
            let read = if this.held.is_empty() {
                this.poll_through(context, buffer)
            } else {
                this.poll_hold(context)
            };
            match read {
                Poll::Ready(Ok(true)) if buffer.filled().len() > before => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(true)) => {}
                Poll::Ready(result) => return Poll::Ready(result.map(|_| ())),
                Poll::Pending => ready!(this.poll_time(context)),
            }
        }
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<I> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(context, bytes);
        this.poll_written(written, context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(context, bytes);
        this.poll_written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.io).poll_flush(context);
        ready!(this.poll_patiently(flushed, context))?;
        // The library flushes when it has nothing more to write, and reads again only when it is woken. This is the
        // moment for what waits until the responses were sent, and for the timer of the next message.
        this.answered = this.exchange.finished();
        let is_waiting = this.scanner.refusal().is_some() && !this.is_busy();
        if is_waiting || this.poll_time(context).is_ready() {
            context.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    /// Closes. If the client is still sending, reads on for a moment: closing with unread bytes would make the system
    /// discard what was just sent.
    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_close(context)
    }
}
