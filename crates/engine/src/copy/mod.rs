//! Copies every record of a store into another one, while no node works on either.
//!
//! **Contents**: which settings go along, the pages of records and markers, their comparison afterwards, and the gate
//! that keeps nodes away from a target that is not complete. **Never here**: a write to the source, or an entry of
//! the target that is replaced or removed.
//!
//! While the copy runs, a note stands in the target where its hashing secret will be. No node starts on such a store:
//! it would take the keys that are still to come for new ones. The note gives way to the source's secret in one
//! compare-and-swap, after every record was read back and compared. A copy that was interrupted is repeated: what is
//! stored there already is compared and kept.

mod entries;
mod error;
mod nodes;
mod settings;

pub use error::Error;

use crate::clock::Clock;
use entries::Entries;
use semel_core::record::StateName;
use semel_core::store::Store;
use settings::Settings;
use std::collections::BTreeMap;
use std::time::Duration;

/// A copy of all that one store keeps into another one.
#[derive(Clone, Copy)]
pub struct Copy<'a> {
    /// Where the records are. It is only read.
    pub source: &'a dyn Store,
    /// Where they are to be: a store that nobody has worked on yet, or an unfinished copy of the same source.
    pub target: &'a dyn Store,
    /// How long something takes.
    pub clock: &'a dyn Clock,
    /// Nodes that did not sign off from the source are known to have ended: they are not watched for signs of life.
    pub nodes_have_ended: bool,
}

/// How far a copy has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nodes are registered at the source that may still run. They are watched for so much longer.
    Watching {
        /// How many.
        nodes: usize,
        /// For how much longer at most.
        left: Duration,
    },
    /// So many records and markers stand in the target.
    Copied(u64),
    /// So many of them were read back and compared.
    Verified(u64),
}

/// What was copied, each record read back and compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How many records there are in each state.
    pub records: BTreeMap<StateName, u64>,
    /// How many markers of moved commands there are.
    pub markers: u64,
    /// How many of the records and markers had been copied before, by a copy that was interrupted.
    pub found_there: u64,
    /// The names of the settings that were copied.
    pub settings: Vec<String>,
}

impl Report {
    /// How many records there are.
    pub fn records_total(&self) -> u64 {
        self.records.values().sum()
    }
}

impl Copy<'_> {
    /// Copies, compares, and only then lets nodes work on the target. May be repeated after any failure.
    ///
    /// An error leaves the source as it is, and the target without any node that could start on it; a target that was
    /// refused is left as it is.
    pub async fn run(&self, progress: &mut (dyn FnMut(Progress) + Send)) -> Result<Report, Error> {
        let before = Settings::read(self.source).await.map_err(Error::Source)?;
        before.check_source()?;
        if !self.nodes_have_ended {
            nodes::watch(self.source, self.clock, &before, progress).await?;
        }
        let gate = settings::close_gate(self.target, &before).await?;
        let entries = Entries { source: self.source, target: self.target, clock: self.clock };
        let found_there = entries.copy(progress).await?;
        let counted = entries.verify(progress).await?;
        // A node that was not seen before has left its mark by now.
        let after = Settings::read(self.source).await.map_err(Error::Source)?;
        if after != before {
            return Err(Error::SourceChanged);
        }
        let settings = settings::open_gate(self.target, &before, &gate).await?;
        Ok(Report { records: counted.records, markers: counted.markers, found_there, settings })
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
