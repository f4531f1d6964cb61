//! The settings of a route: what it requires and what it promises.

use super::authorize::Authorize;
use super::callers::Callers;
use super::deadlines::Deadlines;
use super::key_source::KeySource;
use super::method::check_method;
use super::pattern::RoutePatternError;
use super::reconciler::Reconciler;
use crate::stored::{Retain, StoredHeaders};
use http::{HeaderName, Method};
use semel::core::classify::{Rules, RulesError};
use semel::core::key;
use semel::core::policy::{Class, Policy};
use semel::quota::RateKeeper;
use semel::sealing::Seal;
use std::fmt;
use std::time::Duration;

const MIB: usize = 1024 * 1024;

/// Whether requests need a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KeyRule {
    /// A request without one is refused.
    Required,
    /// A request without one passes through, unprotected.
    #[default]
    Optional,
    /// Nothing is protected, with or without a key.
    Off,
}

/// Whether settings are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// The settings are enforced.
    #[default]
    Enforce,
    /// Every request is passed on as if there were no layer, and an [`Observer`](crate::Observer) learns what would
    /// have happened. Nothing is refused, replayed or delayed, and an unavailable store has no effect.
    ///
    /// Its records are in a separate scope: they are never replayed, and when the settings are enforced, every key is
    /// new. Handlers get no [`Handle`](crate::Handle), as without a key.
    Shadow,
}

/// What happens to protected requests while the store is unavailable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StoreDown {
    /// They are refused: without a claim, nothing runs.
    #[default]
    Refuse,
    /// They are passed on without protection: **the guarantee is lost**, and a retry may run a second time. Their
    /// responses have `Idempotency-Stored: false`, and each is reported to the [`Observer`](crate::Observer).
    PassUnprotected,
}

/// The status for a key that is bound to another payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MismatchStatus {
    /// 422.
    #[default]
    UnprocessableContent,
    /// 409.
    Conflict,
}

/// The settings of a route.
///
/// ```
/// use semel_http::{KeyRule, RouteSettings};
/// use semel::core::policy::{Class, Policy};
/// use std::time::Duration;
///
/// let week = Policy::new(Class::External).with(|policy| policy.ttl = Duration::from_hours(7 * 24))?;
/// let settings = RouteSettings { key: KeyRule::Required, policy: week, ..RouteSettings::default() };
/// settings.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RouteSettings {
    /// The operation's name: all its paths share their keys. Default: method and path, both in their [normal
    /// form](semel::core::scope::normal_path). A name may look like that only if it is the route's own.
    pub name: Option<String>,
    /// The protected methods, in any letter case: `patch` counts as PATCH, and is passed on as `patch`. POST and
    /// PATCH.
    pub methods: Vec<Method>,
    /// Whether requests need a key. Optional.
    pub key: KeyRule,
    /// Where the key is read from. The header `Idempotency-Key`.
    pub key_source: KeySource,
    /// The rules for keys in `Idempotency-Key`.
    pub key_rules: key::Rules,
    /// How callers are identified here. Default: as on the rest of the [`Layer`](crate::Layer), including tenants.
    ///
    /// The caller then depends on the route: each request is identified only by the rule of its own route. `GET
    /// /operations/{id}` uses the rule of the operation's route; if that route no longer exists and there are several
    /// rules, the operation is not found.
    ///
    /// A record keeps its caller, but not the rule. Let the rule name where it [found the
    /// identity](semel::core::scope::Identity::found_in), such as the header. Otherwise user 7 of the layer's rule
    /// and merchant 7 of this rule are one caller for quotas, and if the route later uses another rule, one could get
    /// the other's replays.
    pub callers: Option<Callers>,
    /// Whether the settings are enforced. They are.
    pub mode: Mode,
    /// The policy of new records. Class `external`. With class `local`, the handler gets a
    /// [`Joinable`](crate::Joinable) and records what it commits in its own transaction; see the [crate](crate).
    pub policy: Policy,
    /// How responses are classified. No success can mean that nothing took effect.
    pub rules: Rules,
    /// How long a duplicate waits for a running request. Default: the engine's setting.
    pub wait: Option<Duration>,
    /// How a client's deadline is treated. See there for the default.
    pub deadlines: Deadlines,
    /// The longest request body, both received and decoded. 10 MiB.
    pub request_bytes_max: usize,
    /// The longest response body that is stored. 10 MiB. A longer one is passed on, and retries learn that it was
    /// not retained.
    pub response_bytes_max: usize,
    /// Which response headers are stored.
    pub stored_headers: StoredHeaders,
    /// How much of a response is stored. All of it.
    pub retain: Retain,
    /// Whether outcomes are sealed. Default: if the engine has keys. If sealing is [required](Seal::Required), a
    /// layer on an engine without keys cannot be built.
    pub seal: Seal,
    /// Rates for new keys, in addition to the engine's quotas; clones share their counts. None.
    pub rates: Option<RateKeeper>,
    /// The authorization before a stored outcome is replayed. None: authentication is outside of the layer.
    pub authorize: Option<Authorize>,
    /// The reconciler for unknown outcomes; see there how to pass it to the engine. None.
    pub reconciler: Option<Reconciler>,
    /// The status for a key that is bound to another payload. 422.
    pub mismatch: MismatchStatus,
    /// What happens to requests while the store is unavailable. They are refused.
    pub store_down: StoreDown,
}

impl Default for RouteSettings {
    fn default() -> Self {
        Self {
            name: None,
            methods: vec![Method::POST, Method::PATCH],
            key: KeyRule::default(),
            key_source: KeySource::default(),
            key_rules: key::Rules::default(),
            callers: None,
            mode: Mode::default(),
            policy: Policy::new(Class::External),
            rules: Rules::default(),
            wait: None,
            deadlines: Deadlines::default(),
            request_bytes_max: 10 * MIB,
            response_bytes_max: 10 * MIB,
            stored_headers: StoredHeaders::default(),
            retain: Retain::default(),
            seal: Seal::default(),
            rates: None,
            authorize: None,
            reconciler: None,
            mismatch: MismatchStatus::default(),
            store_down: StoreDown::default(),
        }
    }
}

impl RouteSettings {
    /// The same settings with keys from another header, with IDs that somebody else chose (`webhook-id`): 1 to 255
    /// characters, weak or not.
    #[must_use]
    pub fn keyed_by(self, header: HeaderName) -> Self {
        Self { key_source: KeySource::Header(header), ..self }
    }

    /// Validates the settings.
    pub fn check(&self) -> Result<(), RouteSettingsError> {
        if self.policy.class == Class::Local {
            self.check_local()?;
        }
        self.key_source.check()?;
        self.methods.iter().try_for_each(|method| check_method(method).map(drop))?;
        self.rules.check().map_err(RouteSettingsError::Rules)
    }
}

impl RouteSettings {
    /// The record is what the handler commits, and nothing runs without its record.
    fn check_local(&self) -> Result<(), RouteSettingsError> {
        if self.store_down == StoreDown::PassUnprotected {
            return Err(RouteSettingsError::Local("store_down"));
        }
        if !matches!(self.retain, Retain::Whole) {
            return Err(RouteSettingsError::Local("retain"));
        }
        if self.reconciler.is_some() {
            return Err(RouteSettingsError::Local("reconciler"));
        }
        Ok(())
    }
}

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RouteSettingsError {
    /// This setting does not apply to class `local`: the handler's own transaction decides what is recorded, and
    /// nothing is ever in doubt.
    Local(&'static str),
    /// The key would be read from a header that is removed from every request.
    KeyHeader,
    /// A composite key has fewer than 2 or more than 16 parts, or nested composites.
    Composite,
    /// The name is a method and a path, and belongs to the records of another route.
    Name(String),
    /// Two routes have this name, but identify callers by different rules.
    Callers(String),
    /// No request can match a route's pattern.
    Pattern(RoutePatternError),
    /// A method is misspelled: no request can match it.
    Method {
        /// What was found.
        found: String,
        /// The method that it resembles.
        meant: &'static str,
    },
    /// The classification rules are invalid.
    Rules(RulesError),
    /// The outcomes of this route must be sealed, and the engine has no key.
    NoSealingKey(String),
    /// This route has a reconciler that the engine does not know: it would never be asked.
    Unasked(String),
}

impl fmt::Display for RouteSettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(setting) => write!(
                f,
                "`{setting}` cannot be set for class local: effect and record commit in the handler's own transaction, which \
                 decides what is recorded. Leave it out, or use class external or downstream"
            ),
            Self::KeyHeader => f.write_str("the key cannot come from a header that Semel itself sets"),
            Self::Composite => f.write_str(
                "a composite key needs 2 to 16 parts, each from one source: a header, the body, the fingerprint",
            ),
            Self::Name(name) => write!(
                f,
                "`{name}` is also the name of the records of another route, which would count as this operation's: its probe would \
                 be asked about them. Choose a name that is not a method and a path"
            ),
            Self::Callers(name) => write!(
                f,
                "two routes are called `{name}` and share keys, but identify callers by two rules: a caller of one could get \
                 responses of the other. Give both a clone of one rule, or different names"
            ),
            Self::NoSealingKey(route) => {
                write!(
                    f,
                    "the outcomes of `{route}` must be sealed, and the engine has no key; set one with Builder::sealing"
                )
            }
            Self::Unasked(route) => write!(
                f,
                "`{route}` has a reconciler that the engine does not know, so it would never be asked; pass the routes with \
                 Builder::reconcilers and Routes::reconciler_of"
            ),
            Self::Pattern(error) => error.fmt(f),
            Self::Method { found, meant } => {
                write!(f, "`{found}` is not an HTTP method; did you mean `{meant}`?")
            }
            Self::Rules(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RouteSettingsError {}
