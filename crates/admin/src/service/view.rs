//! A record as operators and workers see it. It never contains the attempt's token, and a stored response only for
//! those with the role `bodies`.

use super::answer::StoredResponse;
use semel::archive::rfc3339;
use semel::core::machine;
use semel::core::outcome::{Body, Outcome};
use semel::core::policy::Policy;
use semel::core::record::{Doubt, Record, State, StateName};
use semel::core::time::Now;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use utoipa::ToSchema;

/// The name of a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = State)]
pub(super) enum ApiState {
    /// Reserved; the effect has not begun.
    Claimed,
    /// The effect may have begun.
    Processing,
    /// The effect happened.
    Succeeded,
    /// Refused for good.
    FailedReplayable,
    /// No attempt took effect; the next request is the next attempt.
    FailedNotReplayable,
    /// Nobody can prove whether the effect happened.
    Unknown,
    /// There was an outcome, and it has expired.
    Expired,
}

impl From<StateName> for ApiState {
    fn from(name: StateName) -> Self {
        match name {
            StateName::Claimed => Self::Claimed,
            StateName::Processing => Self::Processing,
            StateName::Succeeded => Self::Succeeded,
            StateName::FailedReplayable => Self::FailedReplayable,
            StateName::FailedNotReplayable => Self::FailedNotReplayable,
            StateName::Unknown => Self::Unknown,
            StateName::Expired => Self::Expired,
        }
    }
}

impl From<ApiState> for StateName {
    fn from(name: ApiState) -> Self {
        match name {
            ApiState::Claimed => Self::Claimed,
            ApiState::Processing => Self::Processing,
            ApiState::Succeeded => Self::Succeeded,
            ApiState::FailedReplayable => Self::FailedReplayable,
            ApiState::FailedNotReplayable => Self::FailedNotReplayable,
            ApiState::Unknown => Self::Unknown,
            ApiState::Expired => Self::Expired,
        }
    }
}

/// A record in a list.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Record)]
pub(super) struct ListedRecord {
    /// The command's operation ID.
    operation_id: String,
    /// The operation's name.
    operation: String,
    /// The stored state. After its `expiresAt`, it stays as it is until it is swept.
    state: ApiState,
    /// The guarantee: `external` or `downstream` (`local` if an application shares the store).
    class: &'static str,
    /// How many attempts have begun.
    attempt: u32,
    /// Grows with every attempt.
    fence: u64,
    /// How many times the record was written.
    version: u64,
    /// The keyed hash of the key.
    key_hash: String,
    /// The keyed hash of the caller.
    caller_hash: String,
    /// When the first attempt was claimed (RFC 3339, as all times).
    created_at: String,
    /// When the record was last written.
    updated_at: String,
    /// Until when the outcome is replayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
    /// Until when the owner counts as alive.
    #[serde(skip_serializing_if = "Option::is_none")]
    lease_expires_at: Option<String>,
    /// Whether the attempt can be resolved: it is unknown, or its owner's lease is dead.
    can_resolve: bool,
    /// Until when "it did not happen" proves nothing, because a silent owner may still act.
    #[serde(skip_serializing_if = "Option::is_none")]
    quiet_until: Option<String>,
    /// Why the outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    doubt: Option<DoubtView>,
    /// The type of resource that the outcome is about, in the words of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_type: Option<String>,
    /// The ID of that resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource_id: Option<String>,
    /// The error code, in the words of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    error_code: Option<String>,
}

/// Why an outcome is unknown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Doubt)]
pub(super) struct DoubtView {
    /// `lapsed`: the owner went silent. `owner`: it ended the attempt itself, without a known outcome.
    how: &'static str,
    /// Since when.
    since: String,
    /// Whether a probe is configured for it; absent if that is not known, as with `semel records --store`.
    #[serde(skip_serializing_if = "Option::is_none")]
    has_probe: Option<bool>,
    /// How many times a probe was sent without a result.
    probes: u32,
    /// When the next probe is sent; absent if only an operator can resolve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_probe_at: Option<String>,
    /// What the attempt reported when it ended, from the history; absent if nothing was reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl ListedRecord {
    /// `has_probe`: whether unknown outcomes can be probed, if that is known.
    pub(super) fn of(record: &Record, now: Now, has_probe: Option<bool>) -> Self {
        Self {
            operation_id: record.operation_id().to_string(),
            operation: record.operation().to_string(),
            state: record.state_name().into(),
            class: record.policy().class.name(),
            attempt: record.attempt(),
            fence: record.fence(),
            version: record.version(),
            key_hash: record.key_hash().to_hex(),
            caller_hash: record.caller_hash().to_hex(),
            created_at: rfc3339::text(record.created_at()),
            updated_at: rfc3339::text(record.updated_at()),
            expires_at: machine::expires_at(record, now).map(rfc3339::text),
            lease_expires_at: record.lease_until().map(rfc3339::text),
            can_resolve: machine::may_resolve(record, now).is_ok(),
            quiet_until: machine::denial_refused_until(record, now).map(rfc3339::text),
            doubt: doubted(record, has_probe),
            resource_type: label(record.labels().resource_type.as_deref()),
            resource_id: label(record.labels().resource_id.as_deref()),
            error_code: label(record.labels().error_code.as_deref()),
        }
    }
}

fn label(label: Option<&str>) -> Option<String> {
    label.map(str::to_owned)
}

fn doubted(record: &Record, has_probe: Option<bool>) -> Option<DoubtView> {
    let State::Unknown { doubt, since, probes, next_probe_at } = record.state() else { return None };
    let how = match doubt {
        Doubt::Lapsed => "lapsed",
        Doubt::Owner => "owner",
    };
    Some(DoubtView {
        how,
        since: rfc3339::text(*since),
        has_probe,
        probes: *probes,
        // Without a probe, this is only when the sweeper checks again whether there is one.
        next_probe_at: next_probe_at.filter(|_| has_probe != Some(false)).map(rfc3339::text),
        reason: doubt_reason(record),
    })
}

/// Why the record became unknown: the first entry of its last series of such entries.
fn doubt_reason(record: &Record) -> Option<String> {
    let unknown = record.history().entries().iter().rev().take_while(|entry| entry.to == StateName::Unknown);
    unknown.last().filter(|entry| !entry.why.is_empty()).map(|entry| entry.why.to_string())
}

/// A record with everything that is known about it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = RecordInFull)]
pub(super) struct FullRecord {
    #[serde(flatten)]
    listed: ListedRecord,
    /// The terms under which it was claimed.
    policy: PolicyView,
    /// Whether an earlier attempt ended in a doubt that was not resolved since.
    earlier_doubt: bool,
    /// The fingerprint of the payload. Only with the role `bodies`, because a payload that can be guessed can be
    /// recognised by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    /// The stored response. Headers and body only with the role `bodies`.
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<StoredResponse>,
    /// Its history, oldest first.
    history: Vec<HistoryEntry>,
    /// How many entries were dropped to keep the history short.
    history_dropped: u32,
}

/// The terms under which a record was claimed.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyView {
    lease_ms: u64,
    work_deadline_ms: u64,
    skew_ms: u64,
    ttl_ms: u64,
    tombstone_ms: u64,
    dedup_window_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts_max: Option<u32>,
}

/// One entry of a record's history.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct HistoryEntry {
    /// The number of the attempt after it.
    attempt: u32,
    /// The state after it.
    state: ApiState,
    /// When.
    at: String,
    /// Which node or operator did it.
    who: String,
    /// What was done and why, as in `resolved as applied: …`; empty if the state says everything.
    why: String,
}

impl FullRecord {
    pub(super) fn of(
        record: &Record,
        now: Now,
        has_probe: Option<bool>,
        outcome: Option<&Outcome>,
        with_bodies: bool,
    ) -> Self {
        let happened = record.history().entries().iter().map(|entry| HistoryEntry {
            attempt: entry.attempt,
            state: entry.to.into(),
            at: rfc3339::text(entry.at),
            who: entry.who.to_string(),
            why: entry.why.to_string(),
        });
        Self {
            listed: ListedRecord::of(record, now, has_probe),
            policy: PolicyView::of(record.policy()),
            earlier_doubt: record.earlier_doubt(),
            fingerprint: with_bodies.then(|| record.fingerprint().to_hex()),
            response: outcome.map(|outcome| {
                let shown = if with_bodies { StoredResponse::with_body } else { StoredResponse::outside };
                shown(outcome).unopened(is_unopened(record, outcome))
            }),
            history: happened.collect(),
            history_dropped: record.history().dropped(),
        }
    }
}

/// Whether its stored outcome is sealed, and could not be opened: `outcome` is what is known of it.
pub(super) fn is_unopened(record: &Record, outcome: &Outcome) -> bool {
    is_sealed(record) && outcome.body == Body::NotRetained
}

/// Whether its stored outcome is sealed.
fn is_sealed(record: &Record) -> bool {
    let outcome = match record.state() {
        State::Succeeded { outcome, .. } | State::FailedReplayable { outcome, .. } => Some(outcome),
        State::FailedNotReplayable { outcome, .. } => outcome.as_ref(),
        State::Claimed { .. } | State::Processing { .. } | State::Unknown { .. } | State::Expired { .. } => {
            None
        }
    };
    outcome.is_some_and(|outcome| matches!(outcome.body, Body::Sealed(_)))
}

impl PolicyView {
    fn of(policy: &Policy) -> Self {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        Self {
            lease_ms: millis(policy.lease),
            work_deadline_ms: millis(policy.work_deadline),
            skew_ms: millis(policy.skew),
            ttl_ms: millis(policy.ttl),
            tombstone_ms: millis(policy.tombstone),
            dedup_window_ms: millis(policy.dedup_window),
            attempts_max: policy.attempts_max,
        }
    }
}
