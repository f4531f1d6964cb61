//! The program's output: passed on as it comes, and its end kept.
//!
//! Another process may hold the pipe after the program's end. So the pipe's end is not waited for.

use super::tail::Tail;
use std::io::{self, Write};
use std::os::fd::{AsFd as _, OwnedFd};
use std::thread;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

const CHUNK_BYTES: usize = 64 << 10;
/// How many chunks may wait for a slow reader before the program has to wait.
const CHUNKS_MAX: usize = 8;
/// The most that is read after the program's end: as much as the largest pipe can hold.
const REST_BYTES_MAX: usize = 1 << 20;

/// A stream that is being passed on.
pub(super) struct Output {
    reader: JoinHandle<(Tail, Vec<u8>)>,
    chunks: mpsc::Sender<Vec<u8>>,
    written: oneshot::Receiver<()>,
}

/// A stream of a program that has ended.
pub(in crate::cli::once) struct EndedOutput {
    pub(in crate::cli::once) tail: Tail,
    rest: Vec<u8>,
    chunks: mpsc::Sender<Vec<u8>>,
    written: oneshot::Receiver<()>,
}

impl Output {
    /// Passes `pipe` on to `sink` until `has_ended`, and keeps its last `keep` bytes.
    pub(super) fn begin(
        pipe: OwnedFd,
        keep: usize,
        has_ended: watch::Receiver<bool>,
        sink: impl Write + Send + 'static,
    ) -> io::Result<Self> {
        let pipe = Receiver::from_owned_fd(pipe)?;
        let (chunks, to_write) = mpsc::channel(CHUNKS_MAX);
        let (done, written) = oneshot::channel();
        // Its writes may block for any time.
        thread::Builder::new().name("output".to_owned()).spawn(move || {
            write_all(to_write, sink);
            let _ = done.send(());
        })?;
        let reader = tokio::spawn(read(pipe, Tail::new(keep), chunks.clone(), has_ended));
        Ok(Self { reader, chunks, written })
    }

    /// After the program's end: what was read.
    pub(super) async fn end(self) -> EndedOutput {
        let Self { reader, chunks, written } = self;
        let (tail, rest) = reader.await.unwrap_or_else(|_| (Tail::new(0), Vec::new()));
        EndedOutput { tail, rest, chunks, written }
    }
}

impl EndedOutput {
    /// Waits until all of it is written.
    pub(in crate::cli::once) async fn pass_on(self) {
        // The thread reads until the channel is closed.
        drop(self.chunks.send(self.rest).await);
        drop(self.chunks);
        drop(self.written.await);
    }
}

/// Reads until the program's end; returns what was not passed on by then.
async fn read(
    pipe: Receiver,
    mut tail: Tail,
    chunks: mpsc::Sender<Vec<u8>>,
    mut has_ended: watch::Receiver<bool>,
) -> (Tail, Vec<u8>) {
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        // A slow reader of our output slows the program down.
        let permit = tokio::select! {
            permit = chunks.reserve() => permit,
            _ = has_ended.wait_for(|ended| *ended) => break,
        };
        tokio::select! {
            biased;
            ready = pipe.readable() => if ready.is_err() { break },
            _ = has_ended.wait_for(|ended| *ended) => break,
        }
        match pipe.try_read(&mut buffer) {
            Ok(0) => return (tail, Vec::new()),
            Ok(count) => {
                tail.push(&buffer[..count]);
                if let Ok(permit) = permit {
                    permit.send(buffer[..count].to_vec());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    // Everything that the program wrote is in the pipe by now. The runtime may not have noticed, the kernel has.
    let mut rest = Vec::new();
    while let Ok(count @ 1..) = rustix::io::read(pipe.as_fd(), &mut buffer[..]) {
        tail.push(&buffer[..count]);
        rest.extend_from_slice(&buffer[..count]);
        if rest.len() >= REST_BYTES_MAX {
            break;
        }
    }
    (tail, rest)
}

/// Writes chunk by chunk. If nobody reads any more, the program still runs to its end.
fn write_all(mut chunks: mpsc::Receiver<Vec<u8>>, mut sink: impl Write) {
    let mut is_open = true;
    while let Some(chunk) = chunks.blocking_recv() {
        is_open = is_open && sink.write_all(&chunk).and_then(|()| sink.flush()).is_ok();
    }
}
