//! Closes a connection: writes the last bytes, then reads on for a bounded time so that the client receives them.

use super::refusal::MessageRefusal;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// How long to keep reading from a client that is still sending.
const LISTEN: Duration = Duration::from_secs(2);

/// The progress of closing.
#[derive(Debug)]
pub(super) struct Closing {
    response: Vec<u8>,
    written: usize,
    stage: Stage,
    is_sending: bool,
}

#[derive(Debug)]
enum Stage {
    Writing,
    Shutting,
    Listening(Pin<Box<Sleep>>),
    Closed,
}

impl Closing {
    pub(super) fn new(refusal: Option<MessageRefusal>, prefix: &str, is_sending: bool) -> Self {
        let is_sending = is_sending || refusal.is_some();
        let response = refusal.map(|refusal| refusal.response(prefix)).unwrap_or_default();
        Self { response, written: 0, stage: Stage::Writing, is_sending }
    }

    pub(super) fn is_listening(&self) -> bool {
        matches!(self.stage, Stage::Listening(_))
    }

    pub(super) fn poll<I: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        io: &mut I,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match &mut self.stage {
                Stage::Writing if self.written < self.response.len() => {
                    let written =
                        ready!(Pin::new(&mut *io).poll_write(context, &self.response[self.written..]))?;
                    if written == 0 {
                        return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                    }
                    self.written += written;
                }
                Stage::Writing => {
                    ready!(Pin::new(&mut *io).poll_flush(context))?;
                    self.stage = Stage::Shutting;
                }
                Stage::Shutting => {
                    ready!(Pin::new(&mut *io).poll_shutdown(context))?;
                    self.stage = if self.is_sending {
                        Stage::Listening(Box::pin(sleep(LISTEN)))
                    } else {
                        Stage::Closed
                    };
                }
                Stage::Listening(timer) => {
                    if timer.as_mut().poll(context).is_ready() {
                        self.stage = Stage::Closed;
                        continue;
                    }
                    let mut scrap = [0; 4096];
                    let mut buffer = ReadBuf::new(&mut scrap);
                    let read = ready!(Pin::new(&mut *io).poll_read(context, &mut buffer));
                    if read.is_err() || buffer.filled().is_empty() {
                        self.stage = Stage::Closed;
                    }
                }
                Stage::Closed => return Poll::Ready(Ok(())),
            }
        }
    }
}
