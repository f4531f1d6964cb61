//! Claiming a command.
//!
//! A first claim needs one round trip: it is inserted without reading first. No attempt runs before its claim is known
//! to be stored.

use crate::call::admission;
use crate::call::answer::Error;
use crate::call::recognise::{self, RecognisedIntent};
use crate::node::Node;
use crate::node::beat;
use crate::node::ownership::Ownership;
use crate::node::store_access::StoreAccess;
use crate::quota::Permit;
use crate::runtime::backoff::Backoff;
use crate::runtime::tasks::Closing;
use crate::sealing::Seal;
use crate::secrets;
use semel_core::id::CommandId;
use semel_core::machine::{self, Command, Decision, Expect, Found, NewAttempt, Reply, Write};
use semel_core::policy::Class;
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading, Written};
use semel_core::time::Time;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SemaphorePermit;

/// The first and the longest pause between two reads for a claim that may still arrive.
const GIVE_BACK_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The same after the claim's lease has expired without an answer of the store.
const LATE_PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// How many such claims a node looks for concurrently: an outage loses many at once, and the recovering store has
/// other clients.
pub(crate) const GIVE_BACK_AT_ONCE_MAX: usize = 16;

/// How often a claim is decided again: in every round, somebody else has written the record.
const ROUNDS_MAX: usize = 32;

/// The result of a claim.
pub(crate) enum Claim {
    /// This node owns the attempt.
    Owned(Ownership),
    /// Nothing to run: the machine has judged this entry.
    Judged(FoundEntry),
    /// The owner was gone and the effect in doubt: the record under that ID is now `UNKNOWN`.
    MarkedUnknown(CommandId),
    /// It was claimed too late to begin. Nothing was sent; it has to be [abandoned](Ownership::abandon).
    Lapsed(Ownership),
}

/// What the store has under the ID of a command.
pub(crate) struct FoundEntry {
    pub(crate) id: CommandId,
    pub(crate) reading: Reading,
}

/// The reason for giving back a late claim.
pub(crate) const LAPSED: &str =
    "the claim was not known to be stored before its lease was over, and nothing was sent";

/// A claim whose answer was lost, and which may still arrive.
pub(crate) struct LostClaim {
    id: CommandId,
    write: Box<Write>,
}

/// Why the claim failed.
pub(crate) struct ClaimError {
    pub(crate) error: Error,
    /// Claims that may still be in the store, or arrive there later.
    pub(crate) lost_claims: Vec<LostClaim>,
}

/// The result of a try that did not decide.
enum Retry {
    /// Decide again from this reading.
    From(Reading),
    /// Locate the command again.
    Locate,
}

/// The node and the command of a claim.
#[derive(Clone, Copy)]
struct Claiming<'a> {
    node: &'a Arc<Node>,
    recognised: &'a RecognisedIntent,
    /// The uptime before all claims were dated.
    started_at: Duration,
}

/// Claims a recognised intent, or returns why it cannot be claimed.
pub(crate) async fn claim(node: &Arc<Node>, recognised: &RecognisedIntent) -> Result<Claim, ClaimError> {
    if let Err(error) = beat::catch_up(&node.store).await {
        return Err(ClaimError { error: error.into(), lost_claims: Vec::new() });
    }
    let started_at = node.clock.uptime();
    let mut recognised = recognised.clone();
    let mut lost_claims = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let again =
            match claim_at_location(Claiming { node, recognised: &recognised, started_at }, &mut lost_claims)
                .await
            {
                Ok(Some(claim)) => return Ok(claim),
                Ok(None) => recognised.again(node),
                Err(error) => Err(error),
            };
        match again {
            Ok(again) => recognised = again,
            // If a claim may be in the store, the error must not say that the store was never reached.
            Err(error) if !lost_claims.is_empty() => {
                return Err(ClaimError { error: error.after_another(), lost_claims });
            }
            Err(error) => return Err(ClaimError { error, lost_claims }),
        }
    }
    Err(ClaimError { error: contended(), lost_claims })
}

/// Claims the command at its current location. `None` if the location has changed meanwhile.
async fn claim_at_location(
    by: Claiming<'_>,
    lost_claims: &mut Vec<LostClaim>,
) -> Result<Option<Claim>, Error> {
    let Claiming { node, recognised, .. } = by;
    let commands = recognised.commands();
    let located = recognise::locate(&node.store, &recognised.view, &commands).await?;
    let command = located.command;
    // If nothing was read, try an insert first.
    let mut looked = located.reading.is_some();
    let mut reading = located.reading.clone().unwrap_or_else(|| Reading::nothing(node.clock.now()));
    for _ in 0..ROUNDS_MAX {
        // Check all of them: a claim whose answer was lost may have arrived and caused the next refusal.
        if let Some(claim) = applied_claim(by, lost_claims, command.id, &reading) {
            return Ok(Some(claim));
        }
        // Again, because this answer may have shown that the clock can be trusted.
        beat::catch_up(&node.store).await?;
        let new_attempt = NewAttempt { token: node.fresh_token(), begin: recognised.intent.begin };
        let mut stamp = node.stamp(reading.now, "");
        if let Some(who) = &recognised.intent.claimed_by {
            stamp.who = who;
        }
        let decision = machine::decide(reading.found(), command, new_attempt, stamp);
        let (write, run) = match decision {
            Decision::Run(write) => (write, true),
            Decision::MarkUnknown(write) => (write, false),
            // Only a claim is refused; read first whether one is needed.
            Decision::Answer(Reply::ClockNotTrusted) if !looked => {
                (reading, looked) = (node.store.get(command.id).await?, true);
                continue;
            }
            Decision::Answer(_) => return Ok(Some(Claim::Judged(FoundEntry { id: command.id, reading }))),
            // A marker that this view does not know: other nodes have moved on.
            Decision::Follow if recognised.view.outgoing.is_none() => {
                node.secrets.refresh_in_time().await?;
                return Ok(None);
            }
            Decision::Follow => return Ok(None),
        };
        if !located.permits(&write.expect) {
            return Ok(None);
        }
        // The next attempt keeps its record's class, not the intent's.
        if run && recognised.intent.has_effect && write.next.policy().class == Class::Local {
            return Err(Error::LocalRecord(write.next.operation_id()));
        }
        // One key is charged once: a claim that may still arrive has stayed charged.
        let is_charged = lost_claims.iter().any(|claim| claim.write.expect == Expect::Absent);
        let needs_permit = write.expect == Expect::Absent && !is_charged;
        let permit = match admit(node, command, recognised, needs_permit, looked).await? {
            Admitted::Yes(permit) => permit,
            Admitted::LookFirst => {
                (reading, looked) = (node.store.get(command.id).await?, true);
                continue;
            }
        };
        if write.expect == Expect::Absent && recognised.view.check(node.clock.uptime()).is_err() {
            // The view has expired meanwhile: try again with a fresh one.
            permit.into_iter().for_each(Permit::refund);
            return Ok(None);
        }
        let is_first = reading.found() == Found::Nothing;
        let put = put(by, command.id, write, run, permit, lost_claims).await;
        match put.map_err(|error| if is_first { error } else { error.after_another() })? {
            Ok(claim) => return Ok(Some(claim)),
            Err(Retry::Locate) if recognised.view.outgoing.is_some() => return Ok(None),
            Err(Retry::Locate) => reading = Reading::nothing(node.clock.now()),
            Err(Retry::From(shown)) => reading = shown,
        }
    }
    Err(contended())
}

fn contended() -> Error {
    let context = "claiming a record that somebody else keeps changing";
    Error::StoreLost(store::Error::new(Kind::Unavailable, context))
}

enum Admitted {
    Yes(Option<Permit>),
    /// Only a new key is refused; read first whether it is new.
    LookFirst,
}

async fn admit(
    node: &Node,
    command: &Command<'_>,
    recognised: &RecognisedIntent,
    needs_permit: bool,
    looked: bool,
) -> Result<Admitted, Error> {
    if !needs_permit {
        return Ok(Admitted::Yes(None));
    }
    match admission::admit(&node.store, &node.quota, command, &recognised.intent).await {
        Ok(permit) => Ok(Admitted::Yes(Some(permit))),
        Err(Error::Quota(_)) if !looked => Ok(Admitted::LookFirst),
        Err(error) => {
            admission::report_refused(node, command, &error);
            Err(error)
        }
    }
}

/// Stores a claim, or marks a dead owner's attempt as unknown.
async fn put(
    by: Claiming<'_>,
    id: CommandId,
    write: Box<Write>,
    run: bool,
    permit: Option<Permit>,
    lost_claims: &mut Vec<LostClaim>,
) -> Result<Result<Claim, Retry>, Error> {
    let written = by.node.store.write(id, &*write).await;
    if let (Some(permit), true) = (permit, nothing_was_written(&written)) {
        permit.refund();
    }
    match written {
        Ok(Written::Done { now }) if run => Ok(Ok(owned(by, id, write.next, now))),
        Ok(Written::Done { .. }) => {
            by.node.observe_lapse(&write.next);
            Ok(Ok(Claim::MarkedUnknown(id)))
        }
        Ok(Written::Refused(reading)) => Ok(Err(again(reading))),
        Err(error) if error.is_ambiguous() => {
            if run {
                lost_claims.push(LostClaim { id, write });
            }
            let reading = by.node.store.get(id).await?;
            let applied = applied_claim(by, lost_claims, id, &reading);
            let waited = by.node.clock.uptime().saturating_sub(by.started_at);
            if applied.is_none() && waited >= by.node.settings.request_timeout() {
                return Err(error.into());
            }
            Ok(applied.ok_or_else(|| again(reading)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A claim that was in the store at `now`.
fn owned(by: Claiming<'_>, id: CommandId, record: Record, now: Time) -> Claim {
    // If the time was replaced during the claim, its dates are invalid.
    let is_held = machine::is_held(&record, by.node.clock.at(now));
    let ownership = Ownership::new(Arc::clone(by.node), id, record, by.started_at, by.recognised.intent.seal)
        .beginning_by(by.recognised.begin_by);
    // If the claim took so long that its lease is over, a later attempt with a higher fence may have come and been
    // purged. This owner can report that nothing was sent.
    if is_held { Claim::Owned(ownership) } else { Claim::Lapsed(ownership) }
}

fn again(reading: Reading) -> Retry {
    if reading.found() == Found::Nothing { Retry::Locate } else { Retry::From(reading) }
}

fn nothing_was_written(written: &Result<Written, store::Error>) -> bool {
    match written {
        Ok(Written::Done { .. }) => false,
        Ok(Written::Refused(_)) => true,
        Err(error) => !error.is_ambiguous(),
    }
}

/// A claim whose answer was lost, if it is in the store.
fn applied_claim(
    by: Claiming<'_>,
    lost_claims: &[LostClaim],
    id: CommandId,
    reading: &Reading,
) -> Option<Claim> {
    let mut tried = lost_claims.iter().filter(|claim| claim.id == id);
    let record = tried.find_map(|claim| machine::applied_claim(&claim.write, reading.found()))?;
    Some(owned(by, id, Record::clone(record), reading.now))
}

/// Gives back claims whose answer was lost and that may be in the store or still arrive: nothing was sent under them.
/// Looks for as long as one of them may still arrive, and until the store has answered once; otherwise an existing
/// claim would stay in doubt. Runs in a task that keeps nothing of the request and that a shutdown waits for only briefly.
pub(crate) fn give_back(node: &Arc<Node>, lost_claims: Vec<LostClaim>) {
    if lost_claims.is_empty() {
        return;
    }
    let (node, guard) = (Arc::clone(node), node.tasks.enter_beside());
    let spawn = Arc::clone(&node.spawn);
    spawn.spawn(Box::pin(async move {
        let _guard = guard;
        let is_answered = tokio::select! {
            biased;
            () = node.tasks.closed(Closing::Now) => false,
            is_answered = give_all_back(&node, lost_claims) => is_answered,
        };
        if !is_answered {
            node.tasks.leave_unanswered();
        }
    }));
}

/// Returns whether every claim was given back, or cannot arrive any more.
async fn give_all_back(node: &Arc<Node>, lost_claims: Vec<LostClaim>) -> bool {
    let started_at = node.clock.uptime();
    let mut are_answered = true;
    for LostClaim { id, write } in lost_claims {
        let give_up_at = started_at.saturating_add(write.next.policy().lease);
        let (record, permit) = match look_for(node, id, &write, give_up_at).await {
            Search::Found(record, permit) => (record, permit),
            Search::CannotArrive => continue,
            Search::GivenUp => {
                are_answered = false;
                continue;
            }
        };
        let ownership = Ownership::new(Arc::clone(node), id, *record, Duration::ZERO, Seal::default());
        let mut abandoned = pin!(ownership.abandon(LAPSED));
        // A claim that cannot be given back must not block the others for ever.
        if node.clock.within(node.settings.request_timeout(), &mut abandoned).await.is_none() {
            drop(permit);
            abandoned.await;
        }
    }
    are_answered
}

/// The result of a search for a claim.
enum Search<'a> {
    /// It has arrived. With the permit to write to the store.
    Found(Box<Record>, SemaphorePermit<'a>),
    /// It can never arrive, or had not arrived in a read that began after the store had answered after the end of its
    /// lease.
    CannotArrive,
    /// The engine shuts down, and the store has not answered since the end of the lease.
    GivenUp,
}

/// Looks for a claim whose lease is over at `give_up_at`.
///
/// One answer at the end of an outage is not enough. On PostgreSQL, claims and reads that wait for a lost standby are
/// released together: the reads show the entries from before, and the claims become visible a moment later.
///
/// An outage affects many claims: each one pauses for a random time before every read, also the first, and only a
/// limited number read concurrently.
async fn look_for<'a>(node: &'a Node, id: CommandId, write: &Write, give_up_at: Duration) -> Search<'a> {
    let mut in_time = Backoff::new(GIVE_BACK_PAUSE.0, GIVE_BACK_PAUSE.1);
    let mut late = Backoff::new(LATE_PAUSE.0, LATE_PAUSE.1);
    let mut has_answered_late = false;
    loop {
        let is_late = node.clock.uptime() >= give_up_at;
        if is_late && node.tasks.is(Closing::Draining) {
            return Search::GivenUp;
        }
        let pause = if is_late { &mut late } else { &mut in_time }.next_span(node.random.bits());
        node.clock.sleep(pause).await;
        let Ok(permit) = node.giving_back.acquire().await else { return Search::GivenUp };
        let Ok(reading) = node.store.get(id).await else { continue };
        if let Some(record) = machine::applied_claim(write, reading.found()) {
            return Search::Found(Box::new(Record::clone(record)), permit);
        }
        // Its condition no longer holds: it can never arrive.
        if !write.expect.met_by(reading.found()) || has_answered_late {
            return Search::CannotArrive;
        }
        has_answered_late = node.clock.uptime() >= give_up_at;
    }
}

/// The entry at the command's location.
pub(crate) async fn look(store: &StoreAccess, recognised: &RecognisedIntent) -> Result<FoundEntry, Error> {
    let commands = recognised.commands();
    let located = recognise::locate(store, &recognised.view, &commands).await?;
    let id = located.command.id;
    let reading = match located.reading {
        Some(reading) => reading,
        None => store.get(id).await?,
    };
    Ok(FoundEntry { id, reading })
}

impl From<secrets::Error> for Error {
    fn from(error: secrets::Error) -> Self {
        Self::Secrets(error)
    }
}
