//! Which commands use up each other's rates.
//!
//! Contents: an engine's limits, once for those that count together and once for those that only look on. Never here:
//! a record that no cap counts.

use super::{QuotaKeeper, Quotas, QuotasError};

/// By which of an engine's rates a command is measured, should its key be new. Caps count the records that the store
/// holds, and make no difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Measure {
    /// By those of all others: what it uses up they lack.
    #[default]
    Together,
    /// By the same rates, and the same limits on addresses, but apart: others are none the worse for it. For commands
    /// that only look on.
    Apart,
    /// By no rate.
    CapsOnly,
}

/// The keepers of an engine's limits. Like those of two nodes, they agree on what the store counts.
#[derive(Debug)]
pub(crate) struct Keepers {
    together: QuotaKeeper,
    apart: QuotaKeeper,
    caps_only: QuotaKeeper,
}

impl Keepers {
    /// With nothing used up.
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
