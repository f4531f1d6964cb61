//! Why a record does not allow an operator's action: its state, what is allowed instead, and from when.

use super::problem::{Problem, Situation};
use crate::moment;
use semel::FoundRecord;
use semel::core::machine::Refusal;
use semel::core::record::StateName;
use semel::core::time::Time;
use semel_http::Code;
use std::time::Duration;

/// When to try again after the clock was not trusted.
const CLOCK_RETRY_AFTER: Duration = Duration::from_secs(10);

/// A refused `action`, with the record's state. `fence` is the attempt that it was about, if that was named.
pub(super) fn problem(
    action: &str,
    refusal: Refusal,
    found_record: &FoundRecord,
    fence: Option<u64>,
) -> Problem {
    let (record, now) = (&found_record.record, found_record.now.at);
    if refusal == Refusal::ClockNotTrusted {
        let detail = "The clock is not trusted, so nothing can be dated or judged by it. Nothing was changed. Set the clock right, or \
                      confirm it with `semel doctor --confirm-clock --reason \"…\"`.";
        let problem = semel_http::Problem::new(Code::ClockNotTrusted, detail);
        return problem.retryable_after(CLOCK_RETRY_AFTER).about(record.operation_id()).into();
    }
    let detail = match fence.filter(|fence| refusal == Refusal::Superseded && *fence > record.fence()) {
        Some(fence) => unknown_fence(fence, record.fence()),
        None => detail(action, refusal, record.state_name(), now),
    };
    let problem =
        Problem::new(Situation::Refused, detail).about(record.operation_id(), Some(record.state_name()));
    match refusal.retry_at() {
        Some(at) => problem.after(at.since(now)),
        None => problem,
    }
}

fn detail(action: &str, refusal: Refusal, state: StateName, now: Time) -> String {
    let from = |at: Time| format!("{} ({})", moment::of(at), moment::from_now(at, now));
    match refusal {
        Refusal::LeaseAlive(dead_from) => format!(
            "The record is {state}, and its owner's lease is not over: the owner is running, or was until shortly ago. Nothing was \
             changed. Unless the owner renews its lease, this is allowed from {}.",
            from(dead_from)
        ),
        Refusal::QuietUntil(_) => {
            let at = refusal.retry_at().unwrap_or(now);
            format!(
                "The record is {state} because its owner went silent, and the owner may still act. Nothing was changed. `not-applied` \
                 and `failed` are allowed from {}; `applied` is allowed now.",
                from(at)
            )
        }
        Refusal::InDoubt => format!(
            "The record is {state}, and an earlier attempt may have taken effect. Nothing was changed. {}",
            allowed_in(state)
        ),
        Refusal::Superseded => format!(
            "Another attempt has begun since you looked: the record is {state} with another fence. Nothing was changed. Look at it \
             again; what you found out about the earlier attempt says nothing about this one."
        ),
        _ if action == "release" => format!(
            "The record is {state}. Nothing was changed. Release works on FAILED_NOT_REPLAYABLE, and on CLAIMED whose owner is gone. \
             {}",
            allowed_in(state)
        ),
        _ => format!(
            "The record is {state}. Nothing was changed. You can resolve UNKNOWN, and PROCESSING whose \
                owner is gone. {}",
            allowed_in(state)
        ),
    }
}

/// The fence only grows, so an attempt with a higher one has not begun.
fn unknown_fence(named: u64, current: u64) -> String {
    format!(
        "No attempt of this record has the fence {named}: its latest one has {current}. Nothing was changed. Look at the record \
         again; perhaps the fence is that of another record."
    )
}

/// What can be done with a record in this state.
const fn allowed_in(state: StateName) -> &'static str {
    match state {
        StateName::Claimed => "As soon as its owner is gone, you can release it.",
        StateName::Processing => "As soon as its owner is gone, you can resolve it.",
        StateName::Unknown => "You can resolve it.",
        StateName::FailedNotReplayable => {
            "The next request with the key is the next attempt; you can release the key for another payload."
        }
        StateName::Succeeded | StateName::FailedReplayable => "Its outcome is final, and retries get it.",
        StateName::Expired => "Its outcome is final and no longer stored; retries are refused.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every refusal that an operator can get, as in `tests/texts/refusals.txt`.
    #[test]
    fn refusals_name_the_state_and_what_is_allowed() {
        let now = Time::from_millis(1_763_254_800_000);
        let later = |seconds| now + Duration::from_secs(seconds);
        let texts = [
            detail("resolve-applied", Refusal::LeaseAlive(later(12)), StateName::Processing, now),
            detail("resolve-not-applied", Refusal::QuietUntil(later(100)), StateName::Unknown, now),
            detail("resolve-applied", Refusal::WrongState, StateName::Succeeded, now),
            detail("resolve-failed", Refusal::WrongState, StateName::FailedNotReplayable, now),
            detail("resolve-applied", Refusal::WrongState, StateName::Claimed, now),
            detail("resolve-applied", Refusal::WrongState, StateName::Expired, now),
            detail("resolve-not-applied", Refusal::Superseded, StateName::Unknown, now),
            unknown_fence(1_763_254_800_001, 1_763_254_800_000),
            detail("release", Refusal::WrongState, StateName::Unknown, now),
            detail("release", Refusal::InDoubt, StateName::Claimed, now),
            detail("release", Refusal::LeaseAlive(later(3_700)), StateName::Claimed, now),
        ];
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/texts");
        semel_test_support::texts::assert_is(folder, "refusals", &texts.join("\n\n"));
    }
}
