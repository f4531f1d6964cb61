//! The store and its calls, the clock, and other state that all parts of an engine share.
//!
//! Also what has to hold on to that state: the owner of an attempt, and the renewer of leases. Nothing here knows an
//! intent or an answer.

pub(crate) mod beat;
pub(crate) mod cache;
pub(crate) mod clock;
pub(crate) mod loss;
pub(crate) mod outcome_sealing;
pub(crate) mod ownership;
mod probe_queue;
pub(crate) mod reconcilers;
pub(crate) mod renewer;
pub(crate) mod running;
pub(crate) mod store_access;
pub(crate) mod store_id;
pub(crate) mod writable;

use crate::archive::Archive;
use crate::node::cache::Cache;
use crate::node::clock::NodeClock;
use crate::node::outcome_sealing::OutcomeSealing;
use crate::node::reconcilers::Reconcilers;
use crate::node::renewer::Renewer;
use crate::node::running::Running;
use crate::node::store_access::StoreAccess;
use crate::observe::{Event, Observer};
use crate::quota::Keepers;
use crate::runtime::random::Random;
use crate::runtime::spawn::Spawn;
use crate::runtime::tasks::Tasks;
use crate::secrets::Secrets;
use crate::settings::Settings;
use semel_core::machine::Stamp;
use semel_core::record::{Record, StateName, Token};
use semel_core::time::Time;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The shared state of one engine.
pub(crate) struct Node {
    pub(crate) store: StoreAccess,
    pub(crate) clock: Arc<NodeClock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) spawn: Arc<dyn Spawn>,
    pub(crate) observer: Arc<dyn Observer>,
    /// This node's name in the history of records.
    pub(crate) name: Arc<str>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) running: Arc<Running>,
    pub(crate) renewer: Renewer,
    /// Limits concurrent searches for claims whose fate is not known.
    pub(crate) giving_back: Semaphore,
    pub(crate) cache: Cache,
    pub(crate) tasks: Tasks,
    pub(crate) reconcilers: Reconcilers,
    pub(crate) quota: Keepers,
    pub(crate) archive: Option<Arc<dyn Archive>>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) sealing: OutcomeSealing,
}

impl Node {
    pub(crate) fn observe(&self, event: &Event<'_>) {
        self.observer.observe(event);
    }

    /// Reports a record that became unknown because its owner went silent.
    pub(crate) fn observe_lapse(&self, record: &Record) {
        if record.state_name() == StateName::Unknown {
            let (operation_id, operation) = (record.operation_id(), record.operation());
            self.observe(&Event::Lapsed { operation_id, operation });
        }
    }

    pub(crate) fn stamp<'a>(&'a self, now: Time, why: &'a str) -> Stamp<'a> {
        Stamp::new(self.clock.at(now), &self.name, why)
    }

    pub(crate) fn fresh_token(&self) -> Token {
        Token::from_random(self.random.bits())
    }
}
