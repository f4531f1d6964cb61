//! Asking the quotas whether a new key may be claimed.

use crate::call::answer::Error;
use crate::call::intent::Intent;
use crate::node::Node;
use crate::node::store_access::StoreAccess;
use crate::observe::Event;
use crate::quota::{Denied, Keepers, Permit};
use semel_core::machine::Command;
use semel_core::store::Pending;

/// A permit for a new key, or why there is none.
pub(crate) async fn admit(
    store: &StoreAccess,
    quota: &Keepers,
    command: &Command<'_>,
    intent: &Intent,
) -> Result<Permit, Error> {
    let now = store.clock.uptime();
    let count = |what, at_most| -> Pending<'_, u64> { Box::pin(store.count(what, at_most)) };
    let Intent { address, rates, measure, .. } = intent;
    let keeper = quota.of(*measure);
    let admitted = keeper.admit_with(&count, rates.as_ref(), command.caller_hash, *address, now).await;
    admitted.map_err(|denied| match denied {
        Denied::Exceeded(exceeded) => Error::Quota(exceeded),
        Denied::Store(error) => Error::Store(error),
    })
}

/// Reports a new key that the quotas have refused.
pub(crate) fn report_refused(node: &Node, command: &Command<'_>, error: &Error) {
    if let Error::Quota(_) = error {
        let (operation, caller) = (&*command.operation, command.caller_hash);
        node.observe(&Event::QuotaExceeded { operation, caller });
    }
}
