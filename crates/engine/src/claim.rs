//! How a command is claimed.
//!
//! What lives here: the way from a recognised intent to an attempt of one's own, or to what its record says. A first
//! claim costs one round trip: it is inserted at once, as if nothing stood there. What must never: an attempt that is
//! not known to be stored.

use crate::answer::Error;
use crate::backoff::Backoff;
use crate::node::Node;
use crate::observe::Event;
use crate::ownership::Ownership;
use crate::quota::Permit;
use crate::recognise::{self, Recognised};
use crate::secrets;
use crate::settings::Settings;
use crate::telling;
use semel_core::id::CommandId;
use semel_core::machine::{self, Command, Decision, Expect, Found, Ticket, Write};
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading, Written};
use std::sync::Arc;

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
    /// Nothing was sent, and what was claimed is given back.
    Lapsed,
}

/// What is left to do about a claim of which the store could not tell.
pub(crate) struct Loose {
    id: CommandId,
    write: Box<Write>,
}

/// Why there is no claim.
pub(crate) struct Unclaimed {
    pub(crate) error: Error,
    /// A claim that may stand in the store all the same.
    pub(crate) loose: Option<Loose>,
}

impl<E: Into<Error>> From<E> for Unclaimed {
    fn from(error: E) -> Self {
        Self { error: error.into(), loose: None }
    }
}

/// What one try came to, where it did not settle the matter.
enum Again {
    /// Decide again, from this.
    From(Reading),
    /// Find out anew where the command is kept.
    Locate,
}

/// Claims what was recognised, or tells what stands in its way.
pub(crate) async fn claim(node: &Arc<Node>, recognised: &Recognised) -> Result<Claim, Unclaimed> {
    let mut recognised = recognised.clone();
    for _ in 0..ROUNDS_MAX {
        match claim_where_it_is(node, &recognised).await? {
            Some(claim) => return Ok(claim),
            None => recognised = recognised.again(node)?,
        }
    }
    Err(contended())
}

/// Claims the command where it is kept at this moment. `None` where that has changed meanwhile.
async fn claim_where_it_is(node: &Arc<Node>, recognised: &Recognised) -> Result<Option<Claim>, Unclaimed> {
    let commands = recognised.commands();
    let located = recognise::locate(node, &recognised.view, &commands).await?;
    let command = located.command;
    // Where nothing had to be read, the claim is tried as if nothing stood there.
    let mut looked = located.reading.is_some();
    let mut reading = located.reading.clone().unwrap_or_else(|| Reading::nothing(node.now()));
    for _ in 0..ROUNDS_MAX {
        let ticket = Ticket { token: node.fresh_token(), begin: recognised.intent.begin };
        let decision = machine::decide(reading.found(), command, ticket, node.stamp(reading.now, ""));
        let (write, run) = match decision {
            Decision::Run(write) => (write, true),
            Decision::MarkUnknown(write) => (write, false),
            Decision::Answer(_) => return Ok(Some(Claim::Judged(command.id, reading))),
            // A marker that this view knows nothing of: others have moved on.
            Decision::Follow if recognised.view.outgoing.is_none() => {
                node.secrets.refresh_in_time().await.map_err(Error::Secrets)?;
                return Ok(None);
            }
            Decision::Follow => return Ok(None),
        };
        if !located.permits(&write.expect) {
            return Ok(None);
        }
        let permit = match admit(node, command, recognised, &write, looked).await? {
            Admitted::Yes(permit) => permit,
            Admitted::LookFirst => {
                (reading, looked) = (node.get(command.id).await?, true);
                continue;
            }
        };
        if write.expect == Expect::Absent {
            recognised.view.check(node.clock.uptime()).map_err(Error::Secrets)?;
        }
        match put(node, command.id, write, run, permit).await? {
            Ok(claim) => return Ok(Some(claim)),
            Err(Again::Locate) if recognised.view.outgoing.is_some() => return Ok(None),
            Err(Again::Locate) => reading = Reading::nothing(node.now()),
            Err(Again::From(shown)) => reading = shown,
        }
    }
    Err(contended())
}

fn contended() -> Unclaimed {
    let context = "claiming a record that somebody else keeps changing";
    store::Error::new(Kind::Unavailable, context).into()
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
    write: &Write,
    looked: bool,
) -> Result<Admitted, Error> {
    if write.expect != Expect::Absent {
        return Ok(Admitted::Yes(None));
    }
    match node.admit(command, recognised.intent.address).await {
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
    node: &Arc<Node>,
    id: CommandId,
    write: Box<Write>,
    run: bool,
    permit: Option<Permit>,
) -> Result<Result<Claim, Again>, Unclaimed> {
    let written = node.write(id, &write).await;
    if let (Some(permit), true) = (permit, nothing_was_written(&written)) {
        permit.refund();
    }
    match written {
        Ok(Written::Done { now }) if run => {
            let ownership = Ownership::new(Arc::clone(node), id, write.next);
            if telling::is_held(&ownership.record(), now) {
                return Ok(Ok(Claim::Owned(ownership)));
            }
            // So long under way that a later attempt may have come and been purged, whose fence was higher.
            ownership.abandon("the claim arrived after its lease was over, and nothing was sent").await;
            Ok(Ok(Claim::Lapsed))
        }
        Ok(Written::Done { .. }) => Ok(Ok(Claim::MarkedUnknown(id))),
        Ok(Written::Refused(reading)) => Ok(Err(again(reading))),
        Err(error) if error.is_ambiguous() && run => {
            let loose = Loose { id, write };
            match node.get(id).await {
                Ok(reading) => match landed(node, &loose, &reading).await {
                    Some(claim) => Ok(Ok(claim)),
                    None => Ok(Err(again(reading))),
                },
                Err(error) => Err(Unclaimed { error: error.into(), loose: Some(loose) }),
            }
        }
        Err(error) if error.is_ambiguous() => Ok(Err(again(node.get(id).await?))),
        Err(error) => Err(error.into()),
    }
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

/// The claim whose answer was lost, if it stands in the store after all.
async fn landed(node: &Arc<Node>, loose: &Loose, reading: &Reading) -> Option<Claim> {
    let record = machine::claim_landed(&loose.write, reading.found())?;
    let ownership = Ownership::new(Arc::clone(node), loose.id, Record::clone(record));
    if telling::is_held(record, reading.now) {
        return Some(Claim::Owned(ownership));
    }
    // Its lease is over, or somebody took the owner for dead while it was looking for its own claim. It has sent
    // nothing, and says so.
    ownership.abandon("the claim's acknowledgement was lost, and nothing was sent").await;
    Some(Claim::Lapsed)
}

/// Gives back a claim that may stand in the store although nobody could tell: nothing was sent under it. Tries for as
/// long as it could be in anybody's way.
pub(crate) async fn give_back(node: &Arc<Node>, loose: Loose) {
    let Settings { poll_min, poll_max, .. } = node.settings;
    let give_up_at = node.clock.uptime() + loose.write.next.policy().lease;
    let mut backoff = Backoff::new(poll_min, poll_max);
    while node.clock.uptime() < give_up_at {
        if let Ok(reading) = node.get(loose.id).await {
            if let Some(record) = machine::claim_landed(&loose.write, reading.found()) {
                let ownership = Ownership::new(Arc::clone(node), loose.id, Record::clone(record));
                ownership.abandon("the claim's acknowledgement was lost, and nothing was sent").await;
            }
            return;
        }
        node.clock.sleep(backoff.next_span(node.random.bits())).await;
    }
}

/// What stands where the command is kept.
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
