//! What the owner of an attempt does: start it, renew its lease, end it, and recognise its own writes.

use super::dates::{first_date, is_dated_ahead, is_repeat_open, skew};
use super::judge::Reply;
use super::{Found, Refusal, Stamp, Write, erase, rules, written};
use crate::classify::{Ending, denies};
use crate::outcome::{Body, Outcome, Status};
use crate::policy::Class;
use crate::record::{Doubt, Proof, Record, State, Token};
use crate::time::{Now, Time};
use std::time::Duration;

/// The effect is about to begin: `CLAIMED` becomes `PROCESSING`. Must be stored before the first byte of the effect
/// is sent.
pub fn start(record: &Record, token: Token, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    check_owner(record, token, stamp.now)?;
    let State::Claimed { .. } = record.state else { return Err(Refusal::WrongState) };
    let lease_until = stamp.now.at + record.policy.lease;
    owners_write(record, State::Processing { lease_until }, stamp)
}

/// Renews the owner's lease from now. A clock that went back within the skew never shortens it. Not recorded in the
/// history.
pub fn renew(record: &Record, token: Token, now: impl Into<Now>) -> Result<Write, Refusal> {
    let judged = now.into();
    check_owner(record, token, judged)?;
    let now = judged.at;
    // A clock that went back within the skew must not shorten the lease: an owner that misses the answer to this
    // renewal relies on the lease it knows.
    let wrote_at = now.max(record.owner_wrote_at.min(now + skew(record, judged)));
    let mut next = record.clone();
    match &mut next.state {
        State::Claimed { lease_until } | State::Processing { lease_until } => {
            *lease_until = wrote_at + record.policy.lease;
        }
        _ => return Err(Refusal::WrongState),
    }
    next.version += 1;
    next.created_at = first_date(record, judged);
    next.updated_at = now;
    next.owner_wrote_at = wrote_at;
    rules::swap(record, next)
}

/// Whether the effect may be sent at `now`: the attempt is started, its lease has not expired and, if an earlier
/// attempt is in doubt, the downstream system still remembers it.
///
/// Call it right before the first byte is sent, with the last record that is known to be stored. `now` must not be
/// behind the store's clock: if it is not read from the store, use the time of its last answer plus the time since
/// that *request* was sent, on a clock that counts suspended time.
///
/// `held_for` is the time on the same clock since the owner dated its last stored write. Dates alone are not enough:
/// if the clock is set back, an expired lease looks valid again.
#[must_use = "check this before sending"]
pub fn may_send(record: &Record, token: Token, now: impl Into<Now>, held_for: Duration) -> bool {
    let now = now.into();
    let is_begun = matches!(record.state, State::Processing { .. });
    let remembered = !record.earlier_doubt || is_repeat_open(record, now);
    let is_held = !lease_left(record, now.at).is_zero() && held_for < record.policy.lease;
    record.token == token && is_begun && is_held && remembered
}

/// Whether the owner still holds the record at `now`, so that nobody else can have written it. The end of the lease
/// counts without skew; others wait for the skew too. A record dated in the future is held by nobody: others treat
/// its owner as gone.
#[must_use]
pub fn is_held(record: &Record, now: impl Into<Now>) -> bool {
    let now = now.into();
    !lease_left(record, now.at).is_zero() && !is_dated_ahead(record, now)
}

/// How long after `now` the owner's lease lasts; zero if it is over, or if there is none. For scheduling only:
/// [`may_send`] decides whether the owner may act.
pub fn lease_left(record: &Record, now: Time) -> Duration {
    record.lease_until().map_or(Duration::ZERO, |lease_until| lease_until.since(now))
}

/// How long before `now` the owner dated its last write, by its date alone. For [`may_send`], if the owner made that
/// write in another process.
pub fn held_for(record: &Record, now: Time) -> Duration {
    now.since(record.owner_wrote_at)
}

/// Ends the attempt. The owner may answer its client only after this is stored.
///
/// A late owner may still finish over an `UNKNOWN` or a "not applied" verdict on its own attempt, because it knows
/// the true outcome. It is recognised by its token, so it cannot finish its successor's attempt.
///
/// ```
/// # use semel_core::{fingerprint::Fingerprint, id::*, machine::{Command, Stamp}, policy::*, time::Time};
/// # fn command(payload: &Fingerprint) -> Command<'_> {
/// #     let (key_hash, caller_hash) = (KeyHash::from_bytes([0; 32]), CallerHash::from_bytes([0; 32]));
/// #     let (id, policy) = (CommandId::from_bytes([0; 32]), Policy::new(Class::External).into());
/// #     let (operation_id, fingerprint) = (OperationId::of(&id), *payload);
/// #     let (operation, generation) = ("pay".into(), 0);
/// #     Command { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint, payload, generation }
/// # }
/// # fn stamp(millis: u64) -> Stamp<'static> {
/// #     Stamp::new(Time::from_millis(millis), "worker-1", "")
/// # }
/// use semel_core::classify::Ending;
/// use semel_core::machine::{Refusal, finish};
/// use semel_core::outcome::Outcome;
/// use semel_core::record::{StateName, Token};
/// # use semel_core::record::Record;
/// # use semel_core::machine::{Begin, Decision, Found, NewAttempt, decide};
/// # let (payload, token) = (Fingerprint::from_bytes([5; 32]), Token::from_random(7));
/// # let new_attempt = NewAttempt { token, begin: Begin::Processing };
/// # let Decision::Run(claim) = decide(Found::Nothing, &command(&payload), new_attempt, stamp(0)) else { panic!() };
/// let record: Record = claim.next; // PROCESSING, claimed with the token 7
/// let paid = Ending::Succeeded(Outcome::http(201, [("location", "/charges/7")], ""));
/// let done = finish(&record, Token::from_random(7), paid.clone(), stamp(10))?.next;
/// assert_eq!(done.state_name(), StateName::Succeeded);
/// // Another token is refused, and a final outcome stays final:
/// assert_eq!(finish(&record, Token::from_random(8), paid.clone(), stamp(10)), Err(Refusal::Superseded));
/// assert_eq!(finish(&done, Token::from_random(7), paid, stamp(11)), Err(Refusal::Settled));
/// # Ok::<(), Refusal>(())
/// ```
pub fn finish(record: &Record, token: Token, ending: Ending, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    check_owner(record, token, stamp.now)?;
    let now = stamp.now.at;
    let state = match &record.state {
        State::Processing { .. } => ended(record, ending, now),
        State::Claimed { .. } => match ending {
            Ending::NotApplied(_) => ended(record, ending, now),
            Ending::Succeeded(_)
            | Ending::FailedReplayable(_)
            | Ending::NotAppliedForGood(_)
            | Ending::InDoubt => return Err(Refusal::NotStarted),
        },
        State::Unknown { doubt, .. } => match ended(record, ending, now) {
            // The owner has already reported doubt; this adds nothing.
            State::Unknown { .. } if *doubt == Doubt::Owner => return Err(Refusal::Settled),
            state => state,
        },
        State::FailedNotReplayable { proof: Proof::Verdict, .. } => match ending {
            Ending::Succeeded(_) | Ending::FailedReplayable(_) => ended(record, ending, now),
            // The verdict is kept: the owner agrees with it, or knows less.
            Ending::NotApplied(_) | Ending::NotAppliedForGood(_) | Ending::InDoubt => {
                return Err(Refusal::Settled);
            }
        },
        State::FailedNotReplayable { .. }
        | State::Succeeded { .. }
        | State::FailedReplayable { .. }
        | State::Expired { .. } => return Err(Refusal::Settled),
    };
    owners_write(record, state, stamp)
}

/// The owner gives up the attempt before anything was sent: [`finish`] without effect.
pub fn abandon(record: &Record, token: Token, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    finish(record, token, Ending::NotApplied(None), stamp)
}

/// Finds out whether a claim whose acknowledgement was lost is in the store: its token proves it. Returns the current
/// record, which may have changed since.
///
/// `None`: decide again, with a *fresh* token. Sending the same claim again could reuse its token after its record
/// was purged, while a write computed from the first one may still be in flight.
#[must_use]
pub fn applied_claim<'a>(claim: &Write, reread: Found<'a>) -> Option<&'a Record> {
    match reread {
        Found::Record(record) if record.token == claim.next.token => Some(record),
        _ => None,
    }
}

/// Whether a write whose acknowledgement was lost is in the store: only if version, token *and* content are what was
/// written. The token alone is not enough, because an operator's verdict keeps it.
#[must_use]
pub fn was_applied(write: &Write, reread: Found<'_>) -> bool {
    write_result(write, reread) == WriteResult::Applied
}

/// What a reread record shows of a write whose acknowledgement was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteResult {
    /// It is in the store.
    Applied,
    /// It is not in the store and never was, unless it is still on its way.
    NotApplied,
    /// The record has changed or is gone, and does not show whether the write came before that.
    Unclear,
}

/// What the reread record shows of this write. It was not applied if the record is still as the write expected it, or if
/// another write took its version.
#[must_use]
pub fn write_result(write: &Write, reread: Found<'_>) -> WriteResult {
    match reread {
        Found::Record(record) if *record == write.next => WriteResult::Applied,
        found if write.expect.met_by(found) => WriteResult::NotApplied,
        Found::Record(record) if (record.token, record.version) == (write.next.token, write.next.version) => {
            WriteResult::NotApplied
        }
        _ => WriteResult::Unclear,
    }
}

/// The answer to the owner's client after the store has refused its finish for good: what is stored now, never the
/// owner's own answer. If the record [is gone](outlived), the outcome is unknown; raise an alarm.
pub fn overtaken<'a>(own: &Record, found: Found<'a>) -> Reply<'a> {
    let record = match found {
        Found::Record(record) if !outlived(own, found) => record,
        Found::Record(_) | Found::Nothing | Found::Moved => return Reply::Unknown,
        Found::Unreadable => return Reply::Unreadable,
    };
    match &record.state {
        State::Succeeded { outcome, .. }
        | State::FailedReplayable { outcome, .. }
        | State::FailedNotReplayable { outcome: Some(outcome), bound: true, .. } => Reply::Replay(outcome),
        // Another attempt is running, or would start with the next request.
        State::Claimed { .. } | State::Processing { .. } | State::FailedNotReplayable { .. } => {
            Reply::InProgress
        }
        State::Unknown { .. } => Reply::Unknown,
        State::Expired { .. } => Reply::Expired,
    }
}

/// Whether an owner's record is gone: there is no entry any more, or the key was reused with another payload, whose
/// outcome must not be revealed.
#[must_use]
pub fn outlived(own: &Record, found: Found<'_>) -> bool {
    match found {
        Found::Record(record) if erase::is_erased(record) => false,
        Found::Record(record) => {
            record.fingerprint != own.fingerprint || record.policy.selection != own.policy.selection
        }
        Found::Nothing | Found::Moved => true,
        Found::Unreadable => false,
    }
}

/// Whether the record contradicts the report of the attempt with this token, whose finish was refused: the stored outcome
/// differs from the reported one. An operator has to look at it. `open` returns an outcome unsealed and without labels.
///
/// A response of the same attempt that was not stored, or was erased, differs from no other: an operator's "applied"
/// agrees with the owner's success.
#[must_use = "a contradiction should raise an alarm"]
pub fn contradicts(
    found: Found<'_>,
    token: Token,
    ending: &Ending,
    open: impl Fn(&Outcome) -> Outcome,
) -> bool {
    let (Ending::Succeeded(reported) | Ending::FailedReplayable(reported)) = ending else { return false };
    let Found::Record(record) = found else { return true };
    let (State::Succeeded { outcome: stored, .. } | State::FailedReplayable { outcome: stored, .. }) =
        &record.state
    else {
        return true;
    };
    let is_same_state =
        matches!(record.state, State::Succeeded { .. }) == matches!(ending, Ending::Succeeded(_));
    let (stored, reported) = (open(stored), open(reported));
    let agrees = stored == reported || (record.token == token && is_part_of(&stored, &reported));
    !(is_same_state && agrees)
}

/// Whether `stored` has no body, and everything else that it has is also in `whole`.
fn is_part_of(stored: &Outcome, whole: &Outcome) -> bool {
    let has_status = stored.status == Status::Value || stored.status == whole.status;
    let has_headers = stored.headers.iter().all(|header| whole.headers.iter().any(|other| other == header));
    stored.body == Body::NotRetained && has_status && has_headers
}

/// `Ok` if the attempt has this token and the clock is good enough to date a write. An outcome dated far in the past
/// would look expired as soon as the clock is right again, and its key would be free.
fn check_owner(record: &Record, token: Token, now: Now) -> Result<(), Refusal> {
    if record.token != token {
        Err(Refusal::Superseded)
    } else if !now.can_claim() {
        Err(Refusal::ClockNotTrusted)
    } else {
        Ok(())
    }
}

fn ended(record: &Record, ending: Ending, now: Time) -> State {
    let expires_at = now + record.policy.ttl;
    match ending {
        Ending::Succeeded(outcome) => State::Succeeded { outcome, expires_at },
        Ending::FailedReplayable(outcome) => State::FailedReplayable { outcome, expires_at },
        Ending::NotApplied(outcome) if !record.earlier_doubt => not_applied(record, outcome, now),
        Ending::NotAppliedForGood(outcome) if !record.earlier_doubt => {
            State::FailedReplayable { outcome, expires_at }
        }
        // A local effect commits with its record or not at all.
        Ending::InDoubt if record.policy.class == Class::Local => not_applied(record, None, now),
        // This attempt took no effect, but an earlier one may have: the doubt stays.
        Ending::NotApplied(_) | Ending::NotAppliedForGood(_) | Ending::InDoubt => {
            State::Unknown { doubt: Doubt::Owner, since: now, probes: 0, next_probe_at: Some(now) }
        }
    }
}

fn not_applied(record: &Record, outcome: Option<Outcome>, now: Time) -> State {
    let denied = outcome.as_ref().is_some_and(|outcome| denies(outcome.status));
    let kept = if denied { record.policy.denied_ttl } else { record.policy.ttl };
    State::FailedNotReplayable { outcome, proof: Proof::Owner, bound: true, expires_at: now + kept }
}

fn owners_write(record: &Record, state: State, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let mut next = written(record, state, stamp);
    next.owner_wrote_at = stamp.now.at;
    if next.is_terminal() {
        next.earlier_doubt = false;
    }
    rules::swap(record, next)
}
