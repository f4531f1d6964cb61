//! Terms as far as somebody spoke of them.
//!
//! What lives here: one set of choices, laid over another: flags over `[defaults]`, an operation over both. What must never: a
//! default; what nobody spoke of is [`Terms`]' to say.

use http::{HeaderName, Method};
use semel::core::classify::Meaning;
use semel::core::fingerprint::Selection;
use semel::core::key;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, MismatchStatus, Mode, Retain, StoreDown, Terms};
use std::time::Duration;

/// What is kept of a response, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// All of it.
    #[default]
    Whole,
    /// All of it, sealed.
    Sealed,
    /// The least.
    Minimal,
}

macro_rules! patch {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// Terms as far as somebody spoke of them.
        #[derive(Debug, Clone, Default)]
        pub struct Patch {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl Patch {
            /// These choices, and for the rest those of `under`.
            #[must_use]
            pub fn over(self, under: &Self) -> Self {
                Self { $($name: self.$name.or_else(|| under.$name.clone()),)* }
            }

            /// Whether it speaks of the key of this name.
            pub(super) fn has(&self, key: &str) -> bool {
                match key {
                    $(stringify!($name) => self.$name.is_some(),)*
                    _ => false,
                }
            }
        }
    };
}

patch! {
    /// See [`Terms::methods`].
    methods: Vec<Method>,
    /// See [`Terms::key`].
    key: KeyRule,
    /// See [`Terms::key_source`].
    key_from: KeySource,
    /// The fewest characters of a key.
    key_min: usize,
    /// The most.
    key_max: usize,
    /// What happens to weak keys.
    weak_keys: key::Treatment,
    /// See [`Terms::mode`].
    mode: Mode,
    /// How effects happen.
    class: Class,
    /// How long a downstream system remembers.
    dedup_window: Duration,
    /// How long outcomes are replayed.
    ttl: Duration,
    /// How long a refusal for want of permission is remembered.
    denied_ttl: Duration,
    /// How long after that a late retry is refused.
    tombstone: Duration,
    /// What a key comes to after its time.
    after_expiry: AfterExpiry,
    /// For how long clients retry; nothing comes of it but a check.
    retry_horizon: Duration,
    /// How long a claim holds without renewal.
    lease: Duration,
    /// See [`Terms::wait`].
    wait: Duration,
    /// After how many attempts a key is given up.
    attempts_max: u32,
    /// Whether an answer that took no effect lets the next request try again.
    rerun: bool,
    /// Statuses that promise that nothing took effect.
    not_applied_statuses: Vec<Status>,
    /// Statuses with a meaning of their own.
    statuses: Vec<(Status, Meaning)>,
    /// What is kept of a response, and how.
    kept: Keep,
    /// Response headers that are kept although they usually are not.
    keep_headers: Vec<HeaderName>,
    /// Response headers that are not kept although they usually are.
    drop_headers: Vec<HeaderName>,
    /// The longest response body that is kept.
    kept_max: usize,
    /// The longest request body.
    request_max: usize,
    /// The only places of a JSON body that count.
    fingerprint_include: Vec<String>,
    /// Places of a JSON body that do not.
    fingerprint_exclude: Vec<String>,
    /// Request headers that count.
    fingerprint_headers: Vec<String>,
    /// See [`Terms::mismatch`].
    mismatch_status: MismatchStatus,
    /// See [`Terms::store_down`].
    store_down: StoreDown,
}

/// How long a twin waits where nobody spoke of it.
const WAIT: Duration = Duration::from_secs(2);

/// The keys that do not go together, and why.
pub(super) type Mistake = (&'static [&'static str], String);

impl Patch {
    /// The policy that these choices make, fit for use or not.
    pub(super) fn policy(&self, work_deadline: Duration) -> Result<PolicySettings, Mistake> {
        let set = |place: &mut Duration, span: Option<Duration>| *place = span.unwrap_or(*place);
        let mut policy = PolicySettings::from(Terms::default().policy);
        policy.class = self.class.unwrap_or(policy.class);
        policy.work_deadline = work_deadline;
        set(&mut policy.dedup_window, self.dedup_window);
        set(&mut policy.ttl, self.ttl);
        set(&mut policy.denied_ttl, self.denied_ttl);
        set(&mut policy.tombstone, self.tombstone);
        set(&mut policy.lease, self.lease);
        policy.after_expiry = self.after_expiry.unwrap_or(policy.after_expiry);
        policy.attempts_max = self.attempts_max.or(policy.attempts_max);
        policy.selection = self.selection()?;
        Ok(policy)
    }

    /// The terms that these choices make, under a policy.
    pub(super) fn terms(&self, name: Option<String>, policy: Policy) -> Result<Terms, Mistake> {
        let wait = Some(self.wait.unwrap_or(WAIT));
        let mut terms = Terms { name, policy, wait, ..Terms::default() };
        if let Some(methods) = &self.methods {
            terms.methods.clone_from(methods);
        }
        terms.key = self.key.unwrap_or(terms.key);
        if let Some(source) = &self.key_from {
            terms.key_source = source.clone();
        }
        let rules = terms.key_rules;
        let (min, max) = (self.key_min.unwrap_or(rules.min()), self.key_max.unwrap_or(rules.max()));
        let bounds = key::Rules::new(min, max)
            .map_err(|error| (["key_min", "key_max"].as_slice(), error.to_string()))?;
        terms.key_rules = bounds.with_weak(self.weak_keys.unwrap_or(rules.weak()));
        terms.mode = self.mode.unwrap_or(terms.mode);
        terms.rules.rerun = self.rerun.unwrap_or(terms.rules.rerun);
        if let Some(statuses) = &self.not_applied_statuses {
            terms.rules.not_applied.clone_from(statuses);
        }
        if let Some(statuses) = &self.statuses {
            terms.rules.overrides.clone_from(statuses);
        }
        match self.kept.unwrap_or_default() {
            Keep::Whole => {}
            Keep::Sealed => terms.seal = Seal::Required,
            Keep::Minimal => terms.retain = Retain::Minimal(None),
        }
        terms.kept.also = self.keep_headers.clone().unwrap_or_default();
        terms.kept.but = self.drop_headers.clone().unwrap_or_default();
        terms.response_bytes_max = self.kept_max.unwrap_or(terms.response_bytes_max);
        terms.request_bytes_max = self.request_max.unwrap_or(terms.request_bytes_max);
        terms.mismatch = self.mismatch_status.unwrap_or(terms.mismatch);
        terms.store_down = self.store_down.unwrap_or(terms.store_down);
        Ok(terms)
    }

    fn selection(&self) -> Result<Selection, (&'static [&'static str], String)> {
        let selection = Selection::default()
            .with_headers(self.fingerprint_headers.iter().flatten())
            .map_err(|error| (["fingerprint_headers"].as_slice(), error.to_string()))?
            .including(self.fingerprint_include.iter().flatten())
            .map_err(|error| (["fingerprint_include"].as_slice(), error.to_string()))?;
        selection
            .excluding(self.fingerprint_exclude.iter().flatten())
            .map_err(|error| (["fingerprint_exclude"].as_slice(), error.to_string()))
    }
}
