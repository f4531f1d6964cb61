//! How a command is claimed.
//!
//! What lives here: the way from a recognised command to an attempt of one's own, or to what its record says. A first
//! claim costs one round trip: it is inserted at once, as if nothing stood there. What must never: an attempt that is
//! not known to be stored.

use crate::node::Node;
use crate::ownership::Ownership;
use crate::settings::Settings;
use crate::telling;
use semel_core::id::CommandId;
use semel_core::machine::{self, Begin, Command, Decision, Ticket, Write};
use semel_core::record::Record;
use semel_core::store::{self, Kind, Reading, Written};
use std::sync::Arc;

/// How often a claim is decided anew from what the store shows: every round somebody else has written the record.
const ROUNDS_MAX: usize = 32;

/// What a claim came to.
pub(crate) enum Claim {
    /// The attempt is this node's.
    Owned(Ownership),
    /// Nothing is to be run: this stands there, and the machine has judged it.
    Judged(Reading),
    /// The owner was gone and the effect in doubt: the record now says so.
    MarkedUnknown,
    /// Nothing was sent, and what was claimed is given back.
    Lapsed,
    /// The command lives under the next secret's id.
    Elsewhere,
}

/// What is left to do about a claim of which the store could not tell.
pub(crate) struct Loose {
    id: CommandId,
    write: Box<Write>,
}

/// Why there is no claim.
pub(crate) struct Unclaimed {
    pub(crate) error: store::Error,
    /// A claim that may stand in the store all the same.
    pub(crate) loose: Option<Loose>,
}

impl From<store::Error> for Unclaimed {
    fn from(error: store::Error) -> Self {
        Self { error, loose: None }
    }
}

/// Claims `command`, or tells what stands in its way.
pub(crate) async fn claim(node: &Arc<Node>, command: &Command<'_>, begin: Begin) -> Result<Claim, Unclaimed> {
    let mut reading = Reading::nothing(node.now());
    for _ in 0..ROUNDS_MAX {
        let ticket = Ticket { token: node.fresh_token(), begin };
        let decision = machine::decide(reading.found(), command, ticket, node.stamp(reading.now, ""));
        let (write, run) = match decision {
            Decision::Run(write) => (write, true),
            Decision::MarkUnknown(write) => (write, false),
            Decision::Answer(_) => return Ok(Claim::Judged(reading)),
            Decision::Follow => return Ok(Claim::Elsewhere),
        };
        let written = node.write(command.id, &write).await;
        reading = match (written, run) {
            (Ok(Written::Done { now }), true) => {
                let ownership = Ownership::new(Arc::clone(node), command.id, write.next);
                if telling::is_held(&ownership.record(), now) {
                    return Ok(Claim::Owned(ownership));
                }
                // So long under way that a later attempt may have come and been purged, whose fence was higher.
                ownership.abandon("the claim arrived after its lease was over, and nothing was sent").await;
                return Ok(Claim::Lapsed);
            }
            (Ok(Written::Done { .. }), false) => return Ok(Claim::MarkedUnknown),
            (Ok(Written::Refused(reading)), _) => reading,
            (Err(error), true) if error.is_ambiguous() => {
                let loose = Loose { id: command.id, write };
                match node.get(command.id).await {
                    Ok(reading) => match landed(node, &loose, &reading).await {
                        Some(claim) => return Ok(claim),
                        None => reading,
                    },
                    Err(error) => return Err(Unclaimed { error, loose: Some(loose) }),
                }
            }
            (Err(error), false) if error.is_ambiguous() => node.get(command.id).await?,
            (Err(error), _) => return Err(error.into()),
        };
    }
    let context = "claiming a record that somebody else keeps changing";
    Err(store::Error::new(Kind::Unavailable, context).into())
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
    let mut backoff = node.backoff(poll_min, poll_max);
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
