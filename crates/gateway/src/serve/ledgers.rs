//! Rates that operations have used up, for as long as the process runs. A reload does not reset a limit that it does
//! not change.

use crate::config::{Operation, Plan};
use semel::quota::{QuotasError, RateKeeper};

/// The ledgers of all operations that have their own limits.
#[derive(Debug, Clone)]
pub(super) struct Ledgers {
    kept: Vec<(OperationKey, RateKeeper)>,
    /// How many callers and addresses each ledger distinguishes, fixed at start.
    tracked_max: usize,
}

/// What identifies an operation across configurations.
#[derive(Debug, Clone, PartialEq, Eq)]
enum OperationKey {
    Name(String),
    Route { template: String, methods: Vec<String> },
}

impl OperationKey {
    fn of(operation: &Operation) -> Self {
        let Operation { template, route_settings, .. } = operation;
        if let Some(name) = &route_settings.name {
            return Self::Name(name.clone());
        }
        let mut methods: Vec<_> =
            route_settings.methods.iter().map(|method| method.as_str().to_owned()).collect();
        methods.sort_unstable();
        methods.dedup();
        Self::Route { template: template.clone(), methods }
    }
}

impl Ledgers {
    /// Empty ledgers, for a process that starts.
    pub(super) fn new(plan: &Plan) -> Result<Self, QuotasError> {
        Self { kept: Vec::new(), tracked_max: plan.quotas.tracked_max }.renewed(plan)
    }

    /// The ledgers of `plan`. An operation with unchanged limits keeps its used-up rates.
    pub(super) fn renewed(&self, plan: &Plan) -> Result<Self, QuotasError> {
        let limited = plan.operations.iter().filter(|operation| !operation.rates.are_off());
        let kept = limited.map(|operation| {
            let rates = operation.rates;
            let known = self.of(operation).filter(|keeper| *keeper.rates() == rates);
            let keeper = known.map_or_else(|| RateKeeper::tracking(rates, self.tracked_max), Ok);
            Ok((OperationKey::of(operation), keeper?))
        });
        Ok(Self { kept: kept.collect::<Result<_, QuotasError>>()?, tracked_max: self.tracked_max })
    }

    /// An operation's own limits, besides those for all.
    pub(super) fn of(&self, operation: &Operation) -> Option<RateKeeper> {
        let whose = OperationKey::of(operation);
        self.kept.iter().find(|(kept, _)| *kept == whose).map(|(_, keeper)| keeper.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Overrides, read};
    use semel::core::id::CallerHash;
    use semel::quota::{Admission, QuotaKeeper, Quotas};
    use semel_net::target::Target;
    use std::time::Duration;

    fn plan(text: &str) -> Plan {
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = Overrides::default().with("upstream", &target.to_string());
        read(text, &over, &|_| None).expect("no mistake").plan().expect("a plan")
    }

    /// An operation that is limited to two keys per hour.
    fn limited(head: &str) -> String {
        format!("[[operation]]\n{head}\n[operation.quotas]\nnew_in_total = \"2/1h\"\n")
    }

    /// How many keys the first operation may still create.
    fn left(ledgers: &Ledgers, plan: &Plan) -> usize {
        let keeper = ledgers.of(&plan.operations[0]).expect("it is limited");
        let unlimited = QuotaKeeper::new(&Quotas::default()).expect("no limits");
        let caller = CallerHash::from_bytes([7; 32]);
        let admit = || unlimited.admit_under(Some(&keeper), caller, None, Duration::from_secs(1), &[]);
        std::iter::repeat_with(admit).take_while(|admitted| matches!(admitted, Admission::Granted(_))).count()
    }

    #[test]
    fn used_rates_survive_a_reload_with_unchanged_limits() {
        let named = "name = \"export\"\npath = \"/exports\"";
        let unnamed = "path = \"/a/{id}\"\nmethods = [\"POST\", \"PUT\"]";
        for (before, after) in [
            (named, named),
            (named, "name = \"export\"\npath = \"/v2/exports\"\nttl = \"7d\""),
            (unnamed, "path = \"/a/{id}\"\nmethods = [\"PUT\", \"POST\"]\nkey = \"required\""),
        ] {
            let old = plan(&limited(before));
            let ledgers = Ledgers::new(&old).expect("it makes sense");
            assert_eq!(left(&ledgers, &old), 2);
            let new = plan(&format!("{}{}", limited(after), limited("path = \"/other\"")));
            assert_eq!(left(&ledgers.renewed(&new).expect("it makes sense"), &new), 0, "{after}");
            assert!(
                ledgers.renewed(&plan("")).expect("it makes sense").kept.is_empty(),
                "nothing is left behind"
            );
        }
    }

    #[test]
    fn other_limits_and_other_operations_begin_with_nothing_used_up() {
        let old = plan(&limited("path = \"/exports\""));
        let ledgers = Ledgers::new(&old).expect("it makes sense");
        assert_eq!(left(&ledgers, &old), 2);
        let more = limited("path = \"/exports\"").replace("2/1h", "3/1h");
        for (text, count) in [
            (more, 3),
            (limited("path = \"/others\""), 2),
            (limited("path = \"/exports\"\nname = \"export\""), 2),
            (limited("path = \"/exports\"\nmethods = [\"PUT\"]"), 2),
        ] {
            let new = plan(&text);
            assert_eq!(left(&ledgers.renewed(&new).expect("it makes sense"), &new), count, "{text}");
        }
        let free = plan("[[operation]]\npath = \"/exports\"\n");
        assert!(ledgers.renewed(&free).expect("it makes sense").of(&free.operations[0]).is_none());
    }
}
