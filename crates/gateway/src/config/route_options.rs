//! The options of a route: one row each, with its key, its type, how it is read and what it sets. `[defaults]` and
//! `[[operation]]` have the same keys, and an operation inherits what it does not set. [`RouteSettings`] has the
//! defaults.

use super::route_values as read;
use super::table::Table;
use http::{HeaderName, Method};
use semel::core::classify::Meaning;
use semel::core::fingerprint::Selection;
use semel::core::key;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class, Policy, PolicySettings};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, MismatchStatus, Mode, Retain, RouteSettings, StoreDown};
use std::time::Duration;

/// Where a client's deadline is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeadlineHeader {
    /// This header.
    Named(HeaderName),
    /// Deadlines are ignored.
    Off,
}

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

macro_rules! route_options {
    ($($(#[$doc:meta])* $name:ident: $type:ty = $read:expr, $set:expr;)*) => {
        /// The options of a route, as far as they are set.
        #[derive(Debug, Clone, Default)]
        pub struct RouteOptions {
            $($(#[$doc])* pub $name: Option<$type>,)*
        }

        impl RouteOptions {
            /// The options that a table sets. Each key has the name of its option.
            pub(super) fn read(table: &Table<'_, '_>) -> Self {
                Self {
                    $($name: {
                        let read: fn(&Table<'_, '_>, &'static str) -> Option<$type> = $read;
                        read(table, stringify!($name))
                    },)*
                }
            }

            /// These options, and those of `under` for the rest.
            #[must_use]
            pub fn over(self, under: &Self) -> Self {
                Self { $($name: self.$name.or_else(|| under.$name.clone()),)* }
            }

            fn set(&self, draft: &mut Draft) {
                $(if let Some(value) = self.$name.clone() {
                    let set: fn(&mut Draft, $type) = $set;
                    set(draft, value);
                })*
            }
        }
    };
}

route_options! {
    /// See [`RouteSettings::methods`].
    methods: Vec<Method> = read::methods, |draft, methods| draft.settings.methods = methods;
    /// See [`RouteSettings::key`].
    key: KeyRule = |table, key| table.choice(key, &KEY_RULES), |draft, rule| draft.settings.key = rule;
    /// See [`RouteSettings::key_source`].
    key_from: KeySource = read::key_from, |draft, source| draft.settings.key_source = source;
    /// The minimum length of a key, in characters.
    key_min: usize = |table, key| table.count(key, 1), |draft, min| draft.key_length.0 = min;
    /// The maximum length.
    key_max: usize = |table, key| table.count(key, 1), |draft, max| draft.key_length.1 = max;
    /// What happens to weak keys.
    weak_keys: key::Treatment = |table, key| table.choice(key, &WEAK_KEYS), |draft, weak| draft.weak_keys = weak;
    /// See [`RouteSettings::mode`].
    mode: Mode = |table, key| table.choice(key, &MODES), |draft, mode| draft.settings.mode = mode;
    /// How effects happen.
    class: Class = read::class, |draft, class| draft.policy.class = class;
    /// How long a downstream system remembers an ID.
    dedup_window: Duration = read::duration, |draft, span| draft.policy.dedup_window = span;
    /// How long outcomes are replayed.
    ttl: Duration = read::duration, |draft, span| draft.policy.ttl = span;
    /// How long a denied request (401, 403) is remembered.
    denied_ttl: Duration = read::duration, |draft, span| draft.policy.denied_ttl = span;
    /// How long after that late retries are refused.
    tombstone: Duration = read::duration, |draft, span| draft.policy.tombstone = span;
    /// What happens to a key after that.
    after_expiry: AfterExpiry =
        |table, key| table.choice(key, &AFTER_EXPIRY), |draft, after| draft.policy.after_expiry = after;
    /// How long clients retry; used only for a check.
    retry_horizon: Duration = read::duration, |_, _| ();
    /// How long a claim is valid without renewal.
    lease: Duration = read::duration, |draft, span| draft.policy.lease = span;
    /// See [`RouteSettings::wait`].
    wait: Duration = read::duration, |draft, span| draft.settings.wait = Some(span);
    /// The header with a client's deadline.
    deadline_header: DeadlineHeader = read::deadline_header, |draft, header| draft.settings.deadlines.header = match header {
        DeadlineHeader::Named(header) => Some(header),
        DeadlineHeader::Off => None,
    };
    /// See [`semel_http::Deadlines::min`].
    deadline_min: Duration = read::duration, |draft, span| draft.settings.deadlines.min = span;
    /// See [`semel_http::Deadlines::are_forwarded`].
    deadline_forward: bool = read::is, |draft, forward| draft.settings.deadlines.are_forwarded = forward;
    /// After how many attempts a key is exhausted.
    attempts_max: u32 = |table, key| table.count(key, 1), |draft, max| draft.policy.attempts_max = Some(max);
    /// Whether the next request may try again after a response without effect.
    rerun: bool = read::is, |draft, rerun| draft.settings.rules.rerun = rerun;
    /// Statuses which mean that nothing took effect.
    not_applied_statuses: Vec<Status> =
        read::not_applied_statuses, |draft, statuses| draft.settings.rules.not_applied = statuses;
    /// Statuses with a configured meaning.
    statuses: Vec<(Status, Meaning)> = read::statuses, |draft, statuses| draft.settings.rules.overrides = statuses;
    /// What is stored of a response, and how.
    kept: Keep = |table, key| table.choice(key, &KEPT), |draft, keep| match keep {
        Keep::Whole => {}
        Keep::Sealed => draft.settings.seal = Seal::Required,
        Keep::Minimal => draft.settings.retain = Retain::Minimal(None),
    };
    /// Response headers that are stored although they usually are not.
    keep_headers: Vec<HeaderName> = read::headers, |draft, headers| draft.settings.stored_headers.include = headers;
    /// Response headers that are not stored although they usually are.
    drop_headers: Vec<HeaderName> = read::headers, |draft, headers| draft.settings.stored_headers.exclude = headers;
    /// The longest response body that is stored.
    kept_max: usize = read::size, |draft, bytes| draft.settings.response_bytes_max = bytes;
    /// The longest request body.
    request_max: usize = read::size, |draft, bytes| draft.settings.request_bytes_max = bytes;
    /// The only parts of a JSON body that are compared.
    fingerprint_include: Vec<String> = read::included, |draft, pointers| draft.included = pointers;
    /// Parts of a JSON body that are not compared.
    fingerprint_exclude: Vec<String> = read::excluded, |draft, pointers| draft.excluded = pointers;
    /// Request headers that are compared.
    fingerprint_headers: Vec<String> = read::compared_headers, |draft, headers| draft.compared_headers = headers;
    /// See [`RouteSettings::mismatch`].
    mismatch_status: MismatchStatus = read::mismatch_status, |draft, status| draft.settings.mismatch = status;
    /// See [`RouteSettings::store_down`].
    store_down: StoreDown = |table, key| table.choice(key, &STORE_DOWN), |draft, down| draft.settings.store_down = down;
}

const KEY_RULES: [(&str, KeyRule); 3] =
    [("required", KeyRule::Required), ("optional", KeyRule::Optional), ("off", KeyRule::Off)];
const WEAK_KEYS: [(&str, key::Treatment); 3] =
    [("refuse", key::Treatment::Refuse), ("warn", key::Treatment::Warn), ("allow", key::Treatment::Allow)];
const MODES: [(&str, Mode); 2] = [("enforce", Mode::Enforce), ("shadow", Mode::Shadow)];
const AFTER_EXPIRY: [(&str, AfterExpiry); 2] =
    [("refuse", AfterExpiry::Refuse), ("run-as-new", AfterExpiry::RunAsNew)];
const KEPT: [(&str, Keep); 3] =
    [("whole", Keep::Whole), ("sealed", Keep::Sealed), ("minimal", Keep::Minimal)];
const STORE_DOWN: [(&str, StoreDown); 2] =
    [("refuse", StoreDown::Refuse), ("pass", StoreDown::PassUnprotected)];

/// The default for how long a duplicate waits.
const WAIT: Duration = Duration::from_secs(2);

/// The options that do not fit together, and why.
pub(super) type OptionError = (&'static [&'static str], String);

/// Settings that are being put together from options. Some of them only have a meaning together.
pub(super) struct Draft {
    policy: PolicySettings,
    settings: RouteSettings,
    key_length: (usize, usize),
    weak_keys: key::Treatment,
    included: Vec<String>,
    excluded: Vec<String>,
    compared_headers: Vec<String>,
}

impl Draft {
    /// The settings of these options. They may be invalid.
    pub(super) fn of(options: &RouteOptions, work_deadline: Duration) -> Self {
        let settings = RouteSettings { wait: Some(WAIT), ..RouteSettings::default() };
        let mut policy = PolicySettings::from(settings.policy.clone());
        policy.work_deadline = work_deadline;
        let rules = settings.key_rules;
        let mut draft = Self {
            policy,
            settings,
            key_length: (rules.min(), rules.max()),
            weak_keys: rules.weak(),
            included: Vec::new(),
            excluded: Vec::new(),
            compared_headers: Vec::new(),
        };
        options.set(&mut draft);
        draft
    }

    /// The policy. It may be invalid.
    pub(super) fn policy(&self) -> Result<PolicySettings, OptionError> {
        Ok(PolicySettings { selection: self.selection()?, ..self.policy.clone() })
    }

    /// The settings, with this policy.
    pub(super) fn route_settings(
        self,
        name: Option<String>,
        policy: Policy,
    ) -> Result<RouteSettings, OptionError> {
        let bounds = key::Rules::new(self.key_length.0, self.key_length.1)
            .map_err(|error| (["key_min", "key_max"].as_slice(), error.to_string()))?;
        Ok(RouteSettings { name, policy, key_rules: bounds.with_weak(self.weak_keys), ..self.settings })
    }

    fn selection(&self) -> Result<Selection, OptionError> {
        let selection = Selection::default()
            .with_headers(&self.compared_headers)
            .map_err(|error| (["fingerprint_headers"].as_slice(), error.to_string()))?
            .including(&self.included)
            .map_err(|error| (["fingerprint_include"].as_slice(), error.to_string()))?;
        selection
            .excluding(&self.excluded)
            .map_err(|error| (["fingerprint_exclude"].as_slice(), error.to_string()))
    }
}
