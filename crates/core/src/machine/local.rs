//! The one write of a `local` command, at the end of the transaction that contains its effect.

use super::dates::{gone_at, skew};
use super::{Found, Refusal, Stamp, Write, WriteResult, history_entry};
use crate::outcome::Outcome;
use crate::policy::Class;
use crate::record::{Record, State};
use crate::time::Now;

/// How the transaction of a `local` command ends. If it fails instead, it is rolled back and leaves no trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalEnding {
    /// The effect commits together with this outcome.
    Succeeded(Outcome),
    /// The command is refused permanently. Only this outcome commits, and none of the work's writes.
    Refused(Outcome),
}

/// Combines the claim that [`decide`](super::decide) computed and the outcome of a `local` command into one write.
/// Store it in the transaction that contains the effect. If the store refuses it, roll that transaction back.
///
/// The claim itself is never stored, so there is no lease and no doubt. The version grows by one for the whole
/// command.
///
/// ```
/// # use semel_core::{fingerprint::Fingerprint, id::*, machine::{Command, Stamp}, policy::*, time::Time};
/// # fn command(payload: &Fingerprint) -> Command<'_> {
/// #     let (key_hash, caller_hash) = (KeyHash::from_bytes([0; 32]), CallerHash::from_bytes([0; 32]));
/// #     let (id, policy) = (CommandId::from_bytes([0; 32]), Policy::new(Class::Local).into());
/// #     let (operation_id, fingerprint) = (OperationId::of(&id), *payload);
/// #     let (operation, generation) = ("order".into(), 0);
/// #     Command { id, operation_id, key_hash, caller_hash, operation, policy, fingerprint, payload, generation }
/// # }
/// # fn stamp(millis: u64) -> Stamp<'static> {
/// #     Stamp::new(Time::from_millis(millis), "worker-1", "")
/// # }
/// use semel_core::machine::{Begin, Decision, Expect, Found, LocalEnding, NewAttempt, commit_local, decide};
/// use semel_core::outcome::Outcome;
/// use semel_core::record::{StateName, Token};
/// # let payload = Fingerprint::from_bytes([5; 32]);
/// let new_attempt = NewAttempt { token: Token::from_random(7), begin: Begin::Processing };
/// let Decision::Run(claim) = decide(Found::Nothing, &command(&payload), new_attempt, stamp(0)) else { panic!() };
/// let ending = LocalEnding::Succeeded(Outcome::http(201, [("location", "/orders/7")], ""));
/// let write = commit_local(&claim, ending, stamp(10))?;
/// assert_eq!((write.expect, write.next.version()), (Expect::Absent, 1));
/// assert_eq!(write.next.state_name(), StateName::Succeeded);
/// # Ok::<(), semel_core::machine::Refusal>(())
/// ```
pub fn commit_local(claim: &Write, ending: LocalEnding, stamp: Stamp<'_>) -> Result<Write, Refusal> {
    let claimed = &claim.next;
    // A record keeps the class it was claimed under: an earlier attempt of another class had its effect elsewhere.
    if claimed.policy.class != Class::Local {
        return Err(Refusal::NotLocal);
    }
    if !matches!(claimed.state, State::Claimed { .. } | State::Processing { .. }) {
        return Err(Refusal::WrongState);
    }
    if !stamp.now.can_claim() {
        return Err(Refusal::ClockNotTrusted);
    }
    let expires_at = stamp.now.at + claimed.policy.ttl;
    let mut next = claimed.clone();
    next.set_state_with_labels(match ending {
        LocalEnding::Succeeded(outcome) => State::Succeeded { outcome, expires_at },
        LocalEnding::Refused(outcome) => State::FailedReplayable { outcome, expires_at },
    });
    next.updated_at = stamp.now.at;
    next.owner_wrote_at = stamp.now.at;
    let entry = history_entry(&next, stamp);
    next.history.replace_last(entry, next.policy.history_entries_max);
    Ok(Write { expect: claim.expect, next })
}

/// What the reread entry shows of the one write of a `local` command whose commit got no answer. Call it with the lock of the
/// command, or after the transaction is known to be over: without that, a missing write may still arrive.
///
/// The token proves that it was applied, because it was generated for this transaction only. An entry without it proves
/// that it was not, unless the written record could have been replaced or removed since: an outcome that expired leaves no
/// trace.
#[must_use]
pub fn local_write_result(write: &Write, reread: Found<'_>, now: impl Into<Now>) -> WriteResult {
    match reread {
        Found::Unreadable => WriteResult::Unclear,
        Found::Record(record) if record.token == write.next.token => WriteResult::Applied,
        Found::Record(_) if write.expect.met_by(reread) => WriteResult::NotApplied,
        _ if is_certainly_kept(&write.next, now.into()) => WriteResult::NotApplied,
        _ => WriteResult::Unclear,
    }
}

/// Whether nobody can have judged the retention of `record` to be over, whatever their clock shows.
fn is_certainly_kept(record: &Record, now: Now) -> bool {
    now.can_claim() && gone_at(record, now).is_none_or(|gone_at| now.latest + skew(record, now) < gone_at)
}
