//! State that both sides of a connection share: answered requests, bytes written, whether an upgrade was granted, and
//! whether the input ended between messages.

use futures_util::task::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::task::Waker;

const OPEN: u8 = 0;
const GRANTED: u8 = 1;
const DECLINED: u8 = 2;

/// Shared by a connection's stream and the service that answers on it.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    begun: AtomicU64,
    finished: AtomicU64,
    written: AtomicU64,
    is_whole: AtomicBool,
    decision: AtomicU8,
    reader: AtomicWaker,
}

impl Exchange {
    /// Counts a running request, until the result is dropped.
    pub(crate) fn begin(self: &Arc<Self>) -> Running {
        self.begun.fetch_add(1, Ordering::AcqRel);
        Running(Arc::clone(self))
    }

    /// How many requests were begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Acquire)
    }

    /// How many requests were answered completely, or abandoned.
    pub(crate) fn finished(&self) -> u64 {
        self.finished.load(Ordering::Acquire)
    }

    /// That many bytes more went to the client.
    pub(crate) fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// How many bytes went to the client.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether the input so far ends with a complete message.
    pub(super) fn note_input(&self, is_whole: bool) {
        self.is_whole.store(is_whole, Ordering::Release);
    }

    /// Whether the request that begins is already complete. Only for HTTP/1.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Acquire)
    }

    /// Decides whether a request for an upgrade gets it.
    pub(crate) fn decide(&self, is_granted: bool) {
        self.decision.store(if is_granted { GRANTED } else { DECLINED }, Ordering::Release);
        self.reader.wake();
    }

    /// The decision, returned once.
    pub(super) fn decision(&self) -> Option<bool> {
        match self.decision.swap(OPEN, Ordering::AcqRel) {
            GRANTED => Some(true),
            DECLINED => Some(false),
            _ => None,
        }
    }

    /// Wakes the reading side at the next decision.
    pub(super) fn wake_reader(&self, waker: &Waker) {
        self.reader.register(waker);
    }
}

/// One running request.
#[derive(Debug)]
pub(crate) struct Running(Arc<Exchange>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::AcqRel);
    }
}
