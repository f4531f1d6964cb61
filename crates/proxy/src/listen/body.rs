//! A request's body as it comes from a client, within time limits. Time counts only while somebody waits for the
//! client: a slow service is not the client's fault.

use super::requests::Slot;
use crate::wire::{Allowance, MessageRefusal};
use bytes::Bytes;
use http::StatusCode;
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use semel_http::{Malformed, TooSlow};
use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

/// A body that ends with an error if its client sends too little for too long, or breaks a rule of HTTP.
#[derive(Debug)]
pub struct Body {
    incoming: Incoming,
    allowance: Allowance,
    has_length: bool,
    has_ended: bool,
    /// None if the request was refused before it got a slot.
    slot: Option<Slot>,
    fate: Arc<BodyState>,
}

/// What the request and the reader of its body share.
#[derive(Debug, Default)]
struct BodyState {
    fault: OnceLock<MessageRefusal>,
    is_answered: AtomicBool,
}

/// The listener's view of a body, wherever the body is.
pub struct BodyWatch(Arc<BodyState>);

impl BodyWatch {
    /// What the client gets instead of a response with `status`: the service failed because the body broke, and that is the
    /// client's fault.
    pub fn refusal_instead_of(&self, status: StatusCode) -> Option<MessageRefusal> {
        self.0.fault.get().copied().filter(|_| status.is_server_error())
    }

    /// The response has begun. The rest of a body of unknown length may be a conversation, so only silence counts.
    pub(super) fn answered(&self) {
        self.0.is_answered.store(true, Ordering::Relaxed);
    }
}

impl Body {
    pub(super) fn new(incoming: Incoming, allowance: Allowance) -> Self {
        let has_length = incoming.size_hint().exact().is_some();
        Self { incoming, allowance, has_length, has_ended: false, slot: None, fate: Arc::default() }
    }

    /// Keeps the request from being ended when its body is complete.
    pub(super) fn within(&mut self, slot: Slot) {
        self.slot = Some(slot);
    }

    /// What is known of it after it was handed on.
    pub fn watch(&self) -> BodyWatch {
        BodyWatch(Arc::clone(&self.fate))
    }

    fn end(&mut self, fault: MessageRefusal) {
        self.has_ended = true;
        self.fate.fault.get_or_init(|| fault);
    }

    /// A conversation may pause.
    fn rate_counts(&self) -> bool {
        self.has_length || !self.fate.is_answered.load(Ordering::Relaxed)
    }

    /// Nothing more comes. An error if the request was ended before that, to make room for another.
    fn complete(&mut self) -> Result<(), semel_http::BoxError> {
        self.has_ended = true;
        match self.slot.take() {
            Some(slot) if !slot.stay() => {
                self.end(MessageRefusal::Busy);
                Err(TooSlow.into())
            }
            _ => Ok(()),
        }
    }
}

/// What the scanner refused, if that is why the body cannot be read.
fn refused(error: &(dyn Error + 'static)) -> Option<MessageRefusal> {
    let mut next = Some(error);
    while let Some(error) = next {
        // An I/O error is not among its own sources.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            return inner.downcast_ref().copied();
        }
        next = error.source();
    }
    None
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = semel_http::BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = self.get_mut();
        if this.has_ended {
            return Poll::Ready(None);
        }
        let rate_counts = this.rate_counts();
        let Poll::Ready(frame) = Pin::new(&mut this.incoming).poll_frame(context) else {
            ready!(this.allowance.poll_waiting(context, rate_counts));
            this.end(MessageRefusal::BodyTimeout);
            return Poll::Ready(Some(Err(TooSlow.into())));
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                this.allowance.moved(frame.data_ref().map_or(0, Bytes::len), rate_counts);
                if this.incoming.is_end_stream()
                    && let Err(error) = this.complete()
                {
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                let fault = refused(&error).unwrap_or(MessageRefusal::CutShort);
                this.end(fault);
                Some(Err(Malformed(fault.sentence()).into()))
            }
            None => this.complete().err().map(Err),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
