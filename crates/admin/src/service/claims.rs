//! Claims for workers over HTTP: one attempt per command. A claim is granted only if it is known to be stored.

use super::Shared;
use super::answer::{StoredResponse, one_of};
use super::gate::Principal;
use super::input::{Json, whole_number};
use super::output::json;
use super::problem::{Document, Problem};
use super::view::ApiState;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use hex::FromHex as _;
use http::StatusCode;
use semel::archive::rfc3339;
use semel::core::fingerprint::{self, ErrorKind, Fingerprint};
use semel::core::key::Key;
use semel::core::policy::{self, Policy, PolicyError, PolicySettings};
use semel::core::scope::{Caller, Identity, Operation, Scope};
use semel::{Claimed, Error, ExecuteResponse, Intent, RequestOutcome, payload};
use semel_http::Code;
use semel_text::printable::is_all_printable;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::admin::claims";
/// How many claims wait at once, of the 1,024 requests that the address serves at once: renewals, outcomes and health
/// checks must not wait for those that wait.
pub(super) const WAITING_MAX: usize = 512;
/// The longest that a claim waits for a running duplicate.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// The shortest and the longest lease: it must be possible to renew it over a network, and a crash blocks a key for
/// this long.
const LEASE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_hours(1));
/// The longest of all other durations.
const SPAN_MAX: Duration = Duration::from_hours(366 * 24);
/// The maximum length of the name of an operation, a caller or a tenant.
const NAME_MAX: usize = 255;

/// A method that no request can have, so that a claim never looks like a request to the gateway, and no route's probe
/// is sent for it.
pub(super) const CLAIM: &str = "(claim)";

/// Whether a record of this operation belongs to a worker.
pub fn is_claim(operation: &str) -> bool {
    operation.strip_prefix(CLAIM).is_some_and(|rest| rest.starts_with(' '))
}

/// Where the effect happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Class {
    /// In a system that recognises repeats by the operation ID: an attempt in doubt runs again.
    Downstream,
    /// Anywhere else: at most once; an attempt in doubt becomes unknown.
    External,
}

/// How an attempt begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum Mode {
    /// The effect may begin at once.
    #[default]
    Processing,
    /// There is work to do before: the effect begins after a renewal with `begin`, and a crash before that leaves no
    /// doubt.
    Reserved,
}

/// What a worker wants to do once. It has exactly one of `fingerprint`, `payload` and `payloadBase64`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
#[schema(as = Claim)]
pub(super) struct ClaimRequest {
    /// The operation, without control and format characters. The same key under another operation is another command.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    operation: String,
    /// The key of this command, the same on every retry.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    key: String,
    /// The caller, without control and format characters. Claims without a caller share their keys.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    caller: Option<String>,
    /// The tenant, without control and format characters.
    #[schema(min_length = 1, max_length = 255, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    tenant: Option<String>,
    /// The worker's own hash of everything that makes two commands the same.
    #[schema(pattern = "^[0-9a-fA-F]{64}$")]
    fingerprint: Option<String>,
    /// What must be equal for two commands to be the same, compared as JSON: the order of members does not matter, and
    /// numbers are compared by value.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// The same as bytes.
    payload_base64: Option<String>,
    /// The old name of `payloadBase64`, which is still accepted.
    #[serde(rename = "payload_base64")]
    #[schema(deprecated)]
    payload_base64_old: Option<String>,
    /// Where the effect happens; `external` by default.
    #[schema(value_type = Option<Class>)]
    class: Option<String>,
    /// How the attempt begins; `processing` by default.
    mode: Option<Mode>,
    /// How long the claim is valid without renewal.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(minimum = 500, maximum = 3_600_000)]
    lease_ms: Option<u64>,
    /// How long the effect can still be in flight after it was sent. Until the lease and this time are over, "it did
    /// not happen" does not count.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
    work_deadline_ms: Option<u64>,
    /// How long the outcome is replayed.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
    ttl_ms: Option<u64>,
    /// How long the system of a `downstream` effect remembers an ID.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(minimum = 1, maximum = 31_622_400_000_i64)]
    dedup_window_ms: Option<u64>,
    /// How long to wait for the outcome of a running attempt. While 512 other claims wait, and for a body of more than 256 KiB, the
    /// answer comes at once.
    #[serde(default, deserialize_with = "whole_number")]
    #[schema(minimum = 0, maximum = 60_000)]
    wait_ms: Option<u64>,
}

/// `null` is a payload; a missing field is not.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// The attempt belongs to the worker.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Claimed)]
pub(super) struct ClaimResponse {
    /// Always `claimed`.
    result: &'static str,
    /// The command's operation ID, the same on every attempt: pass it to the system in which the effect happens.
    operation_id: String,
    /// Proves that the attempt is yours. Anybody who knows it can finish the attempt.
    token: String,
    /// The number of the attempt.
    attempt: u32,
    /// Grows with every attempt: a system that remembers the highest one can refuse late attempts.
    fence: u64,
    /// Until when nobody else can take the attempt over. Begin nothing after that.
    lease_expires_at: String,
}

/// The command was done before, with this outcome.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Replayed)]
pub(super) struct ReplayedClaim {
    /// Always `replayed`.
    result: &'static str,
    /// The command's operation ID.
    operation_id: String,
    /// The resulting state. `FAILED_NOT_REPLAYABLE` only if this claim waited: the next one is the next attempt.
    state: ApiState,
    /// Until when it is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// The stored response.
    response: StoredResponse,
}

/// Claims an attempt, or returns the stored outcome.
#[utoipa::path(post, path = "/v1/claims", operation_id = "claim", tag = "claims", request_body = ClaimRequest, responses(
    (status = 200, description = "It was done before", body = ReplayedClaim),
    (status = 201, description = "The attempt is yours", body = ClaimResponse),
    (status = 409, description = "In progress (Retry-After), outcome unknown, or attempts used up", body = Document, content_type = "application/problem+json"),
    (status = 410, description = "It has had its outcome, which expired or was erased", body = Document, content_type = "application/problem+json"),
    (status = 422, description = "The key belongs to another payload", body = Document, content_type = "application/problem+json"),
    (status = 429, description = "Too often, or too many new keys", body = Document, content_type = "application/problem+json"),
    (status = 503, description = "The store did not answer: nothing may be begun", body = Document, content_type = "application/problem+json"),
))]
pub(super) async fn claim(
    State(shared): State<Arc<Shared>>,
    Extension(who): Extension<Principal>,
    Json(request, memory): Json<ClaimRequest>,
) -> Result<Response, Problem> {
    let wait = span("waitMs", request.wait_ms, (Duration::ZERO, WAIT_MAX))?;
    let policy = terms(&shared.options.claims, &request)?;
    let operation = Operation::route(CLAIM, request.operation.clone()).to_string();
    let mut intent = intent(request, policy)?.waiting(wait.unwrap_or_default());
    if !shared.options.tokens.is_empty() {
        intent = intent.claimed_by(who.name);
    }
    let engine = &shared.engine;
    let answer = match engine.claim(&intent).await.map_err(|error| not_run(&error))? {
        Claimed::Leased(lease) => return Ok(json(StatusCode::CREATED, &claim_response(&lease))),
        Claimed::Answered(answer)
            if wait.is_some()
                && memory.is_one_piece()
                && matches!(answer.outcome, RequestOutcome::InProgress { .. }) =>
        {
            match shared.waiting.try_acquire() {
                Ok(_waiting) => {
                    // Others need it to be read at all.
                    drop(memory);
                    engine.attend(&intent).await.map_err(|error| not_run(&error))?
                }
                Err(_) => answer,
            }
        }
        Claimed::Answered(answer) => answer,
    };
    respond(answer, engine.has_reconciler(&operation))
}

fn claim_response(lease: &semel::Lease) -> ClaimResponse {
    ClaimResponse {
        result: "claimed",
        operation_id: lease.operation_id().to_string(),
        token: hex::encode(lease.token().bits().to_be_bytes()),
        attempt: lease.attempt(),
        fence: lease.fence(),
        lease_expires_at: lease.until().map(rfc3339::text).unwrap_or_default(),
    }
}

/// The response to a worker that has nothing to run. `is_asked_about`: whether a reconciler resolves doubts.
fn respond(answer: ExecuteResponse, is_asked_about: bool) -> Result<Response, Problem> {
    let ExecuteResponse { operation_id: id, outcome: respond } = answer;
    let problem = match respond {
        RequestOutcome::Replayed(replayed) => {
            let document = ReplayedClaim {
                result: "replayed",
                operation_id: id.to_string(),
                state: replayed.stored.state.into(),
                expires_at: replayed.stored.expires_at.map(rfc3339::text),
                response: StoredResponse::with_body(&replayed.outcome),
            };
            return Ok(json(StatusCode::OK, &document));
        }
        RequestOutcome::InProgress { retry_after } => {
            let detail = "Another attempt is running. Claim again later, with the same key and payload.";
            semel_http::Problem::new(Code::InProgress, detail).retryable_after(retry_after)
        }
        RequestOutcome::Mismatch => {
            let detail = "The key was used for another payload. Nothing was claimed; another operation \
                needs another key.";
            semel_http::Problem::new(Code::Mismatch, detail)
        }
        RequestOutcome::Expired => {
            let detail = "The key has had its outcome, which expired or was erased. Nothing was claimed; check for the effect before you \
                repeat it with another key.";
            semel_http::Problem::new(Code::Expired, detail)
        }
        RequestOutcome::ClockNotTrusted { retry_after } => {
            let detail = "The clock is not trusted at the moment. Nothing was claimed, so begin nothing; claim again later, with \
                          the same key.";
            semel_http::Problem::new(Code::ClockNotTrusted, detail).retryable_after(retry_after)
        }
        RequestOutcome::AttemptsExhausted => {
            let detail = "All allowed attempts were made, and none took effect. Nothing was claimed.";
            semel_http::Problem::new(Code::AttemptsExhausted, detail)
        }
        RequestOutcome::Unknown { repeatable } => unknown(repeatable || is_asked_about),
        // No reconciler is asked about unreadable records. A claim runs nothing by itself.
        RequestOutcome::Unreadable | RequestOutcome::Ran(_) => unknown(false),
    };
    Err(problem.about(id).into())
}

fn unknown(doubt_ends: bool) -> semel_http::Problem {
    let detail = "It is not known whether an earlier attempt took effect. Nothing was claimed; somebody has \
        to find out and resolve the record.";
    semel_http::Problem::new(Code::Unknown, detail).retryable(doubt_ends)
}

/// Why there is no answer.
fn not_run(error: &Error) -> Problem {
    match error {
        Error::Fingerprint(error) => unfingerprintable(error).into(),
        Error::Policy(error) => {
            Problem::invalid(format!("The settings of the claim are not valid: {error}."))
        }
        Error::Quota(exceeded) => {
            let detail = "Too many new keys. Nothing was claimed; claim again later, with the same key.";
            semel_http::Problem::new(Code::Quota, detail).retryable_after(exceeded.retry_after).into()
        }
        Error::NoSealingKey | Error::LocalClass | Error::LocalRecord(_) => {
            tracing::error!(target: LOG, %error, "this gateway's configuration does not allow claims");
            let detail = "Nothing was claimed: this gateway's configuration does not allow it. Do not start \
                the work; the gateway's operators have to fix it.";
            semel_http::Problem::new(Code::StoreUnavailable, detail).with_status(500).into()
        }
        error => {
            tracing::warn!(target: LOG, %error, "nothing could be claimed");
            let detail = "It cannot be checked now whether this was done before. Nothing was claimed. Do \
                not start the work; claim again later, with the same key.";
            let problem = semel_http::Problem::new(Code::StoreUnavailable, detail);
            problem.retryable_after(Duration::from_secs(1)).into()
        }
    }
}

fn unfingerprintable(error: &fingerprint::Error) -> semel_http::Problem {
    let code = match error.kind() {
        ErrorKind::TooLarge => Code::TooLarge,
        _ => Code::Unfingerprintable,
    };
    let detail =
        format!("Nothing was claimed, because the payload could not be compared with a retry's. {error}");
    semel_http::Problem::new(code, detail)
}

fn intent(request: ClaimRequest, policy: Policy) -> Result<Intent, Problem> {
    named("operation", &request.operation)?;
    // Such records raise no alarm.
    if semel_http::is_shadow(&request.operation) {
        return Err(Problem::invalid(
            "operation starts like the records of shadow mode; choose another name.",
        ));
    }
    let key = Key::from_source(&request.key).map_err(|error| {
        Problem::from(semel_http::Problem::new(Code::Invalid, format!("Nothing was claimed. {error}")))
    })?;
    let caller = match request.caller {
        Some(caller) => {
            named("caller", &caller)?;
            Identity::header(caller).into()
        }
        None => Caller::Anonymous,
    };
    let scope = Scope::new(caller, Operation::route(CLAIM, request.operation));
    let scope = match request.tenant {
        Some(tenant) => {
            named("tenant", &tenant)?;
            scope.in_tenant(tenant)
        }
        None => scope,
    };
    let bytes =
        one_of("payloadBase64", request.payload_base64, "payload_base64", request.payload_base64_old)?;
    let intent = match (request.fingerprint, request.payload, bytes) {
        (Some(hash), None, None) => {
            let hash = <[u8; 32]>::from_hex(hash);
            let hash = hash.map_err(|_| Problem::invalid("fingerprint must be 64 hexadecimal digits."))?;
            Intent::new(scope, key, policy, Fingerprint::from_bytes(hash))
        }
        (None, Some(value), None) => {
            let payload = payload::Json::of(&value);
            let payload = payload.map_err(|_| Problem::invalid("payload cannot be read as JSON."))?;
            Intent::new(scope, key, policy, payload)
        }
        (None, None, Some(text)) => {
            let bytes = BASE64_STANDARD
                .decode(&text)
                .map_err(|_| Problem::invalid("payloadBase64 is not base64."))?;
            Intent::new(scope, key, policy, payload::Raw::from(bytes))
        }
        _ => {
            let detail = "A claim needs exactly one of payload, payloadBase64 and fingerprint: a retry is \
                compared with it.";
            return Err(Problem::invalid(detail));
        }
    };
    Ok(match request.mode.unwrap_or_default() {
        Mode::Processing => intent,
        Mode::Reserved => intent.reserved(),
    })
}

fn named(subject: &str, name: &str) -> Result<(), Problem> {
    let fits = (1..=NAME_MAX).contains(&name.chars().count()) && is_all_printable(name);
    let detail = || {
        Problem::invalid(format!(
            "{subject} must have 1 to {NAME_MAX} characters, and no control or format characters."
        ))
    };
    if fits { Ok(()) } else { Err(detail()) }
}

/// The terms of a claim: its own, and the address's for the rest.
fn terms(defaults: &Policy, request: &ClaimRequest) -> Result<Policy, Problem> {
    let any = (Duration::from_millis(1), SPAN_MAX);
    let mut policy = PolicySettings::from(defaults.clone());
    if let Some(name) = &request.class {
        policy.class = class(name)?;
    }
    if let Some(lease) = span("leaseMs", request.lease_ms, LEASE)? {
        policy.lease = lease;
        // Nobody chose a value that is too short for the lease, so it is adjusted.
        policy.denied_ttl = policy.denied_ttl.max(lease * 2);
    }
    let spans = [
        ("workDeadlineMs", request.work_deadline_ms, &mut policy.work_deadline),
        ("ttlMs", request.ttl_ms, &mut policy.ttl),
        ("dedupWindowMs", request.dedup_window_ms, &mut policy.dedup_window),
    ];
    for (name, given, kept) in spans {
        if let Some(given) = span(name, given, any)? {
            *kept = given;
        }
    }
    policy.try_into().map_err(|error: PolicyError| {
        Problem::invalid(format!("The settings of the claim are not valid: {error}."))
    })
}

fn class(name: &str) -> Result<policy::Class, Problem> {
    let known: Result<Class, serde::de::value::Error> = Class::deserialize(name.into_deserializer());
    match known {
        Ok(Class::Downstream) => Ok(policy::Class::Downstream),
        Ok(Class::External) => Ok(policy::Class::External),
        Err(_) if name == policy::Class::Local.name() => Err(Problem::invalid(
            "class local is for an effect that commits in the same transaction as its record, and a claim is a request of its \
             own: nothing was claimed. Use external, or downstream where the effect happens in a system that deduplicates by \
             the operation ID.",
        )),
        Err(_) => Err(Problem::unfit("class", name, "expected `downstream` or `external`")),
    }
}

fn span(
    name: &str,
    millis: Option<u64>,
    (min, max): (Duration, Duration),
) -> Result<Option<Duration>, Problem> {
    let span = millis.map(Duration::from_millis);
    if span.is_none_or(|span| (min..=max).contains(&span)) {
        return Ok(span);
    }
    let found = millis.unwrap_or_default().to_string();
    let allowed = format_args!("expected {} to {}", min.as_millis(), max.as_millis());
    Err(Problem::unfit(name, &found, allowed))
}
