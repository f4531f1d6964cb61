//! A request to run something once.

use crate::call::local::handover;
use crate::quota::{Measure, RateKeeper};
use crate::sealing::Seal;
use semel_core::fingerprint::Payload;
use semel_core::key::Key;
use semel_core::machine::Begin;
use semel_core::policy::Policy;
use semel_core::scope::Scope;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// A request to run something once: scope, key, payload and policy.
///
/// The same scope, key and payload are the same intent, however often it is sent.
///
/// ```
/// use semel::{Class, Identity, Intent, Key, Operation, Policy, Scope, payload};
///
/// let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
/// let key = Key::from_source("order-1234-charge")?;
/// let payload = payload::Raw::from("amount=5");
/// let intent = Intent::new(scope, key, Policy::new(Class::External), payload);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Intent {
    pub(crate) scope: Arc<Scope>,
    pub(crate) key: Key,
    pub(crate) policy: Arc<Policy>,
    pub(crate) payload: Arc<dyn Payload>,
    pub(crate) begin: Begin,
    pub(crate) wait: Option<Duration>,
    pub(crate) begin_within: Option<Duration>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) rates: Option<RateKeeper>,
    pub(crate) measure: Measure,
    pub(crate) seal: Seal,
    pub(crate) has_effect: bool,
    pub(crate) claimed_by: Option<Arc<str>>,
    /// The layer that recognised it before, and gets the result.
    pub(crate) handover: Option<Arc<handover::Shared>>,
}

impl Intent {
    /// An intent whose effect begins as soon as it is claimed. Duplicates wait for the engine's default time.
    pub fn new(
        scope: impl Into<Arc<Scope>>,
        key: Key,
        policy: impl Into<Arc<Policy>>,
        payload: impl Payload + 'static,
    ) -> Self {
        let payload = Arc::new(payload);
        let (scope, policy) = (scope.into(), policy.into());
        Self {
            scope,
            key,
            policy,
            payload,
            begin: Begin::Processing,
            wait: None,
            begin_within: None,
            address: None,
            rates: None,
            measure: Measure::default(),
            seal: Seal::default(),
            has_effect: true,
            claimed_by: None,
            handover: None,
        }
    }

    /// The work prepares before its effect begins, and calls [`Attempt::start`](crate::Attempt::start) right before
    /// it. A crash until then is harmless.
    #[must_use]
    pub fn reserved(mut self) -> Self {
        self.begin = Begin::Claimed;
        self
    }

    /// How long a duplicate of a running attempt waits for its outcome.
    #[must_use]
    pub fn waiting(mut self, wait: Duration) -> Self {
        self.wait = Some(wait);
        self
    }

    /// How long this call may take until its effect begins. If it has not begun by then, the attempt is given back, and
    /// the call fails with [`GivenUp::Late`](crate::GivenUp::Late). The limit counts from the call of
    /// [`Engine::execute`](crate::Engine::execute). The effect begins with the work; if the work
    /// [promised to check](crate::Attempt::promise_checks), it begins with the first check that succeeds.
    ///
    /// Nothing that has begun is cut off, and the limit is no part of the intent: a duplicate may have another one.
    #[must_use]
    pub fn beginning_within(mut self, limit: Duration) -> Self {
        self.begin_within = Some(limit);
        self
    }

    /// The peer's address, for quotas.
    #[must_use]
    pub fn from_address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Rates for a new key, in addition to the engine's quotas.
    #[must_use]
    pub fn limited_by(mut self, rates: RateKeeper) -> Self {
        self.rates = Some(rates);
        self
    }

    /// Which of the engine's rates count a new key. Default: together with all others.
    #[must_use]
    pub fn measured(mut self, measure: Measure) -> Self {
        self.measure = measure;
        self
    }

    /// Whether its outcome is sealed, if this call runs it. Default: sealed if the engine has keys.
    #[must_use]
    pub fn sealed(mut self, seal: Seal) -> Self {
        self.seal = seal;
        self
    }

    /// The claimant's name in the record's history: at most 64 bytes are stored. Default: the engine's name.
    #[must_use]
    pub fn claimed_by(mut self, who: impl Into<Arc<str>>) -> Self {
        self.claimed_by = Some(who.into());
        self
    }

    /// Its work has no effect: it only observes or counts. In every class, an attempt that was lost or ended in doubt
    /// is repeated, and leaves no unknown outcome.
    ///
    /// Never use this for work with an effect: it could run any number of times.
    #[must_use]
    pub fn without_effect(mut self) -> Self {
        self.has_effect = false;
        self
    }
}

impl fmt::Debug for Intent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intent")
            .field("scope", &self.scope)
            .field("begin", &self.begin)
            .finish_non_exhaustive()
    }
}
