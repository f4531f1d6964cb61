//! From an inner service's response to how the attempt ended.
//!
//! What lives here: reading a response, and what of it is kept. What must never: a response that reaches its client before
//! its outcome was handed to the engine.

use crate::body::{self, Body, BoxError, Read, Whole};
use crate::clean::Clean;
use crate::failure::Failure;
use crate::problem::{GRPC_STATUS, is_grpc};
use crate::terms::Terms;
use crate::{names, steer};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use http::response::Parts;
use http::{HeaderMap, Method, Response, StatusCode};
use semel::Ended;
use semel::core::classify::{Answer, Ending};
use semel::core::outcome::{Fields, Outcome, Status};

/// What the call that ran the attempt gives its client, besides what was stored.
pub(crate) enum Local {
    Response(Box<Response<Body>>),
    Failed(Failure),
}

/// Reads a response, as far as it is to be kept.
pub(crate) async fn ended<R>(response: Response<R>, method: &Method, terms: &Terms) -> Ended<Local>
where
    R: http_body::Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (mut parts, body) = response.into_parts();
    let (ending, body) = if is_endless(&parts.headers) {
        (endless(&parts, terms), Body::cleaned(body, Clean::All))
    } else {
        match body::read(body, terms.response_bytes_max).await {
            Read::Whole(mut whole) => {
                let ending = whole_ending(&parts, &whole, method, terms);
                whole.clean();
                (ending, Body::whole(whole))
            }
            Read::Over(body) => (unkept(&parts, terms), body),
            Read::Broken => return failed(Failure::Broken),
        }
    };
    names::strip(&mut parts.headers);
    Ended { ending, local: Local::Response(Box::new(Response::from_parts(parts, body))) }
}

/// A response to HEAD has the length of its body and not the body.
pub(crate) fn to_head(response: &mut Response<Body>) {
    let Some(data) = response.body().data().filter(|data| !data.is_empty()) else { return };
    response.headers_mut().entry(CONTENT_LENGTH).or_insert_with(|| data.len().into());
    *response.body_mut() = Body::from(Bytes::new());
}

/// There is no response to the end of it, whose effect is in doubt.
pub(crate) fn failed(failure: Failure) -> Ended<Local> {
    Ended { ending: Ending::InDoubt, local: Local::Failed(failure) }
}

/// A response that was read to its end.
fn whole_ending(parts: &Parts, whole: &Whole, method: &Method, terms: &Terms) -> Ending {
    let trailers = whole.trailers.as_ref();
    let Some(status) = status(parts, Some(whole)) else { return Ending::InDoubt };
    let bodiless = *method == Method::HEAD || parts.status == StatusCode::NOT_MODIFIED;
    let outcome = Outcome {
        status,
        headers: terms.kept.of(&parts.headers, whole.data.len(), bodiless).into_iter().collect(),
        body: semel::core::outcome::Body::Kept(whole.data.clone()),
        trailers: trailers
            .map_or_else(Fields::default, |trailers| terms.kept.of(trailers, 0, true).into_iter().collect()),
    };
    ending(parts, trailers, status, terms, outcome)
}

/// A response that is too long to be kept. Of gRPC its end would have told how it ended; without a word of the service's
/// own that is in doubt.
fn unkept(parts: &Parts, terms: &Terms) -> Ending {
    match status(parts, None) {
        Some(status) => ending(parts, None, status, terms, Outcome::not_retained(status)),
        None => Ending::InDoubt,
    }
}

/// A stream that need not end: that it began is all there is to tell.
fn endless(parts: &Parts, terms: &Terms) -> Ending {
    let status = Status::Http(parts.status.as_u16());
    if !parts.status.is_success() && steer::of(parts, None).is_none() {
        return Ending::InDoubt;
    }
    ending(parts, None, status, terms, Outcome::not_retained(status))
}

fn ending(
    parts: &Parts,
    trailers: Option<&HeaderMap>,
    status: Status,
    terms: &Terms,
    outcome: Outcome,
) -> Ending {
    let retry_after = parts.headers.contains_key(RETRY_AFTER);
    let answer = Answer { status, retry_after, steer: steer::of(parts, trailers) };
    Ending::of(terms.policy.class, &answer, &terms.rules, outcome)
}

/// The status of a response; of gRPC where it says how it ended, which a broken one does not. The head's counts only where
/// nothing follows it, neither message nor trailers. Without a status the service's own word about its effect is enough.
fn status(parts: &Parts, whole: Option<&Whole>) -> Option<Status> {
    // Any other status than 200 is that of something that stands in between.
    if !is_grpc(&parts.headers) || parts.status != StatusCode::OK {
        return Some(Status::Http(parts.status.as_u16()));
    }
    let trailers = whole.and_then(|whole| whole.trailers.as_ref());
    let said = match whole {
        Some(whole) if whole.data.is_empty() && trailers.is_none() => parts.headers.get(GRPC_STATUS),
        _ => trailers.and_then(|trailers| trailers.get(GRPC_STATUS)),
    };
    let said = said.and_then(|said| said.to_str().ok()?.parse().ok()).map(Status::Grpc);
    said.or_else(|| steer::of(parts, trailers).map(|_| Status::Grpc(GRPC_UNKNOWN)))
}

const GRPC_UNKNOWN: u32 = 2;

fn is_endless(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_TYPE).iter().any(|value| {
        let kind = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        [&b"text/event-stream"[..], b"multipart/x-mixed-replace"]
            .iter()
            .any(|endless| kind.eq_ignore_ascii_case(endless))
    })
}
