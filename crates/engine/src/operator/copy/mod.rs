//! Copies all records of a store into another one, while no node uses either, and the tables that applications use
//! beside them if both stores have these.
//!
//! The copied settings, the pages of records and markers, their verification, and the gate that keeps nodes away from
//! an incomplete target. The source is never written, and no entry of the target is replaced or removed.
//!
//! While the copy runs, the target has a note in the place of its hashing secret. No node starts on such a store,
//! because missing keys would count as new. After every record was read back and compared, one compare-and-swap
//! replaces the note by the source's secret. An interrupted copy can be repeated: existing entries are compared and
//! kept.

mod entries;
mod error;
mod nodes;
mod settings;
mod tables;

pub use error::Error;
pub use tables::TableReport;

use crate::runtime::clock::Clock;
use entries::Entries;
use semel_core::record::StateName;
use semel_core::store::Store;
use settings::Settings;
use std::collections::BTreeMap;
use std::time::Duration;

/// A copy of one store into another.
#[derive(Clone, Copy)]
pub struct Copy<'a> {
    /// The source. It is only read.
    pub source: &'a dyn Store,
    /// The target: an unused store, or an unfinished copy of the same source.
    pub target: &'a dyn Store,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Set this if you know that all nodes of the source have ended. Nodes that have not left are then watched only
    /// for the time in which a running one shows itself, [`Self::CONFIRMED_WATCH`], and not until they may be removed.
    pub nodes_have_ended: bool,
}

/// The progress of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nodes that are registered at the source may still be running. They are being watched.
    Watching {
        /// The number of nodes.
        nodes: usize,
        /// How much longer, at most.
        left: Duration,
    },
    /// This many records and markers are in the target.
    Copied(u64),
    /// This many of them were read back and compared.
    Verified(u64),
}

/// The result of a copy, after every record was read back and compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How many records there are in each state.
    pub records: BTreeMap<StateName, u64>,
    /// How many markers of moved commands there are.
    pub markers: u64,
    /// How many records and markers an interrupted copy had already copied.
    pub found_there: u64,
    /// The names of the copied settings.
    pub settings: Vec<String>,
    /// The tables that applications use beside the records; empty if the source's kind of store has none.
    pub tables: Vec<TableReport>,
}

impl Report {
    /// How many records there are.
    pub fn records_total(&self) -> u64 {
        self.records.values().sum()
    }
}

impl Copy<'_> {
    /// How long the nodes of a source are watched whose operator says that they have ended. A running node of the
    /// [default settings](crate::secrets::RefreshSettings) writes to the store every 10 seconds.
    pub const CONFIRMED_WATCH: Duration = Duration::from_secs(15);

    /// Copies, compares, and then opens the target for nodes. Can be repeated after any failure.
    ///
    /// After an error, the source is unchanged, and no node can start on an empty target. A target that contains
    /// something else is unchanged.
    pub async fn run(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<Report, Error> {
        let before = Settings::read(self.source).await.map_err(Error::Source)?;
        before.check_source()?;
        // Before the watch: no node may start on an empty target while it lasts, or after a refusal.
        let gate = settings::close_gate(self.target, &before).await?;
        let watch_max = self.nodes_have_ended.then_some(Self::CONFIRMED_WATCH);
        nodes::watch(self.source, self.clock, &before, watch_max, progress).await?;
        let entries = Entries { source: self.source, target: self.target, clock: self.clock };
        let found_there = entries.copy(progress).await?;
        let counted = entries.verify(progress).await?;
        let tables = tables::copy(self.source, self.target).await?;
        // A node that started meanwhile has written its settings by now.
        let after = Settings::read(self.source).await.map_err(Error::Source)?;
        if after != before {
            return Err(Error::SourceChanged);
        }
        let settings = settings::open_gate(self.target, &before, &gate).await?;
        Ok(Report { records: counted.records, markers: counted.markers, found_there, settings, tables })
    }
}

impl std::fmt::Debug for Copy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Copy")
            .field("source", &self.source.name())
            .field("target", &self.target.name())
            .finish_non_exhaustive()
    }
}
