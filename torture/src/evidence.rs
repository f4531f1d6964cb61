//! The lines that the processes recorded, and the rules that must hold for them whatever the store contains.
//! A slow machine must not break a rule: times are compared only if one event causes the other.

use crate::journal::{Kind, Line, Tail};
use crate::plan::{Plan, millis};
use crate::sabotage::Sabotage;
use crate::workspace::{Failure, Workspace};
use semel::core::policy::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// By how much a time stamp may be older than its write: as long as a request to the store took. This matters
/// only if the retention is short.
const STAMP_LAG_MS: u64 = 300;

/// A broken promise.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) message: String,
    /// The lines about the key, and the record's history.
    pub(crate) lines: Vec<String>,
}

impl Violation {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), lines: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("VIOLATED: {}", self.message);
        for line in &self.lines {
            let _ = write!(text, "\n  {line}");
        }
        f.write_str(&text)
    }
}

impl std::error::Error for Violation {}

/// All lines about one key, in the order in which they were written.
#[derive(Debug, Default)]
pub(crate) struct KeyLog {
    pub(crate) ledger: Vec<Line>,
    pub(crate) answers: Vec<Line>,
}

impl KeyLog {
    fn of(&self, kind: Kind) -> impl Iterator<Item = &Line> {
        self.ledger.iter().filter(move |line| line.kind == kind)
    }

    fn acknowledged(&self) -> impl Iterator<Item = &Line> {
        self.answers.iter().filter(|line| line.acknowledges())
    }

    /// The acknowledgement with the longest retention.
    pub(crate) fn promise(&self) -> Option<&Line> {
        self.acknowledged().max_by_key(|line| line.expires)
    }

    /// Whether the work of this attempt itself reported an unknown outcome.
    pub(crate) fn ended_in_doubt(&self, fence: u64) -> bool {
        self.of(Kind::Doubt).any(|line| line.fence == fence)
    }

    pub(crate) fn begun(&self) -> impl Iterator<Item = &Line> {
        self.of(Kind::Begin)
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let ledger = self.ledger.iter().map(|line| format!("ledger   {line}"));
        ledger.chain(self.answers.iter().map(|line| format!("answers  {line}"))).collect()
    }

    /// Attempts whose predecessor did not report how it ended.
    fn take_overs(&self) -> usize {
        let ended = |attempt| self.of(Kind::NotApplied).any(|line| line.attempt == attempt);
        self.begun().filter(|line| line.attempt > 1 && !ended(line.attempt - 1)).count()
    }
}

/// Everything that was recorded so far.
pub(crate) struct Evidence {
    ledger: Tail,
    answers: Tail,
    pub(crate) logs: BTreeMap<String, KeyLog>,
    /// The processes that were killed.
    pub(crate) killed: BTreeSet<String>,
    seed: u64,
    sabotage: Option<Sabotage>,
}

impl Evidence {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let (ledger, answers) = (Tail::from_the_start(), Tail::from_the_start());
        Self { ledger, answers, logs: BTreeMap::new(), killed: BTreeSet::new(), seed, sabotage }
    }

    pub(crate) fn plan(&self, key: &str) -> Plan {
        Plan::of(self.seed, key, self.sabotage)
    }

    /// Reads the new lines, and checks the rules.
    pub(crate) fn gather(&mut self, workspace: &Workspace) -> Result<(), Failure> {
        let mut touched = Vec::new();
        for line in self.ledger.lines(&workspace.ledger())? {
            touched.push(line.key.clone());
            self.logs.entry(line.key.clone()).or_default().ledger.push(line);
        }
        for line in self.answers.lines(&workspace.answers())? {
            touched.push(line.key.clone());
            self.logs.entry(line.key.clone()).or_default().answers.push(line);
        }
        touched.sort_unstable();
        touched.dedup();
        for key in touched {
            let log = &self.logs[&key];
            if let Some(violated) = broken(&self.plan(&key), log) {
                return Err(
                    Violation { message: format!("{violated} (key {key})"), lines: log.lines() }.into()
                );
            }
        }
        Ok(())
    }

    pub(crate) fn commands(&self) -> usize {
        self.logs.values().map(|log| log.answers.len()).sum()
    }

    pub(crate) fn effects(&self) -> usize {
        self.logs.values().map(|log| log.of(Kind::Effect).count()).sum()
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.logs.values().map(|log| log.acknowledged().count()).sum()
    }

    pub(crate) fn expired(&self) -> usize {
        let expired = |line: &&Line| line.kind == Kind::Expired;
        self.logs.values().map(|log| log.answers.iter().filter(expired).count()).sum()
    }

    pub(crate) fn take_overs(&self) -> usize {
        self.logs.values().map(KeyLog::take_overs).sum()
    }
}

/// Whether a key's lines break a promise.
type Rule = fn(&Plan, &KeyLog) -> bool;

/// The promise that a key's lines break, if any.
fn broken(plan: &Plan, log: &KeyLog) -> Option<&'static str> {
    const RULES: &[(Rule, &str)] = &[
        (runs_twice, "an effect that is not deduplicated happened twice within its key's retention"),
        (changes_its_operation_id, "two attempts of one command had different operation ids"),
        (runs_after_acknowledged, "an attempt was started although an outcome had been acknowledged"),
        (acknowledges_two_outcomes, "two different outcomes were acknowledged for one key"),
        (acknowledges_nothing, "a success was acknowledged without an effect"),
        (
            |_, log| log.answers.iter().any(|line| line.kind == Kind::Wrong),
            "a caller got an impossible answer",
        ),
        (
            answers_differ,
            "a caller got another answer although an outcome had been acknowledged before it asked",
        ),
    ];
    RULES.iter().find(|(rule, _)| rule(plan, log)).map(|(_, message)| *message)
}

fn runs_twice(plan: &Plan, log: &KeyLog) -> bool {
    if plan.class != Class::External {
        return false;
    }
    let mut at: Vec<u64> = log.of(Kind::Effect).map(|line| line.at).collect();
    at.sort_unstable();
    // The line is older than the outcome, whose retention begins when it is stored.
    at.windows(2).any(|pair| pair[1] - pair[0] + STAMP_LAG_MS < plan.retention_ms())
}

fn changes_its_operation_id(_: &Plan, log: &KeyLog) -> bool {
    let mut ids: Vec<&str> = log.begun().map(|line| line.operation_id.as_str()).collect();
    ids.dedup();
    ids.len() > 1
}

fn runs_after_acknowledged(_: &Plan, log: &KeyLog) -> bool {
    let ran = || log.acknowledged().filter(|line| line.kind == Kind::Ran);
    // A fence is never lower than the time of its claim.
    let again =
        |begun: &Line, ran: &Line| begun.fence > ran.fence && begun.fence + STAMP_LAG_MS < ran.expires;
    log.begun().any(|begun| ran().any(|ran| again(begun, ran)))
}

fn acknowledges_two_outcomes(plan: &Plan, log: &KeyLog) -> bool {
    let mut outcomes: Vec<(u64, &str)> =
        log.acknowledged().map(|line| (line.expires, line.detail.as_str())).collect();
    outcomes.sort_unstable();
    outcomes.dedup();
    // The later outcome became final its ttl before it expires: not before the retention of the earlier one
    // was over.
    let ttl = millis(plan.policy.ttl);
    let tombstone = plan.retention_ms() - ttl;
    outcomes.windows(2).any(|pair| pair[1].0 - ttl + STAMP_LAG_MS < pair[0].0 + tombstone)
}

fn acknowledges_nothing(plan: &Plan, log: &KeyLog) -> bool {
    let happened = |detail: &str| log.of(Kind::Effect).any(|line| line.detail == detail);
    plan.behaviour != crate::plan::Behaviour::Refuses
        && log.acknowledged().any(|line| !happened(&line.detail))
}

/// Even if a later answer is right: the caller may have acted on the wrong one.
fn answers_differ(_: &Plan, log: &KeyLog) -> bool {
    let differs = |answer: &Line, promise: &Line| {
        let is_same =
            answer.acknowledges() && (&answer.detail, answer.expires) == (&promise.detail, promise.expires);
        answer.kind != Kind::Nothing && answer.asked > promise.at && answer.at < promise.expires && !is_same
    };
    log.answers.iter().any(|answer| log.acknowledged().any(|promise| differs(answer, promise)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Behaviour;

    fn plan(class: Class) -> Plan {
        let policy = semel::core::policy::Policy::new(class).into();
        Plan { class, policy, behaviour: Behaviour::Works, ..Plan::of(1, "k", None) }
    }

    fn line(kind: Kind, fence: u64, at: u64, expires: u64) -> Line {
        Line { fence, at, asked: at, expires, detail: "hash".to_owned(), ..Line::new(kind, "run", "k") }
    }

    fn log(lines: &[Line]) -> KeyLog {
        let in_ledger = [Kind::Issue, Kind::Begin, Kind::Effect, Kind::NotApplied, Kind::Doubt];
        let is_answer = |line: &&Line| !in_ledger.contains(&line.kind);
        let (answers, ledger) = lines.iter().partition::<Vec<_>, _>(is_answer);
        KeyLog {
            ledger: ledger.into_iter().cloned().collect(),
            answers: answers.into_iter().cloned().collect(),
        }
    }

    const DAY: u64 = 24 * 3_600_000;

    #[test]
    fn an_ordinary_command_breaks_nothing() {
        let lines = [
            line(Kind::Begin, 100, 101, 0),
            line(Kind::Effect, 100, 102, 0),
            line(Kind::Ran, 100, 103, 103 + DAY),
            line(Kind::Replay, 0, 104, 103 + DAY),
        ];
        assert_eq!(broken(&plan(Class::External), &log(&lines)), None);
    }

    #[test]
    fn two_effects_are_found_unless_the_effects_system_deduplicates() {
        let lines = [line(Kind::Effect, 100, 102, 0), line(Kind::Effect, 200, 205, 0)];
        assert!(
            broken(&plan(Class::External), &log(&lines)).is_some_and(|message| message.contains("twice"))
        );
        assert_eq!(broken(&plan(Class::Downstream), &log(&lines)), None);
        let later = [line(Kind::Effect, 100, 102, 0), line(Kind::Effect, 200, 102 + 31 * DAY, 0)];
        assert_eq!(broken(&plan(Class::External), &log(&later)), None);
    }

    #[test]
    fn an_attempt_after_an_acknowledgement_is_found() {
        let lines = [
            line(Kind::Effect, 100, 102, 0),
            line(Kind::Ran, 100, 103, 103 + DAY),
            line(Kind::Begin, 200, 201, 0),
        ];
        let message = broken(&plan(Class::Downstream), &log(&lines)).expect("broken");
        assert!(message.contains("although an outcome had been acknowledged"), "{message}");
    }

    #[test]
    fn two_outcomes_of_one_key_are_found() {
        let other = Line { detail: "other".to_owned(), ..line(Kind::Replay, 0, 110, 103 + DAY) };
        let effect = line(Kind::Effect, 100, 102, 0);
        let other_effect = Line { detail: "other".to_owned(), ..effect.clone() };
        let lines = [effect, other_effect, line(Kind::Ran, 100, 103, 103 + DAY), other];
        let message = broken(&plan(Class::Downstream), &log(&lines)).expect("broken");
        assert!(message.contains("two different outcomes"), "{message}");
    }

    #[test]
    fn an_accepted_stale_answer_is_found() {
        let message_for = |kind, asked, at| {
            let stale = Line { asked, ..line(kind, 0, at, 0) };
            let (effect, ran) = (line(Kind::Effect, 100, 102, 0), line(Kind::Ran, 100, 103, 103 + DAY));
            broken(&plan(Class::Downstream), &log(&[effect, ran.clone(), stale, Line { at: 900, ..ran }]))
        };
        for kind in [Kind::InProgress, Kind::Unknown, Kind::Open, Kind::Expired] {
            assert!(
                message_for(kind, 104, 105).is_some_and(|message| message.contains("got another answer")),
                "{kind:?}"
            );
            assert_eq!(message_for(kind, 103, 105), None, "{kind:?} asked before it was acknowledged");
            assert_eq!(message_for(kind, 104, 103 + DAY), None, "{kind:?} answered after its expiry");
        }
        assert_eq!(message_for(Kind::Nothing, 104, 105), None, "no answer contradicts nothing");
    }

    #[test]
    fn a_success_without_effect_and_a_wrong_response_are_found() {
        let message = broken(&plan(Class::External), &log(&[line(Kind::Ran, 1, 2, DAY)])).expect("broken");
        assert!(message.contains("without an effect"), "{message}");
        let message = broken(&plan(Class::External), &log(&[line(Kind::Wrong, 1, 2, 0)])).expect("broken");
        assert!(message.contains("impossible"), "{message}");
    }
}
