//! A streamed body with an observer.
//!
//! Frames and the end are reported to a watcher. Frames are never changed or delayed.

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Watches a body. `end` is called at most once, and not if the body is dropped before its end.
pub(crate) trait Watch: Send + Unpin + 'static {
    /// Some bytes pass.
    fn data(&mut self, data: &Bytes);

    /// The body has ended: with these trailers, or with an error.
    fn end(&mut self, end: End<'_>);
}

/// How a body ended.
#[derive(Debug, Clone, Copy)]
pub(crate) enum End<'a> {
    Complete(Option<&'a HeaderMap>),
    Broken,
}

/// A body that is watched.
pub(crate) struct Watched<B, W> {
    body: B,
    watch: W,
    is_over: bool,
}

impl<B: http_body::Body<Data = Bytes>, W: Watch> Watched<B, W> {
    pub(crate) fn new(body: B, watch: W) -> Self {
        let mut watched = Self { body, watch, is_over: false };
        // A body that is already at its end is not polled.
        if watched.body.is_end_stream() {
            watched.over(End::Complete(None));
        }
        watched
    }
}

impl<B, W: Watch> Watched<B, W> {
    fn over(&mut self, end: End<'_>) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.watch.end(end);
        }
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin, W: Watch> http_body::Body for Watched<B, W> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.watch.data(data);
                }
                if frame.is_trailers() || self.body.is_end_stream() {
                    self.over(End::Complete(frame.trailers_ref()));
                }
            }
            Some(Err(_)) => self.over(End::Broken),
            None => self.over(End::Complete(None)),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
