//! `semel serve`.
//!
//! What lives here: the flags, and from flags to a plan. What must never: a flag that nobody reads, or a secret among them.

use super::{size, span};
use crate::logging;
use crate::serve::{self, Plan};
use crate::stores::Url;
use crate::{listen, upstream};
use semel::core::policy::{Class, Policy};
use semel_http::{Callers, KeyRule, Terms};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["upstream", "demo"]))]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, each on its own")]
pub(super) struct Args {
    /// The service to stand in front of, by its URL: http, https, or h2c for plaintext HTTP/2
    #[arg(long, value_name = "URL", env = "SEMEL_UPSTREAM", value_parser = upstream::Target::parse)]
    upstream: Option<upstream::Target>,
    /// Show what this is about, with a payments service and clients that come along.
    #[arg(long, conflicts_with_all = ["upstream", "store", "require_key", "key", "class", "anonymous"])]
    demo: bool,
    /// End after the demonstration; the exit code says whether its ledger balances.
    #[arg(long, requires = "demo", conflicts_with = "upstream")]
    exit: bool,

    /// Where to listen.
    #[arg(long, value_name = "ADDRESS", env = "SEMEL_LISTEN", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Where records are kept: sqlite:PATH, or memory: to forget them at the end.
    #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
    store: Url,

    /// Refuse requests without an idempotency key, where they would be protected (as --key required).
    #[arg(long, env = "SEMEL_REQUIRE_KEY", conflicts_with = "key")]
    require_key: bool,
    /// Whether requests need a key: required, optional, or off to protect nothing.
    #[arg(long, value_name = "RULE", env = "SEMEL_KEY", default_value = "optional")]
    key: Key,
    /// How effects happen: external; or downstream, where the service itself recognises repeats by the operation id or key.
    #[arg(
        long,
        value_name = "CLASS",
        env = "SEMEL_CLASS",
        default_value = "external",
        help_heading = "Promises"
    )]
    class: ClassName,
    /// How long a service of class downstream remembers what it has done.
    #[arg(long, value_name = "SPAN", env = "SEMEL_DEDUP_WINDOW", default_value = "24h", value_parser = span::parse, help_heading = "Promises")]
    dedup_window: Duration,
    /// How long an outcome is kept and replayed.
    #[arg(long, value_name = "SPAN", env = "SEMEL_TTL", default_value = "24h", value_parser = span::parse, help_heading = "Promises")]
    ttl: Duration,
    /// How long after that a late retry is recognised and refused.
    #[arg(long, value_name = "SPAN", env = "SEMEL_TOMBSTONE", default_value = "30d", value_parser = span::parse, help_heading = "Promises")]
    tombstone: Duration,
    /// How long a claim holds without renewal.
    #[arg(long, value_name = "SPAN", env = "SEMEL_LEASE", default_value = "30s", value_parser = span::parse, help_heading = "Promises")]
    lease: Duration,
    /// How long a repeat of a running request waits for its outcome.
    #[arg(long, value_name = "SPAN", env = "SEMEL_WAIT", default_value = "2s", value_parser = span::parse, help_heading = "Promises")]
    wait: Duration,
    /// All callers share one scope, and so each other's keys and replays. For services that only one client uses.
    #[arg(long, env = "SEMEL_ANONYMOUS", help_heading = "Promises")]
    anonymous: bool,

    /// The longest body of a request with a key.
    #[arg(long, value_name = "SIZE", env = "SEMEL_REQUEST_MAX", default_value = "10MiB", value_parser = size::parse, help_heading = "Limits")]
    request_max: usize,
    /// The longest response body that is kept; longer ones are passed on, and not replayed.
    #[arg(long, value_name = "SIZE", env = "SEMEL_KEPT_MAX", default_value = "10MiB", value_parser = size::parse, help_heading = "Limits")]
    kept_max: usize,
    /// How many connections clients may have open at once.
    #[arg(long, value_name = "NUMBER", env = "SEMEL_CONNECTIONS_MAX", default_value_t = listen::Options::default().connections_max, help_heading = "Limits")]
    connections_max: usize,
    /// How long running requests may take to end once the process is asked to stop.
    #[arg(long, value_name = "SPAN", env = "SEMEL_DRAIN", default_value = "30s", value_parser = span::parse, help_heading = "Limits")]
    drain: Duration,

    /// Speak TLS with clients: the certificate chain, PEM.
    #[arg(long, value_name = "FILE", env = "SEMEL_TLS_CERT", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM.
    #[arg(long, value_name = "FILE", env = "SEMEL_TLS_KEY", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Trust these certificate authorities for an https upstream, PEM, instead of the system's.
    #[arg(long, value_name = "FILE", env = "SEMEL_UPSTREAM_CA", help_heading = "TLS")]
    upstream_ca: Option<PathBuf>,

    /// How long to wait for a connection to the upstream.
    #[arg(long, value_name = "SPAN", env = "SEMEL_CONNECT_TIMEOUT", default_value = "5s", value_parser = span::parse, help_heading = "Upstream")]
    connect_timeout: Duration,
    /// How long to wait for the whole of its response.
    #[arg(long, value_name = "SPAN", env = "SEMEL_RESPONSE_TIMEOUT", default_value = "60s", value_parser = span::parse, help_heading = "Upstream")]
    response_timeout: Duration,
    /// Open a connection of its own for each protected request, so that none can meet one that is just being closed.
    #[arg(long, env = "SEMEL_FRESH_CONNECTIONS", help_heading = "Upstream")]
    fresh_connections: bool,

    /// How log lines look.
    #[arg(long, value_name = "FORM", env = "SEMEL_LOG", default_value = "text", help_heading = "Logs")]
    log: logging::Form,
    /// Which log lines are written: these and worse. Info; with --demo, error.
    #[arg(long, value_name = "LEVEL", env = "SEMEL_LOG_LEVEL", help_heading = "Logs")]
    log_level: Option<logging::Level>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Key {
    Required,
    Optional,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ClassName {
    External,
    Downstream,
}

/// By how much the upstream's own timeouts come before an attempt's deadline, so that it is they who end it: a client that
/// is told "no answer in time" knows more than one that is told "unknown".
const SLACK: Duration = Duration::from_secs(1);

/// Runs until the process is asked to end.
pub(super) fn main(arguments: Args) -> Result<ExitCode, String> {
    // The story tells by itself what goes wrong in it.
    let usual = if arguments.demo { logging::Level::Error } else { logging::Level::default() };
    logging::begin(arguments.log, arguments.log_level.unwrap_or(usual));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("no threads could be started: {error}"))?;
    let Some(target) = arguments.upstream.clone() else {
        return runtime.block_on(serve::demo::run(arguments.listen, arguments.exit));
    };
    let plan = arguments.plan(target)?;
    runtime.block_on(serve::run(plan))
}

impl Args {
    fn plan(self, target: upstream::Target) -> Result<Plan, String> {
        let client_tls = match (self.tls_cert, self.tls_key) {
            (Some(certificates), Some(key)) => Some(listen::Tls { certificates, key }),
            _ => None,
        };
        let listen = listen::Options {
            address: self.listen,
            tls: client_tls,
            connections_max: self.connections_max,
            drain: self.drain,
            ..listen::Options::default()
        };
        let tls = match &self.upstream_ca {
            Some(file) => authorities(file)?,
            None => upstream::Tls::default(),
        };
        let upstream = upstream::Options {
            connect_timeout: self.connect_timeout,
            response_timeout: self.response_timeout,
            is_fresh_when_protected: self.fresh_connections,
            tls,
            ..upstream::Options::default()
        };
        let class = match self.class {
            ClassName::External => Class::External,
            ClassName::Downstream => Class::Downstream,
        };
        let policy = Policy {
            lease: self.lease,
            work_deadline: self.connect_timeout.saturating_add(self.response_timeout).saturating_add(SLACK),
            ttl: self.ttl,
            tombstone: self.tombstone,
            dedup_window: self.dedup_window,
            ..Policy::new(class)
        };
        let key = match self.key {
            _ if self.require_key => KeyRule::Required,
            Key::Required => KeyRule::Required,
            Key::Optional => KeyRule::Optional,
            Key::Off => KeyRule::Off,
        };
        let terms = Terms {
            key,
            policy,
            wait: Some(self.wait),
            request_bytes_max: self.request_max,
            response_bytes_max: self.kept_max,
            ..Terms::default()
        };
        terms.check().map_err(|error| error.to_string())?;
        let callers = if self.anonymous { Callers::all_anonymous() } else { Callers::by_authorization() };
        Ok(Plan { target, listen, upstream, store: self.store, terms, callers, is_anonymous: self.anonymous })
    }
}

fn authorities(file: &Path) -> Result<upstream::Tls, String> {
    let pem = std::fs::read(file).map_err(|error| format!("{} cannot be read: {error}", file.display()))?;
    upstream::Tls::only(&pem).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Args,
    }

    fn plan(flags: &[&str]) -> Result<Plan, String> {
        let line = ["serve", "--upstream", "http://127.0.0.1:3000"].into_iter().chain(flags.iter().copied());
        let parsed = Line::try_parse_from(line).map_err(|error| error.to_string())?.arguments;
        let target = parsed.upstream.clone().ok_or("no upstream")?;
        parsed.plan(target)
    }

    #[test]
    fn without_flags_the_defaults_are_those_of_the_documentation() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!(plan.listen.address.to_string(), "127.0.0.1:8080");
        assert_eq!(plan.store, Url::default());
        assert_eq!(plan.terms.key, KeyRule::Optional);
        let policy = Policy { work_deadline: Duration::from_secs(66), ..Policy::new(Class::External) };
        assert_eq!(plan.terms.policy, policy);
        assert_eq!(plan.terms.wait, Some(Duration::from_secs(2)));
        assert_eq!(plan.terms.request_bytes_max, 10 << 20);
        assert_eq!(plan.terms.response_bytes_max, 10 << 20);
        assert_eq!(plan.upstream.connect_timeout, Duration::from_secs(5));
        assert_eq!(plan.upstream.response_timeout, Duration::from_mins(1));
    }

    #[test]
    fn an_attempt_may_take_a_little_longer_than_the_upstream_may() {
        let plan = plan(&["--response-timeout", "10m", "--connect-timeout", "1s"]).expect("a plan");
        assert_eq!(plan.terms.policy.work_deadline, Duration::from_secs(602));
    }

    #[test]
    fn both_ways_to_ask_for_keys_mean_the_same() {
        for flags in [&["--require-key"][..], &["--key", "required"]] {
            assert_eq!(plan(flags).expect("a plan").terms.key, KeyRule::Required);
        }
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        for flags in [
            &["--ttl", "10s"][..],
            &["--lease", "0s"],
            &["--class", "local"],
            &["--class", "downstream", "--dedup-window", "30s"],
            &["--store", "nowhere"],
            &["--tls-cert", "chain.pem"],
            &["--demo"],
            &["--exit"],
            &["--ttl", "24"],
        ] {
            assert!(plan(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn the_guide_names_every_flag_with_its_default() {
        use clap::CommandFactory as _;
        let guide = include_str!("../../../../docs/guide/src/serve.md");
        let rows: Vec<_> = guide.lines().filter(|line| line.starts_with("| `--")).collect();
        for flag in
            Line::command().get_arguments().filter_map(|flag| flag.get_long().map(|name| (name, flag)))
        {
            let (name, flag) = flag;
            if name == "help" {
                continue;
            }
            let names = |row: &&&str| {
                let cell = row.split(" | ").next().unwrap_or_default();
                cell.contains(&format!("`--{name}`")) || cell.contains(&format!("`--{name} "))
            };
            let row = rows.iter().find(names);
            let row = row.unwrap_or_else(|| panic!("the guide does not name --{name}"));
            for default in flag.get_default_values().iter().filter(|_| flag.get_action().takes_values()) {
                let default = default.to_str().expect("text");
                assert!(row.contains(&format!("`{default}`")), "--{name}: {default} is not in {row}");
            }
        }
    }
}
