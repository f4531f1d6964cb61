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
                let line = answer??;
                let trail = &evidence.trails[&line.key];
                let record = record(&open, &line).await?;
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

async fn ask(client: Arc<Client>, key: String) -> Result<Line, Failure> {
    let mut line = client.ask(&key).await?;
    for _ in 0..TRIES {
        if !matches!(line.kind, Kind::InProgress | Kind::Nothing) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        line = client.ask(&key).await?;
    }
    Ok(line)
}

async fn record(open: &Open, line: &Line) -> Result<Option<Record>, Failure> {
    let Ok(operation_id) = line.operation_id.parse() else { return Ok(None) };
    let (_, item) = open.engine.store().find(operation_id).await?;
    Ok(item.and_then(|item| item.record().cloned()))
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
    let claims = [StateName::Claimed, StateName::Processing];
    let claim = record.history().entries().iter().rev().find(|entry| claims.contains(&entry.to));
    let died = |run: &str, claimed_at: u64| evidence.killed.get(run).is_some_and(|at| *at >= claimed_at);
    let is_explained = match doubt {
        Doubt::Lapsed => claim.is_some_and(|claim| died(&claim.who, claim.at.as_millis())),
        Doubt::Owner if trail.doubted(record.fence()) => true,
        // Nothing came of the last attempt, but an earlier one's owner died: the doubt is kept.
        Doubt::Owner if evidence.plan(&line.key).class == Class::Downstream => {
            trail.begun().any(|begun| died(&begun.run, begun.at) || trail.doubted(begun.fence))
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
