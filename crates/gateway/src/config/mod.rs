//! The configuration file: reads a file, together with flags and environment variables, into a [`Config`], and reports
//! every mistake at once. A gateway starts from the [`Plan`] that a complete configuration makes.
//!
//! Defaults are not set here: they belong to the options and settings of each part.
//!
//! The file's reference is [`DEFAULT`]: every key with its default, and what it means.
//!
//! ```
//! use semel_gateway::config::{self, Overrides};
//!
//! let text = "[defaults]\nttl = \"7d\"\ntombstone = 30\ntimeout = \"5s\"\n";
//! let mistakes = config::read(text, &Overrides::default(), &|_| None).unwrap_err();
//! let messages: Vec<_> = mistakes.iter().map(|mistake| mistake.message("semel.toml")).collect();
//! assert!(messages[0].starts_with("semel.toml:3:13: `tombstone`: expected a duration, found `30`"), "{messages:?}");
//! assert!(messages[1].starts_with("semel.toml:4:1: unknown key `timeout` in [defaults]"), "{messages:?}");
//! ```

mod addresses;
pub(crate) mod admin;
mod callbacks;
mod callers;
mod duplicate;
pub mod effective;
pub(crate) mod flags;
mod identity;
mod mistake;
mod nearest;
mod operation;
mod otlp;
pub(crate) mod overrides;
mod plan;
mod records;
mod route_options;
mod route_settings;
mod route_values;
mod secret;
mod service;
mod startup_checks;
pub(crate) mod storage;
mod storage_settings;
mod table;

#[cfg(test)]
pub(crate) mod tests;

#[cfg(target_os = "linux")]
pub(crate) use operation::ONCE;

pub use mistake::{ConfigError, Position};
pub use overrides::Overrides;
pub use plan::{Admin, Operation, Plan};
pub use route_options::{Keep, RouteOptions};
pub use storage_settings::{Hashing, Limits, Next, StorageSettings};

use crate::callbacks::ServiceCallbacks;
use crate::stores;
use http::Method;
use route_settings::RouteErrors;
use semel::quota::Quotas;
use semel::sealing::KeyRing;
use semel_http::{RouteSettings, RouteSettingsError, Routes, is_registered_method};
use semel_identity::{Identity, Network};
use semel_net::target::Target;
use semel_proxy::forward::Host;
use semel_proxy::listen;
use semel_proxy::upstream;
use semel_telemetry::logging::{Form, Level};
use semel_telemetry::trace::Tracer;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::time::Duration;
use table::{Document, Span, Table};
use toml::de::DeTable;

/// The reference: a file with every key explained, which means the same as no file.
pub const DEFAULT: &str = include_str!("default.toml");

/// How much earlier the upstream's own timeouts end than an attempt's deadline. "No response in time" tells a client
/// more than "unknown", so the timeouts should come first.
const SLACK: Duration = Duration::from_secs(1);

/// Looks secrets up by name.
pub type Environment<'e> = dyn Fn(&str) -> Option<OsString> + 'e;

/// The process's own environment.
pub fn environment(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The configuration of a gateway. The upstream may still be missing.
#[derive(Debug, Clone)]
pub struct Config {
    /// The service behind it.
    pub target: Option<Target>,
    /// How clients reach it.
    pub listen: listen::Options,
    /// How the gateway reaches the service.
    pub upstream: upstream::Options,
    /// Which `Host` the service sees.
    pub host: Host,
    /// Where operators and workers connect, if anywhere.
    pub admin: Option<Admin>,
    /// Where records are stored.
    pub store: stores::Url,
    /// The format of log lines.
    pub log: Form,
    /// The log level.
    pub log_level: Level,
    /// Whether every request is logged.
    pub log_requests: bool,
    /// The settings for requests of no operation.
    pub route_settings: RouteSettings,
    /// The questions about them.
    pub callbacks: ServiceCallbacks,
    /// The operations.
    pub operations: Vec<Operation>,
    /// Who is calling.
    pub identity: Identity,
    /// Limits on new keys and records.
    pub quotas: Quotas,
    /// The keys that seal stored outcomes.
    pub sealing: Option<KeyRing>,
    /// How records are stored.
    pub storage: StorageSettings,
    /// How much of requests is held in memory at once.
    pub limits: Limits,
    /// The proxies whose forwarding headers are passed on.
    pub forwarded_by: Vec<Network>,
    /// The prefix of the published paths.
    pub prefix: String,
    /// Where spans are sent.
    pub tracer: Option<Tracer>,
    start_positions: startup_checks::StartPositions,
}

impl Config {
    /// What is not a mistake, but perhaps not intended.
    pub fn warnings(&self) -> Vec<String> {
        let route_settings =
            self.operations.iter().map(|operation| &operation.route_settings).chain([&self.route_settings]);
        let methods = route_settings
            .flat_map(|route_settings| &route_settings.methods)
            .filter(|method| !is_registered_method(method));
        let methods: BTreeSet<_> = methods.map(Method::as_str).collect();
        let warning = |method: &str| {
            format!(
                "`{method}` is not a registered HTTP method; make sure that clients send it spelt like this"
            )
        };
        let unswept = self.store.unswept(self.storage.settings.sweep.every).map(str::to_owned);
        let of_store = self.store.warnings().into_iter().chain(unswept);
        methods.into_iter().map(warning).chain(self.missing_directories()).chain(of_store).collect()
    }

    /// The routes without their callbacks, for checks of what is stored.
    pub fn routes(&self) -> Result<Routes, RouteSettingsError> {
        let others = Routes::new(self.route_settings.clone());
        self.operations.iter().fold(others, |routes, operation| {
            routes.and_then(|routes| routes.with(&operation.template, operation.route_settings.clone()))
        })
    }

    /// The plan, if the upstream is known.
    pub fn plan(self) -> Option<Plan> {
        Some(Plan {
            target: self.target?,
            listen: self.listen,
            upstream: self.upstream,
            host: self.host,
            admin: self.admin,
            store: self.store,
            route_settings: self.route_settings,
            callbacks: self.callbacks,
            operations: self.operations,
            identity: self.identity,
            quotas: self.quotas,
            sealing: self.sealing,
            storage: self.storage,
            limits: self.limits,
            forwarded_by: self.forwarded_by,
            prefix: self.prefix,
            tracer: self.tracer,
            log: self.log,
            logs_requests: self.log_requests,
        })
    }
}

/// Reads the text of a file; an empty text means no file. Reports every mistake, in the order of the file.
pub fn read(text: &str, over: &Overrides, environment: &Environment<'_>) -> Result<Config, Vec<ConfigError>> {
    let given = over.lines(text.len());
    let (given_tables, _) = DeTable::parse_recoverable(&given.text);
    let document = Document::new(text, (&given, given_tables.get_ref()), environment);
    let (entries, malformed) = DeTable::parse_recoverable(text);
    if !malformed.is_empty() {
        for error in malformed {
            let first = error.span().and_then(|span| duplicate::first_line(text, &span));
            if let (Some(first), true) = (first, error.message().contains("duplicate key")) {
                let key = error.span().and_then(|span| text.get(span)).unwrap_or("this key");
                let problem = format!("`{key}` is set twice: here and on line {first}");
                document.mistake(error.span().as_ref(), problem, "remove one of them");
                continue;
            }
            let problem = format!("this is not TOML: {}", error.message());
            document.mistake(
                error.span().as_ref(),
                problem,
                "write key = value, with strings in quotation marks",
            );
        }
        // The rest may have been misunderstood.
        return Err(document.end());
    }
    let top = Table::top(&document, entries.get_ref());
    let config = read_config(&top);
    top.end();
    let mistakes = document.end();
    match config {
        Some(config) if mistakes.is_empty() => Ok(config),
        _ => Err(mistakes),
    }
}

fn listening(top: &Table<'_, '_>) -> (listen::Options, Option<Span>) {
    let table = top.table("listen", "[listen]");
    let listen = service::listen(&table);
    service::check_clients(&table, &listen);
    let at = table.span_of("address");
    table.end();
    (listen, at)
}

/// Reads a table that nothing else depends on.
fn read_table<T>(
    top: &Table<'_, '_>,
    (name, label): (&'static str, &'static str),
    read: impl FnOnce(&Table<'_, '_>) -> T,
) -> T {
    let table = top.table(name, label);
    let found = read(&table);
    table.end();
    found
}

fn read_config(top: &Table<'_, '_>) -> Option<Config> {
    let (listen, listen_at) = listening(top);
    let upstream_table = top.table("upstream", "[upstream]");
    let (target, upstream, host) = service::upstream(&upstream_table);
    let forwarded_by = service::forwarded_by(&upstream_table);
    let upstream_at = upstream_table.span_of("url");
    upstream_table.end();

    let admin_table = top.table("admin", "[admin]");
    let admin = admin::read(&admin_table);
    let spans = addresses::AddressSpans {
        upstream: upstream_at,
        admin: admin_table.span_of("address"),
        listen: listen_at,
    };
    let admin_address = admin.as_ref().map(|admin| admin.options.address);
    addresses::check(&admin_table, listen.address, admin_address, target.as_ref(), &spans);
    admin_table.end();
    let mut storage = StorageSettings::default();
    let store_table = top.table("store", "[store]");
    let store = storage::store(&store_table, &mut storage);
    let cache_is_chosen = store_table.span_of("cache_max").is_some();
    let mut start_positions = startup_checks::StartPositions::of(&store_table);
    store_table.end();
    let sweep_table = top.table("sweep", "[sweep]");
    storage::sweep(&sweep_table, &mut storage);
    start_positions.check_archive(&sweep_table, storage.archive.as_deref(), &store);
    let clock_table = top.table("clock", "[clock]");
    storage::clock(&clock_table, &sweep_table, &mut storage);
    clock_table.end();
    let skew = storage.settings.clock.skew;
    let unswept = storage.settings.sweep.every.is_zero().then(|| sweep_table.span_of("every")).flatten();
    sweep_table.end();
    let prefix = read_table(top, ("published", "[published]"), storage::prefix);
    let log_table = top.table("log", "[log]");
    let (log, log_level, log_requests) = service::log(&log_table);
    log_table.end();

    let sealing = read_table(top, ("sealing", "[sealing]"), records::sealing);
    let deadline = upstream.connect_timeout.saturating_add(upstream.response_timeout).saturating_add(SLACK);
    let defaults_table = top.table("defaults", "[defaults]");
    let defaults = RouteOptions::read(&defaults_table);
    let reporter = RouteErrors { table: &defaults_table, is_whole: true, sealing: &sealing, skew };
    let route_settings = reporter.route_settings(&defaults, None, deadline);
    let inherited_callbacks = callbacks::of_defaults(&defaults_table, listen.address);
    let of_others = |settings| inherited_callbacks.of_others(&defaults_table, settings);
    let callbacks = route_settings.as_ref().map(of_others).unwrap_or_default();
    let identity_table = top.table("identity", "[identity]");
    let mut callers = callers::Callers::read(&identity_table, listen.clients.is_some());
    let (sealing, listening) = (&sealing, listen.address);
    let inherited = operation::Inherited {
        options: &defaults,
        callbacks: &inherited_callbacks,
        sealing,
        deadline,
        skew,
        listen: listening,
    };
    let operations = operation::read(top.tables("operation", "[[operation]]"), &inherited, &mut callers);
    let identity = callers.end(&identity_table);
    identity_table.end();
    if route_settings.is_some() {
        let all_callbacks = operations.iter().map(|operation| &operation.callbacks);
        let mut all_callbacks = all_callbacks.chain([&callbacks]);
        inherited_callbacks.check_inherited(&defaults_table, all_callbacks.clone());
        if unswept.is_some() && all_callbacks.any(|callbacks| callbacks.probe.is_some()) {
            let problem = "no probe would ever be sent: the sweeper, which is off, starts them";
            let fix = "set every, or remove the probes";
            defaults_table.document.mistake(unswept.as_ref(), problem, fix);
        }
    }
    defaults_table.end();

    let quotas = read_table(top, ("quotas", "[quotas]"), records::quotas);
    let limits_table = top.table("limits", "[limits]");
    let limits = storage::limits(&limits_table, cache_is_chosen, &mut storage);
    let all = route_settings.iter().chain(operations.iter().map(|operation| &operation.route_settings));
    storage::check_room(&limits_table, limits, all);
    limits_table.end();
    let tracer = read_table(top, ("otlp", "[otlp]"), otlp::read);
    Some(Config {
        target,
        listen,
        upstream,
        host,
        admin,
        store,
        log,
        log_level,
        log_requests,
        route_settings: route_settings?,
        callbacks,
        operations,
        identity,
        quotas,
        sealing: sealing.ring.clone(),
        storage,
        limits,
        forwarded_by,
        prefix,
        tracer,
        start_positions,
    })
}
