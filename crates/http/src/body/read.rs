//! Reads bodies completely, within a limit and the memory that there is.
//!
//! Bytes are never changed.

use super::{Body, BoxError, Clean, CompleteBody};
use crate::memory::{self, BodyMemory, BudgetExhausted, ResponseMemory, WaitingBytes};
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::BodyExt;
use std::sync::Arc;

/// The result of reading a body.
pub(crate) enum Read {
    Complete(CompleteBody),
    /// It is longer than allowed.
    Over,
    /// It failed, did not end in time, or got no memory.
    Broken(BoxError),
}

/// The result of reading a response.
pub(crate) enum ReadResponse {
    /// Complete, with memory for a second copy, which is stored.
    Complete(CompleteBody, ResponseMemory),
    /// It is too long to store, or got no memory. The body is complete, except for trailers that only Semel may send.
    Over(Body, UnstoredReason),
    /// It failed.
    Broken(BoxError),
}

/// Why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnstoredReason {
    /// It is too long to store, or may be endless.
    TooLong,
    /// There was no memory for it.
    NoMemory,
}

/// Reads `body` completely, unless it is longer than `max` bytes, or does not fit in `memory`.
pub(crate) async fn read<B>(body: B, max: usize, mut memory: Option<BodyMemory>) -> Read
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    let mut received = Received::default();
    let mut trailers: Option<HeaderMap> = None;
    loop {
        let frame = match &memory {
            None => body.frame().await,
            Some(memory) => tokio::select! {
                biased;
                () = memory.revoked() => return Read::Broken(BudgetExhausted.into()),
                frame = body.frame() => frame,
            },
        };
        let Some(frame) = frame.map(|frame| frame.map_err(Into::into)) else { break };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return Read::Broken(error),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                if let Some(memory) = &mut memory
                    && let Err(exhausted) = memory.grow_to(received.len() + data.len()).await
                {
                    return Read::Broken(exhausted.into());
                }
                received.push(data, 0);
                if received.len() > max {
                    return Read::Over;
                }
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        // If its length is known, do not wait for its end.
        if body.is_end_stream() {
            break;
        }
    }
    if let Some(Err(exhausted)) = memory.as_ref().map(BodyMemory::keep) {
        return Read::Broken(exhausted.into());
    }
    Read::Complete(CompleteBody { data: received.into_bytes(), trailers, memory: memory.map(Arc::new) })
}

/// Reads the `body` of a response completely, unless it is longer than `max` bytes, or there is no memory for it.
pub(crate) async fn read_response<B>(body: B, max: usize, mut memory: ResponseMemory) -> ReadResponse
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Box::pin(body);
    // If its length is known, reserve memory for all of it in one step: a partial reservation would block memory
    // while it waits.
    let announced = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let announced = announced.filter(|bytes| *bytes <= max).unwrap_or_default();
    let (mut received, mut capacity, mut timer) = (Received::default(), 0, memory.growth_timer());
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await.map(|frame| frame.map_err(Into::into)) {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => return ReadResponse::Broken(error),
        };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => {
                let total = received.len() + data.len();
                if total > capacity {
                    let is_last = body.is_end_stream();
                    capacity = if is_last { total } else { announced.max((2 * total).min(max)).max(total) };
                }
                let why = if total > max {
                    Some(UnstoredReason::TooLong)
                } else if memory.grow_to(memory_for(capacity), &mut timer).await.is_err() {
                    Some(UnstoredReason::NoMemory)
                } else {
                    None
                };
                if let Some(why) = why {
                    memory.shrink_to(received.len());
                    let held = WaitingBytes::counted([received.into_bytes(), data], memory, false);
                    return ReadResponse::Over(Body::resumed(held, body).cleaned(Clean::All), why);
                }
                received.push(data, capacity);
            }
            Err(Ok(more)) => trailers.get_or_insert_default().extend(more),
            Err(Err(_)) => {}
        }
        if body.is_end_stream() {
            break;
        }
    }
    ReadResponse::Complete(CompleteBody { data: received.into_bytes(), trailers, memory: None }, memory)
}

/// The memory for a response of this length: twice its length, because of the stored copy, beyond what every request
/// has.
fn memory_for(bytes: usize) -> usize {
    if bytes <= memory::FIRST_BYTES { bytes } else { bytes.saturating_mul(2) }
}

/// The bytes so far. A body of one piece is not copied.
#[derive(Default)]
struct Received {
    first: Bytes,
    joined: BytesMut,
}

impl Received {
    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    /// `capacity`: the expected length, if known.
    fn push(&mut self, data: Bytes, capacity: usize) {
        if self.len() == 0 {
            self.first = data;
            return;
        }
        self.joined.reserve(capacity.saturating_sub(self.joined.len()).max(data.len()));
        if self.joined.is_empty() {
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&data);
    }

    fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}
