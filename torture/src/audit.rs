//! The audit: what was acknowledged is asked for again, and what the store says is held against what was written down.
//!
//! What lives here: the questions, while no worker is alive. What must never: an answer taken for granted because it came
//! from a cache; the auditor is a process of its own.

use crate::chance::Chance;
use crate::client::Client;
use crate::evidence::{Evidence, Trail, Violation};
use crate::journal::{Kind, Line};
use crate::place::{Failure, Open, Place};
use crate::plan::LEASE_MAX;
use crate::sabotage::Sabotage;
use semel::core::policy::Class;
use semel::core::record::{Doubt, Record, State, StateName};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many questions are under way at once.
const AT_ONCE: usize = 64;
/// How often a key that is said to be in progress is asked again, while nobody is alive who could be at it.
const TRIES: u32 = 20;

/// What an audit found in order.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) replays: usize,
    pub(crate) unknown: BTreeSet<String>,
}

/// Whom an audit asks.
pub(crate) enum Reach<'a> {
    /// Some of what was acknowledged.
    Sample(&'a mut Chance),
    /// Every key there is, once all leases are dead.
    Everything,
}

/// Who audits what.
pub(crate) struct Auditor<'a> {
    pub(crate) place: &'a Place,
    pub(crate) seed: u64,
    pub(crate) run: String,
    pub(crate) sabotage: Option<Sabotage>,
}

impl Auditor<'_> {
    /// Audits. A promise that was not kept is a [`Violation`].
    pub(crate) async fn audit(&self, evidence: &mut Evidence, reach: Reach<'_>) -> Result<Checked, Failure> {
        evidence.gather(self.place)?;
        let keys = match reach {
            Reach::Everything => {
                tokio::time::sleep(LEASE_MAX + Duration::from_millis(200)).await;
                evidence.trails.keys().cloned().collect()
            }
            Reach::Sample(chance) => sample(evidence, chance),
        };
        let open = Open::new(&self.place.address, &self.run, None)
            .await
            .map_err(|error| Violation::new(format!("the store cannot be opened any more: {error}")))?;
        let unsound = open.verify().await?;
        if !unsound.is_empty() {
            return Err(
                Violation { lines: unsound, ..Violation::new("the store's file is not sound") }.into()
            );
        }
        let client = Client::new(open.engine.clone(), self.place, self.seed, &self.run, self.sabotage)?;
        let mut checked = Checked::default();
        for some in keys.chunks(AT_ONCE) {
            let mut asked = JoinSet::new();
            for key in some {
                asked.spawn(ask(Arc::clone(&client), key.clone()));
            }
            while let Some(answer) = asked.join_next().await {
                let (line, record) = answer??;
                let trail = &evidence.trails[&line.key];
                if let Err(what) = judge(evidence, trail, &line, record.as_ref(), &mut checked) {
                    let mut lines = trail.told();
                    lines.push(format!("audit    {line}"));
                    lines.extend(record.iter().flat_map(history));
                    return Err(Violation { what: format!("{what} (key {})", line.key), lines }.into());
                }
            }
        }
        open.close().await;
        // The auditor's own attempts are evidence too.
        evidence.gather(self.place)?;
        Ok(checked)
    }
}

/// What is acknowledged and kept long: the newest, and some of all.
fn sample(evidence: &Evidence, chance: &mut Chance) -> Vec<String> {
    let kept =
        |(key, trail): &(&String, &Trail)| trail.promise().is_some() && evidence.plan(key).is_kept_long();
    let mut keys: Vec<(u64, &String)> = evidence
        .trails
        .iter()
        .filter(kept)
        .map(|(key, trail)| (trail.promise().map_or(0, |line| line.at), key))
        .collect();
    keys.sort_unstable();
    let newest = keys.len().saturating_sub(150);
    let (old, new) = keys.split_at(newest);
    let mut chosen: BTreeSet<&String> = new.iter().map(|(_, key)| *key).collect();
    if !old.is_empty() {
        chosen.extend((0..100).map(|_| old[chance.index(old.len())].1));
    }
    chosen.into_iter().cloned().collect()
}

/// Asks until somebody can have the last word, and looks at the record.
async fn ask(client: Arc<Client>, key: String) -> Result<(Line, Option<Record>), Failure> {
    let mut tries = 0;
    loop {
        let line = client.ask(&key).await?;
        let record = record(&client, &line).await?;
        let passes = match line.kind {
            Kind::InProgress | Kind::Nothing => true,
            Kind::Unknown => record.as_ref().is_some_and(|record| lapsed_for(record, &client.run)),
            _ => false,
        };
        if !passes || tries == TRIES {
            return Ok((line, record));
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn record(client: &Client, line: &Line) -> Result<Option<Record>, Failure> {
    let Ok(operation_id) = line.operation_id.parse() else { return Ok(None) };
    let (_, item) = client.engine.store().find(operation_id).await?;
    Ok(item.and_then(|item| item.record().cloned()))
}

/// The process whose attempt the record is in.
fn owner(record: &Record) -> Option<&str> {
    let claims = [StateName::Claimed, StateName::Processing];
    let entries = record.history().entries();
    entries.iter().rev().find(|entry| claims.contains(&entry.to)).map(|entry| &*entry.who)
}

/// Whether nobody can tell because the lease of `run` was over. On a machine so slow that this happens to the auditor itself, its engine
/// is still about to store what became of the attempt: the doubt has to pass.
fn lapsed_for(record: &Record, run: &str) -> bool {
    matches!(record.state(), State::Unknown { doubt: Doubt::Lapsed, .. }) && owner(record) == Some(run)
}

fn judge(
    evidence: &Evidence,
    trail: &Trail,
    line: &Line,
    record: Option<&Record>,
    checked: &mut Checked,
) -> Result<(), String> {
    if let Some(promise) = trail.promise().filter(|promise| promise.expires > line.at) {
        let kept = line.kind == Kind::Replay && line.what == promise.what && line.expires == promise.expires;
        checked.replays += usize::from(kept);
        return if kept { Ok(()) } else { Err("an acknowledged outcome is lost".to_owned()) };
    }
    match line.kind {
        Kind::InProgress => Err("a key is wedged: in progress, though nobody is alive".to_owned()),
        Kind::Nothing => Err("a key gets no answer".to_owned()),
        Kind::Unknown => {
            explained(evidence, trail, line, record)?;
            checked.unknown.insert(line.key.clone());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether there is a reason why nobody can tell.
fn explained(evidence: &Evidence, trail: &Trail, line: &Line, record: Option<&Record>) -> Result<(), String> {
    let Some(record) = record else { return Err("an outcome is unknown without a record of it".to_owned()) };
    let State::Unknown { doubt, .. } = record.state() else {
        return Err(format!("an outcome was told to be unknown whose record is {}", record.state_name()));
    };
    // Whenever it was: what a process has sent can reach a server after the process was killed.
    let died = |run: &str| evidence.killed.contains(run);
    let is_explained = match doubt {
        Doubt::Lapsed => owner(record).is_some_and(died),
        Doubt::Owner if trail.doubted(record.fence()) => true,
        // Nothing came of the last attempt, but an earlier one's owner died: the doubt is kept.
        Doubt::Owner if evidence.plan(&line.key).class == Class::Downstream => {
            trail.begun().any(|begun| died(&begun.run) || trail.doubted(begun.fence))
        }
        Doubt::Owner => false,
    };
    if is_explained { Ok(()) } else { Err("an outcome is unknown, and nothing explains it".to_owned()) }
}

fn history(record: &Record) -> Vec<String> {
    let now = format!(
        "record   {} attempt {} fence {} version {}",
        record.state_name(),
        record.attempt(),
        record.fence(),
        record.version()
    );
    let past = record.history().entries().iter().map(|entry| {
        format!(
            "history  {} {} attempt {} by {} {}",
            entry.at.as_millis(),
            entry.to,
            entry.attempt,
            entry.who,
            entry.why
        )
    });
    std::iter::once(now).chain(past).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::core::fingerprint::Fingerprint;
    use semel::core::id::{CallerHash, CommandId, KeyHash, OperationId};
    use semel::core::machine::{self, Begin, Command, Decision, Found, Stamp, Ticket};
    use semel::core::policy::Policy;
    use semel::core::record::Token;
    use semel::core::time::Time;

    static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
    const NOW: u64 = 1_800_000_000_000;
    const DAY: u64 = 24 * 3_600_000;

    /// Claimed by `run`, and found a day later by somebody else.
    fn lapsed(run: &str) -> Record {
        let id = CommandId::from_bytes([1; 32]);
        let command = Command {
            id,
            operation_id: OperationId::of(&id),
            key_hash: KeyHash::from_bytes([2; 32]),
            caller_hash: CallerHash::from_bytes([3; 32]),
            operation: "external".into(),
            policy: Policy::new(Class::External).into(),
            fingerprint: PAYLOAD,
            payload: &PAYLOAD,
            generation: 0,
        };
        let ticket = |token| Ticket { token: Token::from_random(token), begin: Begin::Processing };
        let stamp = |at, who| Stamp::new(Time::from_millis(at), who, "");
        let claim = machine::decide(Found::Nothing, &command, ticket(1), stamp(NOW, run));
        let Decision::Run(claim) = claim else { panic!("{claim:?}") };
        let found =
            machine::decide(Found::Record(&claim.next), &command, ticket(2), stamp(NOW + DAY, "audit-1"));
        let Decision::MarkUnknown(unknown) = found else { panic!("{found:?}") };
        unknown.next
    }

    fn is_explained(evidence: &Evidence, record: &Record) -> bool {
        let line = Line::new(Kind::Unknown, "audit-1", "k");
        explained(evidence, &Trail::default(), &line, Some(record)).is_ok()
    }

    #[test]
    fn only_the_death_of_its_owner_explains_a_lapse() {
        let mut evidence = Evidence::new(1, None);
        assert!(!is_explained(&evidence, &lapsed("3a")), "nobody died");
        evidence.killed.insert("3b".to_owned());
        assert!(!is_explained(&evidence, &lapsed("3a")), "somebody else died");
        evidence.killed.insert("3a".to_owned());
        assert!(is_explained(&evidence, &lapsed("3a")));
    }

    /// The auditor is alive, and says itself what became of its attempt. It must not be taken for dead.
    #[test]
    fn a_lapse_of_the_auditors_own_has_to_pass() {
        assert!(lapsed_for(&lapsed("audit-1"), "audit-1"));
        assert!(!lapsed_for(&lapsed("3a"), "audit-1"), "nobody is left who could say it");
        assert!(
            !is_explained(&Evidence::new(1, None), &lapsed("audit-1")),
            "and if it does not pass, it is reported"
        );
    }
}
