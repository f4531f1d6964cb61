//! The settings that the engine is built from.

use super::Plan;
use semel::archive::FileArchive;
use semel::core::store::Store;
use semel::secrets::Terms;
use semel::{Builder, Engine, Settings};
use semel_http::Layer;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How records are stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageSettings {
    /// Durations and limits of the engine.
    pub settings: Settings,
    /// Whether the skew was set, and is not just the default.
    pub skew_is_chosen: bool,
    /// The file that records are archived to before they are deleted.
    pub archive: Option<PathBuf>,
    /// The secret that hashes keys and callers.
    pub hashing: Hashing,
    /// How this node follows a change of the secret. Not configurable: the limit on `timeout` under `[store]` depends
    /// on it.
    pub secret_terms: Terms,
}

impl StorageSettings {
    /// Whether `[sweep]` differs.
    pub(super) fn is_swept_otherwise(&self, other: &Self) -> bool {
        self.settings.sweep != other.settings.sweep || self.archive != other.archive
    }

    /// Whether `[clock]` differs.
    pub(super) fn is_dated_otherwise(&self, other: &Self) -> bool {
        self.settings.clock != other.settings.clock
    }

    /// Whether the rest differs.
    pub(super) fn is_other_store(&self, other: &Self) -> bool {
        let (sweep, clock) = (other.settings.sweep.clone(), other.settings.clock.clone());
        let is_hashed_otherwise = self.hashing != other.hashing || self.secret_terms != other.secret_terms;
        is_hashed_otherwise || Settings { sweep, clock, ..self.settings.clone() } != other.settings
    }
}

/// The secret that hashes keys and callers. Without one, the store has its own.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hashing {
    /// The secret in use.
    pub secret: Option<Vec<u8>>,
    /// Its replacement, if any.
    pub next: Next,
}

/// The replacement of a hashing secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Next {
    /// None: an announcement by others does not concern this node.
    #[default]
    None,
    /// This one.
    Secret(Vec<u8>),
    /// None, and an earlier announcement is withdrawn.
    Withdrawn,
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secret = if self.secret.is_some() { "set" } else { "none" };
        let next = match self.next {
            Next::None => "none",
            Next::Secret(_) => "set",
            Next::Withdrawn => "withdrawn",
        };
        write!(f, "Hashing({secret}, next {next})")
    }
}

/// How much of requests with a key, and of their responses, is held in memory at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of their bodies, in total.
    pub bodies_bytes_max: usize,
    /// Bytes of the responses, in total.
    pub responses_bytes_max: usize,
    /// How long one body may take to arrive.
    pub body_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bodies_bytes_max: Layer::BODIES_BYTES_MAX,
            responses_bytes_max: Layer::RESPONSES_BYTES_MAX,
            body_time_max: Layer::BODY_TIME_MAX,
        }
    }
}

/// A builder for an engine on `store`, as `plan` says. Opens the archive, if there is one.
pub(super) fn builder(plan: &Plan, store: &Arc<dyn Store>) -> Result<Builder, String> {
    let StorageSettings { settings, skew_is_chosen, archive, hashing, secret_terms } = &plan.storage;
    if store.capabilities().clocks_can_differ() && !skew_is_chosen {
        return Err(format!(
            "{}: machines that share this store do not share a clock; set [clock] skew to the most that their clocks can differ \
             by",
            plan.store
        ));
    }
    let mut builder = Engine::builder(Arc::clone(store))
        .settings(settings.clone())
        .quotas(plan.quotas.clone())
        .secret_terms(*secret_terms);
    if let Some(ring) = &plan.sealing {
        builder = builder.sealing(ring.clone());
    }
    if let Some(path) = archive {
        builder = builder.archive(FileArchive::open(path).map_err(|error| error.to_string())?);
    }
    if let Some(secret) = &hashing.secret {
        builder = builder.secret(secret.clone());
    }
    if let Next::Secret(next) = &hashing.next {
        builder = builder.rotate_to(next.clone());
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::core::store::{Capabilities, ClockSource, Delegate, Sharing};
    use semel::memory;

    /// A store on several machines, each with its own clock.
    struct Scattered(memory::Store);

    impl Delegate for Scattered {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            let (shared, clock) = (Sharing::Machines, ClockSource::EachMachine);
            Capabilities { shared, clock, ..self.0.capabilities() }
        }
    }

    #[test]
    fn machines_with_their_own_clocks_need_a_configured_skew() {
        let built = |store: Arc<dyn Store>, config: &str| {
            let target = crate::upstream::Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides { target: Some(target), ..Default::default() };
            let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan();
            builder(&plan.expect("a plan"), &store).map(drop)
        };
        let scattered = || Arc::new(Scattered(memory::Store::new()));
        let refused = built(scattered(), "").expect_err("nobody has said so");
        assert!(refused.contains("[clock] skew"), "{refused}");
        for config in ["[clock]\nskew = \"2s\"\n", "[sweep]\nskew = \"2s\"\n"] {
            assert_eq!(built(scattered(), config), Ok(()), "{config}");
        }
        assert_eq!(built(Arc::new(memory::Store::new()), ""), Ok(()), "one machine has one clock");
    }
}
