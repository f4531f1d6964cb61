//! How records are stored, and how much of requests is held in memory.

use semel::Settings;
use semel::secrets::RefreshSettings;
use semel_http::Layer;
use std::fmt;
use std::path::PathBuf;
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
    pub secret_refresh: RefreshSettings,
}

impl StorageSettings {
    /// Whether `[sweep]` differs.
    pub(crate) fn is_swept_otherwise(&self, other: &Self) -> bool {
        self.settings.sweep != other.settings.sweep || self.archive != other.archive
    }

    /// Whether `[clock]` differs.
    pub(crate) fn is_dated_otherwise(&self, other: &Self) -> bool {
        self.settings.clock != other.settings.clock
    }

    /// Whether the rest differs.
    pub(crate) fn is_other_store(&self, other: &Self) -> bool {
        let (sweep, clock) = (other.settings.sweep.clone(), other.settings.clock.clone());
        let is_hashed_otherwise =
            self.hashing != other.hashing || self.secret_refresh != other.secret_refresh;
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
