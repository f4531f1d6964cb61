//! What the processes wrote down, and what must hold of it whatever the store says.
//!
//! What lives here: the lines by key, who was killed when, and the rules that need nothing else. What must never: a rule
//! that a slow machine could break; times are compared only where both come from one chain of causes.

use crate::journal::{Kind, Line, Tail};
use crate::place::{Failure, Place};
use crate::plan::{Plan, millis};
use crate::sabotage::Sabotage;
use semel::core::policy::Class;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// By how much a stamp may be older than the write that bears it: as long as a question to the store took. Only where
/// retention is short does it matter.
const STAMP_LAG_MS: u64 = 300;

/// A promise that was not kept.
#[derive(Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    /// The lines about the key, and the record's history.
    pub(crate) lines: Vec<String>,
}

impl Violation {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), lines: Vec::new() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = format!("VIOLATED: {}", self.what);
        for line in &self.lines {
            let _ = write!(text, "\n  {line}");
        }
        f.write_str(&text)
    }
}

impl std::error::Error for Violation {}

/// All lines about one key, in the order in which they were written.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(crate) ledger: Vec<Line>,
    pub(crate) answers: Vec<Line>,
}

impl Trail {
    fn of(&self, kind: Kind) -> impl Iterator<Item = &Line> {
        self.ledger.iter().filter(move |line| line.kind == kind)
    }

    fn acknowledged(&self) -> impl Iterator<Item = &Line> {
        self.answers.iter().filter(|line| line.acknowledges())
    }

    /// The acknowledgement that is promised for longest.
    pub(crate) fn promise(&self) -> Option<&Line> {
        self.acknowledged().max_by_key(|line| line.expires)
    }

    /// Whether the work of this attempt itself said that it cannot tell.
    pub(crate) fn doubted(&self, fence: u64) -> bool {
        self.of(Kind::Doubt).any(|line| line.fence == fence)
    }

    pub(crate) fn begun(&self) -> impl Iterator<Item = &Line> {
        self.of(Kind::Begin)
    }

    pub(crate) fn told(&self) -> Vec<String> {
        let ledger = self.ledger.iter().map(|line| format!("ledger   {line}"));
        ledger.chain(self.answers.iter().map(|line| format!("answers  {line}"))).collect()
    }

    /// Attempts whose forerunner did not say how it ended.
    fn take_overs(&self) -> usize {
        let ended = |attempt| self.of(Kind::NotApplied).any(|line| line.attempt == attempt);
        self.begun().filter(|line| line.attempt > 1 && !ended(line.attempt - 1)).count()
    }
}

/// Everything that was written down so far.
pub(crate) struct Evidence {
    ledger: Tail,
    answers: Tail,
    pub(crate) trails: BTreeMap<String, Trail>,
    /// The processes that were killed.
    pub(crate) killed: BTreeSet<String>,
    seed: u64,
    sabotage: Option<Sabotage>,
}

impl Evidence {
    pub(crate) fn new(seed: u64, sabotage: Option<Sabotage>) -> Self {
        let (ledger, answers) = (Tail::from_the_start(), Tail::from_the_start());
        Self { ledger, answers, trails: BTreeMap::new(), killed: BTreeSet::new(), seed, sabotage }
    }

    pub(crate) fn plan(&self, key: &str) -> Plan {
        Plan::of(self.seed, key, self.sabotage)
    }

    /// Reads what was written since, and holds it against the rules.
    pub(crate) fn gather(&mut self, place: &Place) -> Result<(), Failure> {
        let mut touched = Vec::new();
        for line in self.ledger.lines(&place.ledger())? {
            touched.push(line.key.clone());
            self.trails.entry(line.key.clone()).or_default().ledger.push(line);
        }
        for line in self.answers.lines(&place.answers())? {
            touched.push(line.key.clone());
            self.trails.entry(line.key.clone()).or_default().answers.push(line);
        }
        touched.sort_unstable();
        touched.dedup();
        for key in touched {
            let trail = &self.trails[&key];
            if let Some(what) = broken(&self.plan(&key), trail) {
                return Err(Violation { what: format!("{what} (key {key})"), lines: trail.told() }.into());
            }
        }
        Ok(())
    }

    pub(crate) fn commands(&self) -> usize {
        self.trails.values().map(|trail| trail.answers.len()).sum()
    }

    pub(crate) fn effects(&self) -> usize {
        self.trails.values().map(|trail| trail.of(Kind::Effect).count()).sum()
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.trails.values().map(|trail| trail.acknowledged().count()).sum()
    }

    pub(crate) fn expired(&self) -> usize {
        let expired = |line: &&Line| line.kind == Kind::Expired;
        self.trails.values().map(|trail| trail.answers.iter().filter(expired).count()).sum()
    }

    pub(crate) fn take_overs(&self) -> usize {
        self.trails.values().map(Trail::take_overs).sum()
    }
}

/// Whether a key's lines break a promise.
type Rule = fn(&Plan, &Trail) -> bool;

/// Which promise a key's lines break, if any.
fn broken(plan: &Plan, trail: &Trail) -> Option<&'static str> {
    const RULES: &[(Rule, &str)] = &[
        (runs_twice, "an effect that nobody deduplicates happened twice within its key's retention"),
        (changes_its_name, "two attempts of one command bore different operation ids"),
        (runs_after_acknowledged, "an attempt was begun although an outcome had been acknowledged"),
        (acknowledges_two_outcomes, "two different outcomes were acknowledged for one key"),
        (acknowledges_nothing, "a success was acknowledged that no effect belongs to"),
        (|_, trail| trail.answers.iter().any(|line| line.kind == Kind::Wrong), "a caller was told nonsense"),
        (
            tells_otherwise,
            "a caller was told otherwise although an outcome had been acknowledged before it asked",
        ),
    ];
    RULES.iter().find(|(rule, _)| rule(plan, trail)).map(|(_, what)| *what)
}

fn runs_twice(plan: &Plan, trail: &Trail) -> bool {
    if plan.class != Class::External {
        return false;
    }
    let mut at: Vec<u64> = trail.of(Kind::Effect).map(|line| line.at).collect();
    at.sort_unstable();
    // The line is older than the outcome, whose retention begins when it is stored.
    at.windows(2).any(|pair| pair[1] - pair[0] + STAMP_LAG_MS < plan.retention_ms())
}

fn changes_its_name(_: &Plan, trail: &Trail) -> bool {
    let mut ids: Vec<&str> = trail.begun().map(|line| line.operation_id.as_str()).collect();
    ids.dedup();
    ids.len() > 1
}

fn runs_after_acknowledged(_: &Plan, trail: &Trail) -> bool {
    let ran = || trail.acknowledged().filter(|line| line.kind == Kind::Ran);
    // A fence is never below the time of its claim.
    let again =
        |begun: &Line, ran: &Line| begun.fence > ran.fence && begun.fence + STAMP_LAG_MS < ran.expires;
    trail.begun().any(|begun| ran().any(|ran| again(begun, ran)))
}

fn acknowledges_two_outcomes(plan: &Plan, trail: &Trail) -> bool {
    let mut outcomes: Vec<(u64, &str)> =
        trail.acknowledged().map(|line| (line.expires, line.what.as_str())).collect();
    outcomes.sort_unstable();
    outcomes.dedup();
    // The later one became final its ttl before it expires: not before the earlier one's retention was over.
    let ttl = millis(plan.policy.ttl);
    let tombstone = plan.retention_ms() - ttl;
    outcomes.windows(2).any(|pair| pair[1].0 - ttl + STAMP_LAG_MS < pair[0].0 + tombstone)
}

fn acknowledges_nothing(plan: &Plan, trail: &Trail) -> bool {
    let happened = |what: &str| trail.of(Kind::Effect).any(|line| line.what == what);
    plan.nature != crate::plan::Nature::Refuses && trail.acknowledged().any(|line| !happened(&line.what))
}

/// Also where it is put right later: whoever was told it may have acted on it.
fn tells_otherwise(_: &Plan, trail: &Trail) -> bool {
    let differs = |told: &Line, promise: &Line| {
        let is_same = told.acknowledges() && (&told.what, told.expires) == (&promise.what, promise.expires);
        told.kind != Kind::Nothing && told.asked > promise.at && told.at < promise.expires && !is_same
    };
    trail.answers.iter().any(|told| trail.acknowledged().any(|promise| differs(told, promise)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Nature;

    fn plan(class: Class) -> Plan {
        let policy = semel::core::policy::Policy::new(class).into();
        Plan { class, policy, nature: Nature::Works, ..Plan::of(1, "k", None) }
    }

    fn line(kind: Kind, fence: u64, at: u64, expires: u64) -> Line {
        Line { fence, at, asked: at, expires, what: "hash".to_owned(), ..Line::new(kind, "run", "k") }
    }

    fn trail(lines: &[Line]) -> Trail {
        let in_ledger = [Kind::Issue, Kind::Begin, Kind::Effect, Kind::NotApplied, Kind::Doubt];
        let is_answer = |line: &&Line| !in_ledger.contains(&line.kind);
        let (answers, ledger) = lines.iter().partition::<Vec<_>, _>(is_answer);
        Trail {
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
        assert_eq!(broken(&plan(Class::External), &trail(&lines)), None);
    }

    #[test]
    fn two_effects_are_found_unless_the_effects_system_deduplicates() {
        let lines = [line(Kind::Effect, 100, 102, 0), line(Kind::Effect, 200, 205, 0)];
        assert!(broken(&plan(Class::External), &trail(&lines)).is_some_and(|what| what.contains("twice")));
        assert_eq!(broken(&plan(Class::Downstream), &trail(&lines)), None);
        let later = [line(Kind::Effect, 100, 102, 0), line(Kind::Effect, 200, 102 + 31 * DAY, 0)];
        assert_eq!(broken(&plan(Class::External), &trail(&later)), None);
    }

    #[test]
    fn an_attempt_after_an_acknowledgement_is_found() {
        let lines = [
            line(Kind::Effect, 100, 102, 0),
            line(Kind::Ran, 100, 103, 103 + DAY),
            line(Kind::Begin, 200, 201, 0),
        ];
        let told = broken(&plan(Class::Downstream), &trail(&lines)).expect("broken");
        assert!(told.contains("although an outcome had been acknowledged"), "{told}");
    }

    #[test]
    fn two_outcomes_of_one_key_are_found() {
        let other = Line { what: "other".to_owned(), ..line(Kind::Replay, 0, 110, 103 + DAY) };
        let effect = line(Kind::Effect, 100, 102, 0);
        let other_effect = Line { what: "other".to_owned(), ..effect.clone() };
        let lines = [effect, other_effect, line(Kind::Ran, 100, 103, 103 + DAY), other];
        let told = broken(&plan(Class::Downstream), &trail(&lines)).expect("broken");
        assert!(told.contains("two different outcomes"), "{told}");
    }

    #[test]
    fn a_stale_answer_is_found_also_where_it_passes() {
        let told = |kind, asked, at| {
            let stale = Line { asked, ..line(kind, 0, at, 0) };
            let (effect, ran) = (line(Kind::Effect, 100, 102, 0), line(Kind::Ran, 100, 103, 103 + DAY));
            broken(&plan(Class::Downstream), &trail(&[effect, ran.clone(), stale, Line { at: 900, ..ran }]))
        };
        for kind in [Kind::InProgress, Kind::Unknown, Kind::Open, Kind::Expired] {
            assert!(told(kind, 104, 105).is_some_and(|what| what.contains("told otherwise")), "{kind:?}");
            assert_eq!(told(kind, 103, 105), None, "{kind:?} asked before it was acknowledged");
            assert_eq!(told(kind, 104, 103 + DAY), None, "{kind:?} told after its time");
        }
        assert_eq!(told(Kind::Nothing, 104, 105), None, "no answer is no lie");
    }

    #[test]
    fn a_success_without_an_effect_and_nonsense_are_found() {
        let told = broken(&plan(Class::External), &trail(&[line(Kind::Ran, 1, 2, DAY)])).expect("broken");
        assert!(told.contains("no effect belongs to"), "{told}");
        let told = broken(&plan(Class::External), &trail(&[line(Kind::Wrong, 1, 2, 0)])).expect("broken");
        assert!(told.contains("nonsense"), "{told}");
    }
}
