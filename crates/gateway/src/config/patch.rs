//! Terms that are only partly set. Flags override `[defaults]`, and an operation overrides both; [`Terms`] has the
//! defaults.

use http::{HeaderName, Method};
use semel::core::classify::Meaning;
use semel::core::fingerprint::Selection;
use semel::core::key;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, MismatchStatus, Mode, Retain, StoreDown, Terms};
use std::time::Duration;

/// What is stored of a response, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// All of it.
    #[default]
    Whole,
    /// All of it, sealed.
    Sealed,
    /// Only status, `Location` and `ETag`.
    Minimal,
}

macro_rules! patch {
    ($($(#[$doc:meta])* $name:ident: $type:ty,)*) => {
        /// Terms that are only partly set.
        #[derive(Debug, Clone, Default)]
        pub struct Patch {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl Patch {
            /// These terms, and those of `under` for the rest.
            #[must_use]
            pub fn over(self, under: &Self) -> Self {
                Self { $($name: self.$name.or_else(|| under.$name.clone()),)* }
            }

            /// Whether the key of this name is set.
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
    /// The minimum length of a key, in characters.
    key_min: usize,
    /// The maximum length.
    key_max: usize,
    /// What happens to weak keys.
    weak_keys: key::Treatment,
    /// See [`Terms::mode`].
    mode: Mode,
    /// How effects happen.
    class: Class,
    /// How long a downstream system remembers an ID.
    dedup_window: Duration,
    /// How long outcomes are replayed.
    ttl: Duration,
    /// How long a denied request (401, 403) is remembered.
    denied_ttl: Duration,
    /// How long after that late retries are refused.
    tombstone: Duration,
    /// What happens to a key after that.
    after_expiry: AfterExpiry,
    /// How long clients retry; used only for a check.
    retry_horizon: Duration,
    /// How long a claim is valid without renewal.
    lease: Duration,
    /// See [`Terms::wait`].
    wait: Duration,
    /// After how many attempts a key is exhausted.
    attempts_max: u32,
    /// Whether the next request may try again after a response without effect.
    rerun: bool,
    /// Statuses which mean that nothing took effect.
    not_applied_statuses: Vec<Status>,
    /// Statuses with a configured meaning.
    statuses: Vec<(Status, Meaning)>,
    /// What is stored of a response, and how.
    kept: Keep,
    /// Response headers that are stored although they usually are not.
    keep_headers: Vec<HeaderName>,
    /// Response headers that are not stored although they usually are.
    drop_headers: Vec<HeaderName>,
    /// The longest response body that is stored.
    kept_max: usize,
    /// The longest request body.
    request_max: usize,
    /// The only parts of a JSON body that are compared.
    fingerprint_include: Vec<String>,
    /// Parts of a JSON body that are not compared.
    fingerprint_exclude: Vec<String>,
    /// Request headers that are compared.
    fingerprint_headers: Vec<String>,
    /// See [`Terms::mismatch`].
    mismatch_status: MismatchStatus,
    /// See [`Terms::store_down`].
    store_down: StoreDown,
}

/// The default for how long a duplicate waits.
const WAIT: Duration = Duration::from_secs(2);

/// The keys that do not fit together, and why.
pub(super) type Mistake = (&'static [&'static str], String);

impl Patch {
    /// The policy of these terms. It may be invalid.
    pub(super) fn policy(&self, work_deadline: Duration) -> Result<PolicySettings, Mistake> {
        let set = |field: &mut Duration, span: Option<Duration>| *field = span.unwrap_or(*field);
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

    /// The terms, with this policy.
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
