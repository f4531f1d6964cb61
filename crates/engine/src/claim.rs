//! How a command is claimed.
//!
//! Contents: the way from a recognised intent to an attempt of one's own, or to what its record says. A first claim
//! costs one round trip: it is inserted at once, as if nothing was there. Never here: an attempt that is not known to
//! be stored.

use crate::answer::Error;
use crate::backoff::Backoff;
use crate::node::Node;
use crate::observe::Event;
use crate::ownership::Ownership;
use crate::quota::Permit;
use crate::recognise::{self, Recognised};
use crate::sealing::Seal;
use crate::secrets;
use crate::tasks::Closing;
use crate::time;
use semel_core::id::CommandId;
use semel_core::machine::{self, Command, Decision, Expect, Found, Reply, Ticket, Write};
use semel_core::policy::Class;
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading, Written};
use semel_core::time::Time;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::SemaphorePermit;

/// The pause between two looks for a claim that may still arrive, at first and at most.
const GIVE_BACK_PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// The same as soon as the claim's lease is over and the store has still not answered.
const LATE_PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(30));

/// How many such claims of one node are looked for at once: an outage loses many in one moment, and the store that
/// has just come back has others to serve.
pub(crate) const GIVE_BACK_AT_ONCE_MAX: usize = 16;

/// How often a claim is decided anew from what the store shows: every round somebody else has written the record.
const ROUNDS_MAX: usize = 32;

/// What a claim came to.
pub(crate) enum Claim {
    /// The attempt is this node's.
    Owned(Ownership),
    /// Nothing is to be run: this stands under that id, and the machine has judged it.
    Judged(CommandId, Reading),
    /// The owner was gone and the effect in doubt: the record under that id now says so.
    MarkedUnknown(CommandId),
    /// It was claimed too late to be begun. Nothing was sent; it is to be [abandoned](Ownership::abandon).
    Lapsed(Ownership),
}

/// Why a claim that came too late is given back.
pub(crate) const LAPSED: &str =
    "the claim was not known to be stored before its lease was over, and nothing was sent";

/// A claim of which the store could not tell, and which may still arrive.
pub(crate) struct Loose {
    id: CommandId,
    write: Box<Write>,
}

/// Why there is no claim.
pub(crate) struct Unclaimed {
    pub(crate) error: Error,
    /// Claims that may be in the store all the same, or still arrive there.
    pub(crate) loose: Vec<Loose>,
}

/// What one try came to, if it did not settle the matter.
enum Again {
    /// Decide again, from this.
    From(Reading),
    /// Find out anew where the command is kept.
    Locate,
}

/// Who claims what.
#[derive(Clone, Copy)]
struct Claiming<'a> {
    node: &'a Arc<Node>,
    recognised: &'a Recognised,
    /// Every claim was dated after this, by the uptime.
    begun: Duration,
}

/// Claims what was recognised, or tells what is in its way.
pub(crate) async fn claim(node: &Arc<Node>, recognised: &Recognised) -> Result<Claim, Unclaimed> {
    if let Err(error) = time::catch_up(node).await {
        return Err(Unclaimed { error: error.into(), loose: Vec::new() });
    }
    let begun = node.clock.uptime();
    let mut recognised = recognised.clone();
    let mut loose = Vec::new();
    for _ in 0..ROUNDS_MAX {
        let again =
            match claim_where_it_is(Claiming { node, recognised: &recognised, begun }, &mut loose).await {
                Ok(Some(claim)) => return Ok(claim),
                Ok(None) => recognised.again(node),
                Err(error) => Err(error),
            };
        match again {
            Ok(again) => recognised = again,
            // If a claim may be in the store, nobody is to think that the store was never reached.
            Err(error) if !loose.is_empty() => {
                return Err(Unclaimed { error: error.after_another(), loose });
            }
            Err(error) => return Err(Unclaimed { error, loose }),
        }
    }
    Err(Unclaimed { error: contended(), loose })
}

/// Claims the command where it is kept at this moment. `None` if that has changed meanwhile.
async fn claim_where_it_is(by: Claiming<'_>, loose: &mut Vec<Loose>) -> Result<Option<Claim>, Error> {
    let Claiming { node, recognised, .. } = by;
    let commands = recognised.commands();
    let located = recognise::locate(node, &recognised.view, &commands).await?;
    let command = located.command;
    // If nothing had to be read, the claim is tried as if nothing was there.
    let mut looked = located.reading.is_some();
    let mut reading = located.reading.clone().unwrap_or_else(|| Reading::nothing(node.now()));
    for _ in 0..ROUNDS_MAX {
        // Any of them: one whose answer was lost may have arrived since, and be what the next was refused by.
        if let Some(claim) = landed(by, loose, command.id, &reading) {
            return Ok(Some(claim));
        }
        // Again: the very answer that is judged may have shown that the clock can be trusted.
        time::catch_up(node).await?;
        let ticket = Ticket { token: node.fresh_token(), begin: recognised.intent.begin };
        let mut stamp = node.stamp(reading.now, "");
        if let Some(who) = &recognised.intent.claimed_by {
            stamp.who = who;
        }
        let decision = machine::decide(reading.found(), command, ticket, stamp);
        let (write, run) = match decision {
            Decision::Run(write) => (write, true),
            Decision::MarkUnknown(write) => (write, false),
            // Only a claim is refused, and nobody has looked yet whether one is needed.
            Decision::Answer(Reply::ClockNotTrusted) if !looked => {
                (reading, looked) = (node.get(command.id).await?, true);
                continue;
            }
            Decision::Answer(_) => return Ok(Some(Claim::Judged(command.id, reading))),
            // A marker that this view knows nothing of: others have moved on.
            Decision::Follow if recognised.view.outgoing.is_none() => {
                node.secrets.refresh_in_time().await?;
                return Ok(None);
            }
            Decision::Follow => return Ok(None),
        };
        if !located.permits(&write.expect) {
            return Ok(None);
        }
        // The next attempt keeps its record's class, whatever class this intent asks for.
        if run && recognised.intent.has_effect && write.next.policy().class == Class::Local {
            return Err(Error::LocalRecord(write.next.operation_id()));
        }
        // One key costs once: a claim that may still arrive has stayed charged.
        let is_charged = loose.iter().any(|loose| loose.write.expect == Expect::Absent);
        let needs_permit = write.expect == Expect::Absent && !is_charged;
        let permit = match admit(node, command, recognised, needs_permit, looked).await? {
            Admitted::Yes(permit) => permit,
            Admitted::LookFirst => {
                (reading, looked) = (node.get(command.id).await?, true);
                continue;
            }
        };
        if write.expect == Expect::Absent && recognised.view.check(node.clock.uptime()).is_err() {
            // Waited for too long since: by a fresh view, if this node has one.
            permit.into_iter().for_each(Permit::refund);
            return Ok(None);
        }
        let is_first = reading.found() == Found::Nothing;
        let put = put(by, command.id, write, run, permit, loose).await;
        match put.map_err(|error| if is_first { error } else { error.after_another() })? {
            Ok(claim) => return Ok(Some(claim)),
            Err(Again::Locate) if recognised.view.outgoing.is_some() => return Ok(None),
            Err(Again::Locate) => reading = Reading::nothing(node.now()),
            Err(Again::From(shown)) => reading = shown,
        }
    }
    Err(contended())
}

fn contended() -> Error {
    let context = "claiming a record that somebody else keeps changing";
    Error::LostSight(store::Error::new(Kind::Unavailable, context))
}

enum Admitted {
    Yes(Option<Permit>),
    /// Only a new key is refused, and nobody has looked yet whether it is one.
    LookFirst,
}

async fn admit(
    node: &Node,
    command: &Command<'_>,
    recognised: &Recognised,
    needs_permit: bool,
    looked: bool,
) -> Result<Admitted, Error> {
    if !needs_permit {
        return Ok(Admitted::Yes(None));
    }
    match node.admit(command, &recognised.intent).await {
        Ok(permit) => Ok(Admitted::Yes(Some(permit))),
        Err(Error::Quota(_)) if !looked => Ok(Admitted::LookFirst),
        Err(error) => {
            if let Error::Quota(_) = error {
                let (operation, caller) = (&*command.operation, command.caller_hash);
                node.observe(&Event::QuotaExceeded { operation, caller });
            }
            Err(error)
        }
    }
}

/// Stores a claim, or the mark that a dead owner's attempt is in doubt.
async fn put(
    by: Claiming<'_>,
    id: CommandId,
    write: Box<Write>,
    run: bool,
    permit: Option<Permit>,
    loose: &mut Vec<Loose>,
) -> Result<Result<Claim, Again>, Error> {
    let written = by.node.write(id, &*write).await;
    if let (Some(permit), true) = (permit, nothing_was_written(&written)) {
        permit.refund();
    }
    match written {
        Ok(Written::Done { now }) if run => Ok(Ok(owned(by, id, write.next, now))),
        Ok(Written::Done { .. }) => Ok(Ok(Claim::MarkedUnknown(id))),
        Ok(Written::Refused(reading)) => Ok(Err(again(reading))),
        Err(error) if error.is_ambiguous() => {
            if run {
                loose.push(Loose { id, write });
            }
            let reading = by.node.get(id).await?;
            let landed = landed(by, loose, id, &reading);
            let waited = by.node.clock.uptime().saturating_sub(by.begun);
            if landed.is_none() && waited >= by.node.settings.request_timeout() {
                return Err(error.into());
            }
            Ok(landed.ok_or_else(|| again(reading)))
        }
        Err(error) => Err(error.into()),
    }
}

/// A claim that stood in the store at `now`.
fn owned(by: Claiming<'_>, id: CommandId, record: Record, now: Time) -> Claim {
    // If the time was replaced while the claim was under way, its dates are another time's.
    let is_held = machine::is_held(&record, by.node.at(now));
    let ownership = Ownership::new(Arc::clone(by.node), id, record, by.begun, by.recognised.intent.seal);
    // One that was so long under way that its lease is over: a later attempt may have come and been purged, whose fence
    // was higher. And where somebody has taken the owner for dead, it knows better: nothing was sent.
    if is_held { Claim::Owned(ownership) } else { Claim::Lapsed(ownership) }
}

fn again(reading: Reading) -> Again {
    if reading.found() == Found::Nothing { Again::Locate } else { Again::From(reading) }
}

fn nothing_was_written(written: &Result<Written, store::Error>) -> bool {
    match written {
        Ok(Written::Done { .. }) => false,
        Ok(Written::Refused(_)) => true,
        Err(error) => !error.is_ambiguous(),
    }
}

/// A claim whose answer was lost, if it is in the store after all.
fn landed(by: Claiming<'_>, loose: &[Loose], id: CommandId, reading: &Reading) -> Option<Claim> {
    let mut tried = loose.iter().filter(|loose| loose.id == id);
    let record = tried.find_map(|loose| machine::claim_landed(&loose.write, reading.found()))?;
    Some(owned(by, id, Record::clone(record), reading.now))
}

/// Gives back claims that may be in the store although nobody could tell, or may still arrive there: nothing was sent
/// under them. Looks for as long as one of them may still arrive, and until the store has answered once: what was
/// there all the time would be in doubt for good. In a task of its own that holds nothing of the request any more and
/// that nobody who shuts the engine down has to wait for.
pub(crate) fn give_back(node: &Arc<Node>, loose: Vec<Loose>) {
    if loose.is_empty() {
        return;
    }
    let (node, guard) = (Arc::clone(node), node.tasks.enter_beside());
    let spawn = Arc::clone(&node.spawn);
    spawn.spawn(Box::pin(async move {
        let _guard = guard;
        tokio::select! {
            biased;
            () = node.tasks.closed(Closing::Now) => {}
            () = give_all_back(&node, loose) => {}
        }
    }));
}

async fn give_all_back(node: &Arc<Node>, loose: Vec<Loose>) {
    let begun = node.clock.uptime();
    for Loose { id, write } in loose {
        let give_up_at = begun.saturating_add(write.next.policy().lease);
        let Some((record, place)) = look_for(node, id, &write, give_up_at).await else { continue };
        let ownership = Ownership::new(Arc::clone(node), id, record, Duration::ZERO, Seal::default());
        let mut abandoned = pin!(ownership.abandon(LAPSED));
        // One that cannot be stored must not keep the place from others for ever.
        if node.within(node.settings.request_timeout(), &mut abandoned).await.is_none() {
            drop(place);
            abandoned.await;
        }
    }
}

/// A claim that has arrived after all, and the place that it was looked for from. `None` if it never can, or had not
/// when the store answered for the first time past `give_up_at`.
///
/// What one outage lost was lost by many: each pauses for a span of its own before every look, the first one too, and
/// only so many look at once.
async fn look_for<'a>(
    node: &'a Node,
    id: CommandId,
    write: &Write,
    give_up_at: Duration,
) -> Option<(Record, SemaphorePermit<'a>)> {
    let mut in_time = Backoff::new(GIVE_BACK_PAUSE.0, GIVE_BACK_PAUSE.1);
    let mut late = Backoff::new(LATE_PAUSE.0, LATE_PAUSE.1);
    loop {
        let is_late = node.clock.uptime() >= give_up_at;
        if is_late && node.tasks.is(Closing::Draining) {
            return None;
        }
        let pause = if is_late { &mut late } else { &mut in_time }.next_span(node.random.bits());
        node.clock.sleep(pause).await;
        let place = node.giving_back.acquire().await.ok()?;
        let Ok(reading) = node.get(id).await else { continue };
        if let Some(record) = machine::claim_landed(write, reading.found()) {
            return Some((Record::clone(record), place));
        }
        // What it expects no longer is there: it can never arrive.
        if !write.expect.met_by(reading.found()) || node.clock.uptime() >= give_up_at {
            return None;
        }
    }
}

/// What is where the command is kept.
pub(crate) async fn look(node: &Node, recognised: &Recognised) -> Result<(CommandId, Reading), Error> {
    let commands = recognised.commands();
    let located = recognise::locate(node, &recognised.view, &commands).await?;
    let id = located.command.id;
    match located.reading {
        Some(reading) => Ok((id, reading)),
        None => Ok((id, node.get(id).await?)),
    }
}

impl From<secrets::Error> for Error {
    fn from(error: secrets::Error) -> Self {
        Self::Secrets(error)
    }
}
