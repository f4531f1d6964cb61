//! Which commands share rates.
//!
//! An engine's limits, once for normal commands and once for commands that only observe. Caps count all records.

use super::{QuotaKeeper, Quotas, QuotasError};

/// Which of an engine's rates a new key counts against. Caps count all records of the store in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Measure {
    /// The shared rates.
    #[default]
    Together,
    /// Separate counters with the same rates and address limits, so others are not affected. For commands that only
    /// observe.
    Apart,
    /// No rate.
    CapsOnly,
}

/// The keepers of an engine's limits. Like those of two nodes, they share the store's counts.
#[derive(Debug)]
pub(crate) struct Keepers {
    together: QuotaKeeper,
    apart: QuotaKeeper,
    caps_only: QuotaKeeper,
}

impl Keepers {
    /// Nothing is used up yet.
    pub(crate) fn new(quotas: &Quotas) -> Result<Self, QuotasError> {
        let caps = Quotas {
            new_per_caller: None,
            new_per_address: None,
            new_in_total: None,
            records_per_address: None,
            ..quotas.clone()
        };
        Ok(Self {
            together: QuotaKeeper::new(quotas)?,
            apart: QuotaKeeper::new(quotas)?,
            caps_only: QuotaKeeper::new(&caps)?,
        })
    }

    pub(crate) fn of(&self, measure: Measure) -> &QuotaKeeper {
        match measure {
            Measure::Together => &self.together,
            Measure::Apart => &self.apart,
            Measure::CapsOnly => &self.caps_only,
        }
    }
}
