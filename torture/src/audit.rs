//! The audit: asks for acknowledged outcomes again, and compares the store with the journals. It runs while
//! no worker is alive, and in a separate process, so that no answer comes from a cache.

use crate::chance::Chance;
use crate::client::Client;
use crate::clock::Stopwatch;
use crate::evidence::{Evidence, KeyLog, Violation};
use crate::journal::{Kind, Line};
use crate::plan::LEASE_MAX;
use crate::sabotage::Sabotage;
use crate::workspace::{Failure, Open, Workspace};
use semel::core::policy::Class;
use semel::core::record::{Doubt, Record, State, StateName};
use semel::core::time::Time;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// How many requests run at once.
const CONCURRENT_MAX: usize = 64;
/// How often a key that is in progress is asked again, although no process is alive that could run it.
const TRIES: u32 = 20;
/// How long a key is asked again whose attempts the auditor itself cannot finish, because its store is slower than a
/// lease.
const PATIENCE: Duration = Duration::from_mins(1);

/// The counts of an audit without violations.
#[derive(Debug, Default)]
pub(crate) struct Checked {
    pub(crate) replays: usize,
    pub(crate) unknown: BTreeSet<String>,
}

/// Which keys an audit checks.
pub(crate) enum Reach<'a> {
    /// A sample of the acknowledged keys.
    Sample(&'a mut Chance),
    /// Every key, after all leases have expired.
    Everything,
}

/// The context of an audit.
pub(crate) struct Auditor<'a> {
    pub(crate) workspace: &'a Workspace,
    pub(crate) seed: u64,
    pub(crate) run: String,
    pub(crate) sabotage: Option<Sabotage>,
}

impl Auditor<'_> {
    /// Audits. A broken promise is a [`Violation`].
    pub(crate) async fn audit(&self, evidence: &mut Evidence, reach: Reach<'_>) -> Result<Checked, Failure> {
        evidence.gather(self.workspace)?;
        let keys = match reach {
            Reach::Everything => {
                tokio::time::sleep(LEASE_MAX + Duration::from_millis(200)).await;
                evidence.logs.keys().cloned().collect()
            }
            Reach::Sample(chance) => sample(evidence, chance),
        };
        let open = Open::new(&self.workspace.address, &self.run, None)
            .await
            .map_err(|error| Violation::new(format!("the store can no longer be opened: {error}")))?;
        let unsound = open.verify().await?;
        if !unsound.is_empty() {
            return Err(
                Violation { lines: unsound, ..Violation::new("the store's file is not intact") }.into()
            );
        }
        let client = Client::new(open.engine.clone(), self.workspace, self.seed, &self.run, self.sabotage)?;
        let mut checked = Checked::default();
        for some in keys.chunks(CONCURRENT_MAX) {
            let mut asked = JoinSet::new();
            for key in some {
                asked.spawn(ask(Arc::clone(&client), key.clone()));
            }
            while let Some(answer) = asked.join_next().await {
                let (line, record) = answer??;
                let log = &evidence.logs[&line.key];
                if let Err(violated) = judge(evidence, log, &line, record.as_ref(), &mut checked) {
                    let mut lines = log.lines();
                    lines.push(format!("audit    {line}"));
                    lines.extend(record.iter().flat_map(history));
                    return Err(Violation { message: format!("{violated} (key {})", line.key), lines }.into());
                }
            }
        }
        open.close().await;
        // The auditor's own attempts count as evidence too.
        evidence.gather(self.workspace)?;
        Ok(checked)
    }
}

/// Acknowledged keys with a long retention: the newest, and a sample of all.
fn sample(evidence: &Evidence, chance: &mut Chance) -> Vec<String> {
    let kept = |(key, log): &(&String, &KeyLog)| log.promise().is_some() && evidence.plan(key).is_kept_long();
    let mut keys: Vec<(u64, &String)> = evidence
        .logs
        .iter()
        .filter(kept)
        .map(|(key, log)| (log.promise().map_or(0, |line| line.at), key))
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

/// Asks until the answer is final, and reads the record.
async fn ask(client: Arc<Client>, key: String) -> Result<(Line, Option<Record>), Failure> {
    let (began, mut tries) = (Stopwatch::start(), 0);
    loop {
        let line = client.ask(&key).await?;
        let (now, record) = record(&client, &line).await?;
        let is_slow = record.as_ref().is_some_and(|record| is_slow(record, now, &client.run));
        let asks_again = match line.kind {
            Kind::Nothing => began.lap() < PATIENCE,
            Kind::InProgress | Kind::Unknown if is_slow => began.lap() < PATIENCE,
            Kind::InProgress => tries < TRIES,
            _ => false,
        };
        if !asks_again {
            return Ok((line, record));
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The record, and the store's time.
async fn record(client: &Client, line: &Line) -> Result<(Time, Option<Record>), Failure> {
    let Ok(operation_id) = line.operation_id.parse() else { return Ok((Time::from_millis(0), None)) };
    let (now, item) = client.engine.store().find(operation_id).await?;
    Ok((now, item.and_then(|item| item.record().cloned())))
}

/// The processes that claimed the record, the last one first.
fn owners(record: &Record) -> impl Iterator<Item = &str> {
    let claims = [StateName::Claimed, StateName::Processing];
    let entries = record.history().entries().iter().rev();
    entries.filter(move |entry| claims.contains(&entry.to)).map(|entry| &*entry.who)
}

/// The process that owns the record's attempt.
fn owner(record: &Record) -> Option<&str> {
    owners(record).next()
}

/// Whether the lease of `run` expired before it knew how its attempt ended. On a very slow machine this can happen to the
/// auditor itself: its engine will still store the result, so the doubt must disappear. Whoever waits for such an attempt
/// hears that its outcome is unknown, which nobody needs to store.
fn is_slow(record: &Record, now: Time, run: &str) -> bool {
    let may_end_soon = match record.state() {
        State::Unknown { doubt: Doubt::Lapsed, .. } | State::FailedNotReplayable { .. } => true,
        State::Claimed { .. } | State::Processing { .. } => {
            record.lease_until().is_some_and(|end| end <= now)
        }
        _ => false,
    };
    may_end_soon && owner(record) == Some(run)
}

fn judge(
    evidence: &Evidence,
    log: &KeyLog,
    line: &Line,
    record: Option<&Record>,
    checked: &mut Checked,
) -> Result<(), String> {
    if let Some(promise) = log.promise().filter(|promise| promise.expires > line.at) {
        let kept =
            line.kind == Kind::Replay && line.detail == promise.detail && line.expires == promise.expires;
        checked.replays += usize::from(kept);
        return if kept { Ok(()) } else { Err("an acknowledged outcome is lost".to_owned()) };
    }
    match line.kind {
        Kind::InProgress => Err("a key is wedged: in progress, although no process is alive".to_owned()),
        Kind::Nothing => Err("a key gets no answer".to_owned()),
        Kind::Unknown => {
            explained(evidence, log, line, record)?;
            checked.unknown.insert(line.key.clone());
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether there is a reason for the unknown outcome.
fn explained(evidence: &Evidence, log: &KeyLog, line: &Line, record: Option<&Record>) -> Result<(), String> {
    let Some(record) = record else { return Err("an outcome is unknown, but has no record".to_owned()) };
    let State::Unknown { doubt, .. } = record.state() else {
        return Err(format!("an outcome was reported as unknown, but its record is {}", record.state_name()));
    };
    // At any time: a request can reach a server after its process was killed.
    let died = |run: &str| evidence.killed.contains(run);
    let is_explained = match doubt {
        Doubt::Lapsed => owner(record).is_some_and(died),
        Doubt::Owner if log.ended_in_doubt(record.fence()) => true,
        // The last attempt had no effect, but the owner of an earlier one died: the doubt remains.
        Doubt::Owner if evidence.plan(&line.key).class == Class::Downstream => {
            owners(record).any(died) || log.begun().any(|begun| log.ended_in_doubt(begun.fence))
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
    use semel::core::machine::{self, Begin, Command, Decision, Found, NewAttempt, Stamp};
    use semel::core::policy::Policy;
    use semel::core::record::Token;

    static PAYLOAD: Fingerprint = Fingerprint::from_bytes([4; 32]);
    const NOW: u64 = 1_800_000_000_000;
    const DAY: u64 = 24 * 3_600_000;

    /// Claimed by `run`.
    fn claimed(run: &str) -> Record {
        attempt(run, None)
    }

    /// Claimed by `run`, and found a day later by another process.
    fn lapsed(run: &str) -> Record {
        attempt(run, Some("audit-1"))
    }

    fn attempt(run: &str, found_by: Option<&str>) -> Record {
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
        let new_attempt = |token| NewAttempt { token: Token::from_random(token), begin: Begin::Processing };
        let stamp = |at, who| Stamp::new(Time::from_millis(at), who, "");
        let claim = machine::decide(Found::Nothing, &command, new_attempt(1), stamp(NOW, run));
        let Decision::Run(claim) = claim else { panic!("{claim:?}") };
        let Some(found_by) = found_by else { return claim.next };
        let found =
            machine::decide(Found::Record(&claim.next), &command, new_attempt(2), stamp(NOW + DAY, found_by));
        let Decision::MarkUnknown(unknown) = found else { panic!("{found:?}") };
        unknown.next
    }

    fn is_explained(evidence: &Evidence, record: &Record) -> bool {
        let line = Line::new(Kind::Unknown, "audit-1", "k");
        explained(evidence, &KeyLog::default(), &line, Some(record)).is_ok()
    }

    #[test]
    fn only_the_death_of_its_owner_explains_a_lapse() {
        let mut evidence = Evidence::new(1, None);
        assert!(!is_explained(&evidence, &lapsed("3a")), "no process died");
        evidence.killed.insert("3b".to_owned());
        assert!(!is_explained(&evidence, &lapsed("3a")), "another process died");
        evidence.killed.insert("3a".to_owned());
        assert!(is_explained(&evidence, &lapsed("3a")));
    }

    /// The auditor is alive, and reports the result of its attempt itself. It must not be considered dead.
    #[test]
    fn the_auditors_own_lapse_must_expire() {
        let (soon, later) = (Time::from_millis(NOW + 1), Time::from_millis(NOW + DAY));
        for record in [lapsed("audit-1"), claimed("audit-1")] {
            assert!(is_slow(&record, later, "audit-1"), "{record:?}");
        }
        assert!(!is_slow(&claimed("audit-1"), soon, "audit-1"), "its lease is not over");
        for record in [lapsed("3a"), claimed("3a")] {
            assert!(
                !is_slow(&record, later, "audit-1"),
                "no process is left that could report it: {record:?}"
            );
        }
        assert!(
            !is_explained(&Evidence::new(1, None), &lapsed("audit-1")),
            "it is reported if it does not expire"
        );
    }
}
