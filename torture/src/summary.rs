//! The counts of a run, as a table. A run that met nothing must not pass.

use crate::evidence::Evidence;
use std::collections::BTreeSet;
use std::fmt;

/// The counts of one run.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) rounds: u64,
    pub(crate) kills: usize,
    /// Within 50 ms of the start: while the file is opened or recovered.
    pub(crate) kills_in_opening: usize,
    pub(crate) ended_by_themselves: usize,
    pub(crate) commands: usize,
    pub(crate) effects: usize,
    pub(crate) acknowledged: usize,
    pub(crate) replays: usize,
    pub(crate) unknown: BTreeSet<String>,
    pub(crate) take_overs: usize,
    pub(crate) expired: usize,
    pub(crate) audits: usize,
    /// Only with power cuts.
    pub(crate) writes_discarded: Option<usize>,
    /// Only with power cuts: outcomes that were read and acknowledged between a kill and the cut.
    pub(crate) acknowledged_before_cut: Option<usize>,
}

impl Summary {
    pub(crate) fn count(&mut self, evidence: &Evidence) {
        self.commands = evidence.commands();
        self.effects = evidence.effects();
        self.acknowledged = evidence.acknowledged();
        self.take_overs = evidence.take_overs();
        self.expired = evidence.expired();
    }

    fn rows(&self) -> Vec<(&'static str, usize)> {
        let mut rows = vec![
            ("rounds", usize::try_from(self.rounds).unwrap_or(usize::MAX)),
            ("kills", self.kills),
            ("kills near the start", self.kills_in_opening),
            ("ended by themselves", self.ended_by_themselves),
            ("commands answered", self.commands),
            ("effects", self.effects),
            ("acknowledged", self.acknowledged),
            ("replays verified", self.replays),
            ("unknown, explained", self.unknown.len()),
            ("take-overs", self.take_overs),
            ("refused as expired", self.expired),
            ("integrity checks", self.audits),
        ];
        rows.extend(self.writes_discarded.map(|count| ("writes discarded", count)));
        rows.extend(self.acknowledged_before_cut.map(|count| ("read before a cut", count)));
        rows
    }

    /// The kinds of events that a long enough run must have met, and this one has not.
    pub(crate) fn missed(&self) -> Vec<&'static str> {
        let may_be_none = ["kills near the start", "ended by themselves", "refused as expired"];
        let must = |row: &(&'static str, usize)| row.1 == 0 && !may_be_none.contains(&row.0);
        self.rows().into_iter().filter(must).map(|(name, _)| name).collect()
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in self.rows() {
            writeln!(f, "  {name:<22} {count:>9}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_met_no_faults_says_so() {
        assert!(Summary::default().missed().contains(&"kills"));
        let blind = Summary { writes_discarded: Some(0), ..Summary::default() };
        assert!(blind.missed().contains(&"writes discarded"));
    }
}
