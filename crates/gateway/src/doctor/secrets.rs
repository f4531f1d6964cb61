//! How far the store has come in replacing its hashing secret, and who works on it.

use super::records::many;
use super::{Finding, Report};
use semel::core::store::{Error, Filter, Store};
use semel::secrets::{self, Bounded, Phase, rotation};
use semel::{Settings, SystemClock};
use serde::Serialize;

/// The state of the store's hashing secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HashingSecretReport {
    /// `steady`, `announced`, `moving` or `settled`.
    pub phase: String,
    /// How many secrets there were before.
    pub generation: u32,
    /// The nodes on the store: gateways, and tools that have it open.
    pub nodes: Vec<String>,
    /// The nodes that have not confirmed the current phase.
    pub behind: Vec<String>,
    /// How many records still use the secret that is being replaced.
    pub records_left: u64,
    /// How many markers there are.
    pub markers: u64,
}

pub(super) async fn check(
    store: &dyn Store,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Result<(), Error> {
    if store.settings().await?.iter().all(|(name, _)| name != "secrets") {
        let page = store.page(&Filter::default(), None, 1).await?;
        if !page.items.is_empty() || page.next.is_some() {
            found.push(Finding::error(
                "secret-lost",
                secrets::Error::Lost.to_string(),
                "restore the store's settings from a backup; or accept the loss, if the store is in Redis: semel doctor --accept-loss --reason \"…\"",
            ));
            return Ok(());
        }
        found.push(Finding::notice(
            "no-secret",
            "the store has no hashing secret yet: no gateway has used it",
            "nothing to do; the first gateway creates one",
        ));
        return Ok(());
    }
    let bounded = Bounded::new(store, &SystemClock, Settings::default().store_timeout);
    let progress = match rotation::progress(bounded).await {
        Ok(progress) => progress,
        Err(secrets::Error::Store(error)) => return Err(error),
        Err(error @ secrets::Error::Copying) => {
            let fix = "semel records copy --from … --to …, the same command as before";
            found.push(Finding::error("copy-unfinished", error.to_string(), fix));
            return Ok(());
        }
        Err(error) => {
            found.push(Finding::error(
                "secret-unreadable",
                format!("the state of the hashing secret cannot be read: {error}"),
                "restore the store from a backup: without its secret, no key is recognised",
            ));
            return Ok(());
        }
    };
    let rotation::Progress { phase, generation, nodes, records_left, markers } = progress;
    let behind: Vec<_> = nodes.iter().filter(|node| !node.confirmed).map(|node| node.name.clone()).collect();
    let nodes = nodes.into_iter().map(|node| node.name).collect();
    if phase == Phase::Steady && markers > 0 {
        found.push(Finding::warning(
            "markers-left",
            format!("{} of a secret that is no longer used", many(markers, "marker")),
            "they are harmless; check how the last change of the secret ended",
        ));
    }
    if phase != Phase::Steady {
        let waits = match (&behind[..], records_left) {
            ([], 0) => "it waits for nothing".to_owned(),
            ([], left) => format!("{} left under the old one", many(left, "record")),
            (behind, _) => format!("it waits for {}", behind.join(", ")),
        };
        found.push(Finding::notice(
            "secret-changing",
            format!("the hashing secret is being replaced ({phase}): {waits}; {}", many(markers, "marker")),
            "let it continue; keep the old secret configured until it has ended",
        ));
    }
    report.secret = Some(HashingSecretReport {
        phase: phase.to_string(),
        generation,
        nodes,
        behind,
        records_left,
        markers,
    });
    Ok(())
}
