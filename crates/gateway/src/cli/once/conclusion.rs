//! What a call means for its caller: an exit code, a sentence, and what is printed again.

use super::call::Called;
use super::program::{End, NotStarted};
use super::stored::StoredRun;
use crate::stores::Url;
use semel::archive::rfc3339;
use semel::core::record::{Record, StateName};
use semel::{Error, OperationId, Replayed, RequestOutcome};
use std::io;

/// Nothing ran; a later call may run it.
pub(super) const NOTHING_RAN: u8 = 75;
/// Nobody knows whether it took effect.
pub(super) const UNKNOWN: u8 = 76;
/// The key does not allow it.
pub(super) const REFUSED: u8 = 77;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// What happened, for the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Happened {
    Ran,
    Replayed,
    Refused,
    Unknown,
    NotStarted,
}

impl Happened {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Replayed => "replayed",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
            Self::NotStarted => "not_started",
        }
    }
}

/// The end of a call.
#[derive(Debug)]
pub(super) struct Conclusion {
    pub(super) happened: Happened,
    /// The exit code of this process.
    pub(super) code: u8,
    /// The program's, of this call or of the replayed one.
    pub(super) program_code: Option<i32>,
    pub(super) operation_id: Option<OperationId>,
    pub(super) attempt: Option<u32>,
    pub(super) state: Option<StateName>,
    /// Why there is no success, in a sentence.
    pub(super) reason: Option<String>,
    /// What is printed again.
    pub(super) replay: Option<StoredRun>,
}

impl Conclusion {
    fn new(happened: Happened, code: u8, reason: Option<String>) -> Self {
        Self {
            happened,
            code,
            program_code: None,
            operation_id: None,
            attempt: None,
            state: None,
            reason,
            replay: None,
        }
    }

    /// Nothing ran, and a later call may succeed.
    pub(super) fn nothing_ran(reason: impl Into<String>) -> Self {
        Self::new(Happened::NotStarted, NOTHING_RAN, Some(reason.into()))
    }

    /// Nothing ran, and no later call with this command line will succeed.
    pub(super) fn refused(reason: impl Into<String>) -> Self {
        Self::new(Happened::Refused, REFUSED, Some(reason.into()))
    }

    fn unknown(reason: impl Into<String>) -> Self {
        Self::new(Happened::Unknown, UNKNOWN, Some(reason.into()))
    }

    /// The end of `called`. `record` is what the store has now, if it can be read.
    pub(super) fn of(called: &Called, record: Option<&Record>, url: &Url) -> Self {
        let Some(response) = &called.response else {
            return Self::nothing_ran("nothing was run: a signal ended this call before it ran the program");
        };
        let end = called.run.as_ref().map(|run| &run.end);
        let mut conclusion = match response {
            Err(error) => of_error(error, end),
            Ok(response) => of_outcome(&response.outcome, end, record, (response.operation_id, url)),
        };
        conclusion.operation_id = response.as_ref().ok().map(|response| response.operation_id);
        conclusion.attempt = conclusion.attempt.or_else(|| record.map(Record::attempt));
        conclusion.state = conclusion.state.or_else(|| record.map(Record::state_name));
        conclusion.program_code = conclusion.program_code.or_else(|| end.and_then(exit_code));
        conclusion
    }
}

fn of_error(error: &Error, end: Option<&End>) -> Conclusion {
    match end {
        Some(End::NotStarted(why)) => not_started(why),
        Some(_) => Conclusion::unknown(format!("the program ran, and its outcome is not stored: {error}")),
        None if error.is_retryable() || matches!(error, Error::Secrets(_) | Error::Store(_)) => {
            Conclusion::nothing_ran(error.to_string())
        }
        None => Conclusion::refused(error.to_string()),
    }
}

fn of_outcome(
    outcome: &RequestOutcome,
    end: Option<&End>,
    record: Option<&Record>,
    (operation_id, url): (OperationId, &Url),
) -> Conclusion {
    let settle = |repeatable| settle(operation_id, url, repeatable);
    match outcome {
        RequestOutcome::Ran(ran) => {
            let state = ran.stored.map(|stored| stored.state);
            let mut conclusion = match (end, state) {
                (_, Some(StateName::Unknown)) => {
                    Conclusion::unknown(format!("{}{}", doubt(end), settle(ran.repeatable)))
                }
                (Some(End::NotStarted(why)), _) => not_started(why),
                (Some(End::Exited(code)), None) => Conclusion::unknown(format!(
                    "the program ended with exit code {code}, but the store does not accept its outcome{}",
                    settle(ran.repeatable)
                )),
                (Some(End::Exited(code)), Some(_)) => {
                    Conclusion::new(Happened::Ran, u8::try_from(*code).unwrap_or(u8::MAX), None)
                }
                // A signal came before the program was started.
                (None, Some(_)) => Conclusion::nothing_ran("nothing was run: a signal ended this call"),
                (_, _) => Conclusion::unknown(format!("{}{}", doubt(end), settle(ran.repeatable))),
            };
            (conclusion.attempt, conclusion.state) = (Some(ran.attempt), state);
            conclusion
        }
        RequestOutcome::Replayed(replayed) => of_replay(replayed, end),
        RequestOutcome::InProgress { .. } => {
            let since = record.and_then(since).map(|since| format!(" since {since}")).unwrap_or_default();
            Conclusion::nothing_ran(format!(
                "nothing was run: the program is still running{since}, operation ID {operation_id}"
            ))
        }
        RequestOutcome::Unknown { repeatable } if end.is_some() => {
            Conclusion::unknown(format!("{}{}", doubt(end), settle(*repeatable)))
        }
        RequestOutcome::Unknown { repeatable } => {
            let nobody = "nothing was run: nobody knows whether an earlier run took effect";
            Conclusion::unknown(format!("{nobody}{}", settle(*repeatable)))
        }
        RequestOutcome::Mismatch => Conclusion::refused(
            "nothing was run: the key belongs to another command line; use another key, or the same arguments",
        ),
        RequestOutcome::Expired => Conclusion::refused(
            "nothing was run: the key was used before, and what became of it is no longer stored",
        ),
        RequestOutcome::AttemptsExhausted => {
            Conclusion::refused("nothing was run: all attempts that the record allows were made")
        }
        RequestOutcome::Unreadable => Conclusion::unknown(format!(
            "nothing was run: the record of operation {operation_id} cannot be read; see `semel doctor --store {url}`"
        )),
        RequestOutcome::ClockNotTrusted { .. } => Conclusion::nothing_ran(format!(
            "nothing was run: the clock is not trusted; see `semel doctor --store {url}`"
        )),
    }
}

/// An earlier run, or what somebody decided about this one while it ran.
fn of_replay(replayed: &Replayed, end: Option<&End>) -> Conclusion {
    let run = StoredRun::of(&replayed.outcome);
    let default = i32::from(replayed.stored.state != StateName::Succeeded);
    let code = run.code.unwrap_or(default);
    let own = u8::try_from(code).unwrap_or(u8::MAX);
    let mut conclusion = Conclusion::new(Happened::Replayed, own, None);
    if end.is_some() {
        let reason = "the program ran, but its record was settled meanwhile; the exit code is the record's";
        conclusion.reason = Some(reason.to_owned());
    } else {
        conclusion.replay = Some(run);
    }
    (conclusion.program_code, conclusion.state) = (Some(code), Some(replayed.stored.state));
    conclusion
}

fn not_started(why: &NotStarted) -> Conclusion {
    match why {
        NotStarted::Interrupted => Conclusion::nothing_ran("nothing was run: a signal ended this call"),
        NotStarted::Prepare(error) => {
            Conclusion::nothing_ran(format!("nothing was run: the program cannot be started: {error}"))
        }
        NotStarted::Exec(error) => {
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let code = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
            let reason = format!("nothing was run: the program cannot be started: {error}");
            Conclusion::new(Happened::NotStarted, code, Some(reason))
        }
    }
}

/// Why the outcome of this call's own run is unknown.
fn doubt(end: Option<&End>) -> String {
    let why = match end {
        Some(End::Killed(signal)) => format!("the program was killed by signal {signal}"),
        Some(End::TimedOut) => "the program was stopped, because it ran longer than --timeout".to_owned(),
        Some(End::LeaseLost) => "the program was stopped, because its lease was lost".to_owned(),
        Some(End::NotStarted(_)) => "nothing was run, but an earlier attempt is in doubt".to_owned(),
        Some(End::Exited(code)) => {
            format!("the program ended with exit code {code}, but an earlier attempt is in doubt")
        }
        Some(End::Lost) | None => "it is not known how the program ended".to_owned(),
    };
    format!("{why}: nobody knows whether it took effect")
}

/// What can be done about it.
fn settle(operation_id: OperationId, url: &Url, repeatable: bool) -> String {
    let again = if repeatable { "The next call runs it again; to prevent that, find" } else { "Find" };
    format!(
        ". {again} out, then run `semel records resolve {operation_id} --store {url} --reason TEXT --outcome` with \
         applied, not-applied or failed"
    )
}

fn exit_code(end: &End) -> Option<i32> {
    match end {
        End::Exited(code) => Some(*code),
        _ => None,
    }
}

/// When the record's attempt began.
fn since(record: &Record) -> Option<String> {
    let entries = record.history().entries();
    let begun = entries.iter().find(|entry| entry.attempt == record.attempt())?;
    Some(rfc3339::text(begun.at))
}
