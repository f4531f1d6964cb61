//! The terms of a route: what it asks of a request and what it promises.
//!
//! Contents: everything that can be set for one route, with its default. Never here: a decision about a record; what
//! is in one is [`Policy`], and judged elsewhere.

use crate::authorize::Authorize;
use crate::caller::Callers;
use crate::kept::Kept;
use crate::method::check_method;
use crate::pattern::RoutePatternError;
use crate::rebuild::Retain;
use crate::reconciler::Reconciler;
use crate::source::KeySource;
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
    /// Nothing is protected, key or not.
    Off,
}

/// Whether terms are enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// What they promise is kept, and what they forbid is refused.
    #[default]
    Enforce,
    /// Every request is handed on as if there were no layer, and an [`Observer`](crate::Observer) learns what would
    /// have become of it. Nothing is refused, replayed or waited for, and a store that is down is nobody's trouble.
    ///
    /// What is remembered for that is in a scope of its own: nothing of it is ever replayed, and as soon as the terms
    /// are enforced every key is new. Handlers get no [`Handle`](crate::Handle), as without a key.
    Shadow,
}

/// What becomes of protected requests while the store cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum StoreDown {
    /// They are refused: without a claim nothing runs.
    #[default]
    Refuse,
    /// They are handed on without protection: **what was promised about them is given up**, and a retry may run a
    /// second time. Their responses say `Idempotency-Stored: false`, and each is told to the
    /// [`Observer`](crate::Observer).
    PassUnprotected,
}

/// How a key is refused that belongs to another payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MismatchStatus {
    /// 422.
    #[default]
    UnprocessableContent,
    /// 409.
    Conflict,
}

/// The terms of a route.
///
/// ```
/// use semel_http::{KeyRule, Terms};
/// use semel::core::policy::{Class, Policy};
/// use std::time::Duration;
///
/// let week = Policy::new(Class::External).with(|policy| policy.ttl = Duration::from_hours(7 * 24))?;
/// let terms = Terms { key: KeyRule::Required, policy: week, ..Terms::default() };
/// terms.check()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Terms {
    /// The operation's name: every path of it shares its keys. Method and path, both in their [normal
    /// form](semel::core::scope::normal_path), if there is none; a name may read like that only if these are its own.
    pub name: Option<String>,
    /// The methods that are protected, in any letter case: a request with `patch` is one with PATCH, and is handed on
    /// as `patch`. POST and PATCH.
    pub methods: Vec<Method>,
    /// Whether requests need a key. Optional.
    pub key: KeyRule,
    /// Where the key is read from. The header `Idempotency-Key`.
    pub key_source: KeySource,
    /// What a key has to look like that comes in `Idempotency-Key`.
    pub key_rules: key::Rules,
    /// How callers are distinguished here. As on the rest of the [`Layer`](crate::Layer), its tenants included.
    ///
    /// Whose key it is then follows from the route: what is believed on one is not on another, and a request is
    /// looked at by the rule of its own route only. So is `GET /operations/{id}`, by the rule of the route that the
    /// operation came on; where that is no route's any more and there are several rules, it is not found.
    ///
    /// A record keeps its caller, and not the rule that told it. Have the rule say what it [found a name
    /// in](semel::core::scope::Identity::found_in), such as the header: otherwise user 7 of the layer's rule and
    /// merchant 7 of this one are one caller for quotas, and as soon as the route goes by another rule the one is
    /// given the other's replays.
    pub callers: Option<Callers>,
    /// Whether all of this is enforced. It is.
    pub mode: Mode,
    /// What a record is claimed under. Class `external`. With class `local` the handler gets a
    /// [`Joinable`](crate::Joinable), and records what it commits in its own transaction; see the [crate](crate).
    pub policy: Policy,
    /// How answers are read. No success can mean that nothing took effect.
    pub rules: Rules,
    /// How long a duplicate of a running request waits for its outcome. As the engine is set.
    pub wait: Option<Duration>,
    /// The longest request body, as received and decoded. 10 MiB.
    pub request_bytes_max: usize,
    /// The longest response body that is kept. 10 MiB. A longer one is passed on, and its retries learn that it was not
    /// kept.
    pub response_bytes_max: usize,
    /// Which response headers are kept.
    pub kept: Kept,
    /// How much of a response is kept. All of it.
    pub retain: Retain,
    /// Whether what is kept is sealed. Where the engine has keys. A layer over an engine without keys is not made of
    /// terms that [require](Seal::Required) it.
    pub seal: Seal,
    /// Rates that new keys have to keep to, besides the engine's own quotas; anyone who has a clone of them shares
    /// them. None.
    pub rates: Option<RateKeeper>,
    /// Whom to ask before a stored outcome is replayed. Nobody: whatever authenticates stands outside of the layer.
    pub authorize: Option<Authorize>,
    /// Whom to ask what became of an effect in doubt; see there how the engine learns of it. Nobody.
    pub reconciler: Option<Reconciler>,
    /// How a key is refused that belongs to another payload. 422.
    pub mismatch: MismatchStatus,
    /// What becomes of requests while the store cannot be reached. They are refused.
    pub store_down: StoreDown,
}

impl Default for Terms {
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
            request_bytes_max: 10 * MIB,
            response_bytes_max: 10 * MIB,
            kept: Kept::default(),
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

impl Terms {
    /// The same terms with keys from another header, whose ids are somebody else's choice (`webhook-id`): 1 to 255
    /// characters, weak or not.
    #[must_use]
    pub fn keyed_by(self, header: HeaderName) -> Self {
        Self { key_source: KeySource::Header(header), ..self }
    }

    /// Says what is wrong with the terms, if anything is.
    pub fn check(&self) -> Result<(), TermsError> {
        if self.policy.class == Class::Local {
            self.check_local()?;
        }
        self.key_source.check()?;
        self.methods.iter().try_for_each(|method| check_method(method).map(drop))?;
        self.rules.check().map_err(TermsError::Rules)
    }
}

impl Terms {
    /// What is recorded is what the handler commits, and nothing runs without its record.
    fn check_local(&self) -> Result<(), TermsError> {
        if self.store_down == StoreDown::PassUnprotected {
            return Err(TermsError::Local("store_down"));
        }
        if !matches!(self.retain, Retain::Whole) {
            return Err(TermsError::Local("retain"));
        }
        if self.reconciler.is_some() {
            return Err(TermsError::Local("reconciler"));
        }
        Ok(())
    }
}

/// Why terms cannot be put to use.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermsError {
    /// The class is `local`, and this setting means nothing there: the handler's own transaction decides what is
    /// recorded, and nothing is ever in doubt.
    Local(&'static str),
    /// The key would be read from a header that is taken off every request.
    KeyHeader,
    /// A key would be made of fewer than 2 parts, of more than 16, or of parts that are made of parts.
    Composite,
    /// The records of another route are called so: a method and a path that are not the operation's own.
    Name(String),
    /// Two routes are one operation, by this name, and tell its callers apart by two rules.
    Callers(String),
    /// No request would come under the pattern of a route.
    Pattern(RoutePatternError),
    /// A method is mistyped: no request would come under it.
    Method {
        /// What was found.
        found: String,
        /// The method that it resembles.
        meant: &'static str,
    },
    /// The rules for answers are not fit for use.
    Rules(RulesError),
    /// The outcomes of this route are to be sealed, and the engine has no key to seal them with.
    NoSealingKey(String),
    /// This route has a reconciler, and the engine does not know of it: nobody would ever be asked.
    Unasked(String),
}

impl fmt::Display for TermsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(setting) => write!(
                f,
                "`{setting}` cannot be set for class local: effect and record commit in the handler's own transaction, which alone \
                 decides what is recorded. Leave it out, or use class external or downstream"
            ),
            Self::KeyHeader => f.write_str("the key cannot come from a header that Semel itself sets"),
            Self::Composite => f.write_str(
                "a key is made of 2 to 16 parts, each from one place: a header, the body, the fingerprint",
            ),
            Self::Name(name) => write!(
                f,
                "`{name}` is what the records of that route are called, and would be taken for this operation's: its probe would \
                 be asked about them. Give it a name that is not a method and a path"
            ),
            Self::Callers(name) => write!(
                f,
                "two routes are called `{name}` and share its keys, but tell callers apart by two rules: what one believes \
                 would fetch what the other protects. Give both a clone of one rule, or each a name"
            ),
            Self::NoSealingKey(route) => {
                write!(
                    f,
                    "the outcomes of `{route}` are to be sealed, and the engine has no key: nothing is stored unsealed instead"
                )
            }
            Self::Unasked(route) => write!(
                f,
                "`{route}` has a reconciler that the engine does not know of, so that nobody would be asked: hand it the routes by \
                 Builder::reconcilers and Routes::reconciler_of"
            ),
            Self::Pattern(error) => error.fmt(f),
            Self::Method { found, meant } => {
                write!(f, "`{found}` is not a method that requests have; did you mean `{meant}`?")
            }
            Self::Rules(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TermsError {}
