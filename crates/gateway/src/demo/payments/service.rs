//! The payment service's routes, and the trouble that a request can ask for. A charge is in the ledger before the
//! response is sent.

use super::ledger::{Charge, Ledger, Order};
use super::order::{self, Misread};
use super::receipt;
use super::trouble::Trouble;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

const PAGE: &str = include_str!("page.html");
const BODY_BYTES_MAX: usize = 64 * 1024;
const OPERATION_ID: HeaderName = HeaderName::from_static("operation-id");

/// How long a slow response takes: longer than an impatient client waits, shorter than a patient one does.
const SLOWNESS: Duration = Duration::from_millis(700);

/// Closes the connection without a response.
#[derive(Debug)]
pub(super) struct Gone;

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("closed without a response, as the request asked")
    }
}

impl std::error::Error for Gone {}

/// The forms in which a charge can be ordered and receipted.
#[derive(Clone, Copy)]
enum Api {
    Own,
    StripeCharge,
    StripeIntent,
}

pub(super) async fn answer(
    ledger: Ledger,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Gone> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    if parts.method == Method::GET || parts.method == Method::HEAD {
        return Ok(shown(&ledger, path, parts.uri.query()));
    }
    let api = match path {
        "/charges" => Api::Own,
        "/v1/charges" => Api::StripeCharge,
        "/v1/payment_intents" => Api::StripeIntent,
        _ => return Ok(not_found()),
    };
    if parts.method != Method::POST {
        return Ok(json(
            StatusCode::METHOD_NOT_ALLOWED,
            &json!({ "error": "only GET and POST are supported" }),
        ));
    }
    // A body that is cut off or too long is not an order, and nobody waits for the response.
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(|_| Gone)?.to_bytes();
    charge(&ledger, api, &parts, &body).await
}

async fn charge(
    ledger: &Ledger,
    api: Api,
    parts: &Parts,
    body: &[u8],
) -> Result<Response<Full<Bytes>>, Gone> {
    let (order, trouble) = match read(api, parts, body) {
        Ok(read) => read,
        Err(misread) => return Ok(refused(api, &misread)),
    };
    match trouble {
        Some(Trouble::Crash) => return Err(Gone),
        Some(Trouble::Busy) => {
            let mut response =
                json(StatusCode::SERVICE_UNAVAILABLE, &json!({ "error": "busy; nothing was charged" }));
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
            return Ok(response);
        }
        Some(Trouble::Slow | Trouble::HangUp) | None => {}
    }
    let operation_id = parts.headers.get(OPERATION_ID).and_then(|value| value.to_str().ok());
    let charge = ledger.enter(order, operation_id.map(str::to_owned));
    match trouble {
        Some(Trouble::HangUp) => return Err(Gone),
        Some(Trouble::Slow) => tokio::time::sleep(SLOWNESS).await,
        _ => {}
    }
    Ok(receipted(api, &charge))
}

fn read(api: Api, parts: &Parts, body: &[u8]) -> Result<(Order, Option<Trouble>), Misread> {
    let by_header = Trouble::of_headers(&parts.headers);
    let media = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    if matches!(api, Api::Own) && media.starts_with(b"application/json") {
        return Ok((order::from_json(body)?, by_header));
    }
    let (order, by_method) = order::from_form(body)?;
    Ok((order, by_header.or(by_method)))
}

fn receipted(api: Api, charge: &Charge) -> Response<Full<Bytes>> {
    match api {
        Api::Own => {
            let mut response = json(StatusCode::CREATED, &receipt::of(charge));
            let location = HeaderValue::from_str(&format!("/charges/{}", charge.id));
            response.headers_mut().extend(location.ok().map(|location| (LOCATION, location)));
            response
        }
        Api::StripeCharge => json(StatusCode::OK, &receipt::stripe_charge(charge)),
        Api::StripeIntent => json(StatusCode::OK, &receipt::stripe_intent(charge)),
    }
}

fn refused(api: Api, misread: &Misread) -> Response<Full<Bytes>> {
    let problem = match api {
        Api::Own => receipt::misread(misread),
        Api::StripeCharge | Api::StripeIntent => receipt::stripe_misread(misread),
    };
    json(StatusCode::BAD_REQUEST, &problem)
}

/// Responses to GET, which change nothing.
fn shown(ledger: &Ledger, path: &str, query: Option<&str>) -> Response<Full<Bytes>> {
    let charges = ledger.charges();
    let one = |id: &str| charges.iter().find(|charge| charge.id == id);
    let found = match path {
        "/" => return page(),
        "/charges" => {
            let operation_id = query.and_then(|query| query.strip_prefix("operation_id="));
            let is_meant = |charge: &&Charge| {
                operation_id.is_none_or(|operation_id| charge.operation_id.as_deref() == Some(operation_id))
            };
            Some(charges.iter().filter(is_meant).map(receipt::of).collect())
        }
        "/ledger" => return text(StatusCode::OK, summed(&charges)),
        _ => {
            if let Some(id) = path.strip_prefix("/charges/") {
                one(id).map(receipt::of)
            } else if let Some(id) = path.strip_prefix("/v1/charges/") {
                one(id).map(receipt::stripe_charge)
            } else if let Some(id) = path.strip_prefix("/v1/payment_intents/") {
                let meant = charges.iter().find(|charge| receipt::intent_id(&charge.id) == id);
                meant.map(receipt::stripe_intent)
            } else {
                None
            }
        }
    };
    found.map_or_else(not_found, |found| json(StatusCode::OK, &found))
}

/// The whole ledger, a line for each charge.
fn summed(charges: &[Charge]) -> String {
    let receipts: Vec<String> = charges.iter().map(|charge| format!("\n  {}", receipt::of(charge))).collect();
    format!("{{\"count\": {}, \"charges\": [{}\n]}}", charges.len(), receipts.join(","))
}

fn page() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(PAGE.as_bytes())));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

fn not_found() -> Response<Full<Bytes>> {
    json(StatusCode::NOT_FOUND, &json!({ "error": "not found" }))
}

fn json(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    text(status, value.to_string())
}

fn text(status: StatusCode, mut text: String) -> Response<Full<Bytes>> {
    // For the reader at the terminal.
    text.push('\n');
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}
