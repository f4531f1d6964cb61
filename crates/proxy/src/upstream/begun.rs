//! Waits for the first bytes of a request's body before the request takes a slot at the upstream.

use bytes::Bytes;
use http::Request;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use semel_http::{BoxError, Form};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waits until the body of `request` has begun. A client that sends only its head must not hold a slot. Not for gRPC,
/// where a client may wait for the service to speak first.
pub(super) async fn wait(request: &mut Request<semel_http::Body>) -> Result<(), BoxError> {
    let is_grpc = Form::of(request.headers()) == Form::Grpc;
    if request.body().is_end_stream() || is_grpc {
        return Ok(());
    }
    let mut rest = std::mem::replace(request.body_mut(), Bytes::new().into());
    let first = rest.frame().await.transpose()?;
    *request.body_mut() = semel_http::Body::live(StartedBody { first, rest });
    Ok(())
}

/// A body whose first frame has arrived.
struct StartedBody {
    first: Option<Frame<Bytes>>,
    rest: semel_http::Body,
}

impl http_body::Body for StartedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.first.take() {
            Some(first) => Poll::Ready(Some(Ok(first))),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().and_then(Frame::data_ref).map_or(0, |data| data.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(first));
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper.saturating_add(first));
        }
        hint
    }
}
