//! The clocks that an operator may mean: this process's, and that of the nodes on the store.

use super::mark::{self, Mark, TimeReport};
use crate::runtime::clock::Clock;
use crate::settings::ClockSettings;
use semel_core::id::CommandId;
use semel_core::store::{Error, Store};
use semel_core::time::Time;
use std::time::Duration;

/// Two readings of one clock differ by less.
const APART_MIN: Duration = Duration::from_secs(1);

/// The store's clock as this process reads it, beside what the nodes of the store last wrote about theirs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockComparison {
    /// The store's clock, as this process reads it.
    pub shown: Time,
    /// The nodes' clock and time; `None` if no node has ever written one, or it cannot be read.
    pub nodes: Option<NodesClock>,
    /// The time of the nodes is there and cannot be read.
    pub is_unreadable: bool,
}

/// What the nodes last wrote about their clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodesClock {
    /// The time that the last writer used. Differs from its clock if that clock jumped while it ran.
    pub used: Time,
    /// What its clock showed; `None` of an earlier version.
    pub shown: Option<Time>,
    /// How long ago that was, if it was on this machine: both times are then of now. Otherwise they are of when they
    /// were written, and that is not known.
    pub written_ago: Option<Duration>,
}

impl NodesClock {
    /// What the writer's clock showed, if that is not the time that it used.
    pub fn jumped_to(&self) -> Option<Time> {
        let is_apart = |shown: &Time| shown.since(self.used).max(self.used.since(*shown)) > APART_MIN;
        self.shown.filter(is_apart)
    }
}

impl ClockComparison {
    /// Whether all clocks show the same time, so that it does not matter which one is meant.
    pub fn agrees(&self, settings: &ClockSettings) -> bool {
        let Some(nodes) = self.nodes else { return !self.is_unreadable };
        let allowance = settings.watch_allowance();
        // What was written at an unknown moment may be as old as a heartbeat.
        let age_max = if nodes.written_ago.is_some() { Duration::ZERO } else { settings.peers_seen_within() };
        let is_same =
            |theirs: Time| theirs <= self.shown + allowance && self.shown <= theirs + age_max + allowance;
        // A node that was stopped for long has no clock that could be meant.
        is_same(nodes.used) && nodes.shown.is_none_or(is_same)
    }
}

/// Reads the store's clock and what its nodes wrote about theirs. Writes nothing.
pub async fn compare_clocks(store: &dyn Store, clock: &dyn Clock) -> Result<ClockComparison, Error> {
    let remembered = mark::read(store).await?.mark();
    let shown = store.get(CommandId::from_bytes([0; 32])).await?.now;
    let is_unreadable = remembered.is_err();
    let nodes = remembered.ok().flatten().map(|mark| nodes_clock(&mark, clock));
    Ok(ClockComparison { shown, nodes, is_unreadable })
}

fn nodes_clock(mark: &Mark, clock: &dyn Clock) -> NodesClock {
    let (boot, uptime) = (clock.boot(), clock.uptime());
    let is_measured = boot.is_some() && mark.boot == boot && mark.uptime() <= uptime;
    let written_ago = is_measured.then(|| uptime.saturating_sub(mark.uptime()));
    let passed = written_ago.unwrap_or_default();
    NodesClock { used: mark.now() + passed, shown: mark.shown().map(|shown| shown + passed), written_ago }
}

/// Confirms the clock of the node that wrote its time last, instead of this process's. Returns the confirmed time, or
/// `None` if it is not known what that clock shows now: no node of this version runs on this machine.
pub async fn confirm_clock_of_nodes(
    store: &dyn Store,
    clock: &dyn Clock,
    settings: &ClockSettings,
    who: &str,
    why: &str,
) -> Result<Option<Time>, Error> {
    let boot = clock.boot();
    let stored = mark::read(store).await?;
    let mut confirmed = None;
    mark::write(store, stored, |stored| {
        let mark = stored?;
        let nodes = mark.as_ref().map(|mark| nodes_clock(mark, clock));
        let is_running =
            |nodes: &NodesClock| nodes.written_ago.is_some_and(|ago| ago <= settings.peers_seen_within());
        confirmed = nodes.filter(is_running).and_then(|nodes| nodes.shown);
        let Some(shown) = confirmed else { return Ok(None) };
        let uptime = clock.uptime();
        let (boot, steady_since) = (boot.as_deref(), Some(shown));
        let beat = TimeReport { now: shown, shown, node: who, boot, uptime, steady_since };
        Ok(Some(Mark::confirmed(mark.as_ref(), &beat, who, why)))
    })
    .await?;
    Ok(confirmed)
}
