//! How records are kept, besides where.
//!
//! What lives here: what the engine is built from. What must never: a secret in debug output.

use super::Plan;
use semel::archive::FileArchive;
use semel::core::store::Store;
use semel::{Builder, Engine, Settings};
use semel_http::Layer;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How records are kept, besides where.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Keeping {
    /// Spans and bounds of the engine.
    pub settings: Settings,
    /// The file that records are written to before they are deleted. None otherwise.
    pub archive: Option<PathBuf>,
    /// What keys and callers are hashed with.
    pub hashing: Hashing,
}

impl Keeping {
    /// Whether `[sweep]` says otherwise.
    pub(super) fn is_swept_otherwise(&self, other: &Self) -> bool {
        self.settings.sweep != other.settings.sweep || self.archive != other.archive
    }

    /// Whether `[clock]` says otherwise.
    pub(super) fn is_dated_otherwise(&self, other: &Self) -> bool {
        self.settings.clock != other.settings.clock
    }

    /// Whether the rest does.
    pub(super) fn is_other_store(&self, other: &Self) -> bool {
        let (sweep, clock) = (other.settings.sweep.clone(), other.settings.clock.clone());
        self.hashing != other.hashing || Settings { sweep, clock, ..self.settings.clone() } != other.settings
    }
}

/// What keys and callers are hashed with. A secret that the store keeps, unless one is set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Hashing {
    /// The secret in use.
    pub secret: Option<Vec<u8>>,
    /// What it is to be replaced with, if anything.
    pub next: Next,
}

/// What a hashing secret is to be replaced with.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Next {
    /// Nothing: whoever announces another one is none of this node's business.
    #[default]
    None,
    /// This one.
    Secret(Vec<u8>),
    /// Nothing, and what was announced before is taken back.
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

/// What is held of requests with a key at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of their bodies, over all requests.
    pub bodies_bytes_max: usize,
    /// How long one body may take to come.
    pub body_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bodies_bytes_max: Layer::BODIES_BYTES_MAX, body_time_max: Layer::BODY_TIME_MAX }
    }
}

/// An engine to be, on `store`, as `plan` has it. Opens the archive, where there is one.
pub(super) fn builder(plan: &Plan, store: &Arc<dyn Store>) -> Result<Builder, String> {
    let Keeping { settings, archive, hashing } = &plan.keeping;
    let mut builder =
        Engine::builder(Arc::clone(store)).settings(settings.clone()).quotas(plan.quotas.clone());
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
