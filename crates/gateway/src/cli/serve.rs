//! `semel serve`: the flags, which override the configuration file. No flag takes a secret.

use super::config::{render_mistakes, text};
use crate::bounded_read::{self, FileKind, unreadable};
use crate::config::storage::published_at;
use crate::config::{self, Config, Mistake, Overrides, Patch, Plan};
use crate::serve;
use crate::stores::Url;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args as _, FromArgMatches as _};
use semel::SystemClock;
use semel::core::policy::Class;
use semel_admin::Address;
use semel_http::KeyRule;
use semel_net::client::Authorities;
use semel_net::target::Target;
use semel_proxy::listen;
use semel_telemetry::logging;
use semel_text::{duration, size};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// Flags that the demo does not read: it has its own service, store and terms.
const NOT_IN_A_DEMO: [&str; 25] = [
    "upstream",
    "admin",
    "prefix",
    "config",
    "store",
    "require_key",
    "key",
    "class",
    "dedup_window",
    "ttl",
    "tombstone",
    "lease",
    "wait",
    "anonymous",
    "request_max",
    "kept_max",
    "connections_max",
    "drain",
    "tls_cert",
    "tls_key",
    "upstream_ca",
    "connect_timeout",
    "response_timeout",
    "fresh_connections",
    "log_requests",
];

#[derive(Debug, Clone, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["upstream", "demo", "config"]))]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line, each on its own")]
pub(super) struct Args {
    /// The service to protect, by its URL: http, https, or h2c for plaintext HTTP/2
    #[arg(long, value_name = "URL", env = "SEMEL_UPSTREAM", value_parser = super::unrepeated::upstream())]
    upstream: Option<Target>,
    /// The configuration file; flags and environment variables override it. `semel config init` writes one
    #[arg(long, value_name = "FILE", env = "SEMEL_CONFIG")]
    config: Option<PathBuf>,
    /// Show what Semel does, with a payment service and clients that come with it
    #[arg(long, conflicts_with_all = NOT_IN_A_DEMO)]
    demo: bool,
    /// End after the demo; the exit code says whether its ledger balances
    #[arg(long, requires = "demo", conflicts_with = "upstream")]
    exit: bool,

    /// The address to listen on. `:8080` means every address of the machine
    #[arg(long, value_name = "ADDRESS", env = "SEMEL_LISTEN", default_value = "127.0.0.1:8080", value_parser = semel_text::address::parse)]
    listen: SocketAddr,
    /// The address for health, metrics, records and claims, or off. Other addresses than loopback need a token
    #[arg(long, value_name = "ADDRESS", env = "SEMEL_ADMIN", default_value_t = Address::default())]
    admin: Address,
    /// The prefix of the published paths, such as /payments [default: none]
    #[arg(long, value_name = "PATH", env = "SEMEL_PREFIX", value_parser = published_at)]
    prefix: Option<String>,
    /// Where records are stored: sqlite:PATH, a postgres:, redis: or rediss: URL, or memory: to lose them at the end
    #[arg(long, value_name = "URL", env = "SEMEL_STORE", default_value_t = Url::default())]
    store: Url,

    /// Refuse requests without an idempotency key that would be protected (same as --key required)
    #[arg(long, env = "SEMEL_REQUIRE_KEY", conflicts_with = "key")]
    require_key: bool,
    /// Whether requests need a key: required, optional, or off to protect nothing
    #[arg(long, value_name = "RULE", env = "SEMEL_KEY", default_value = "optional")]
    key: Key,
    /// Where effects happen: external; or downstream, if the service itself recognises repeats by the operation ID or
    /// key
    #[arg(
        long,
        value_name = "CLASS",
        env = "SEMEL_CLASS",
        default_value = "external",
        help_heading = "Promises"
    )]
    class: ClassName,
    /// How long a service of class downstream remembers an ID
    #[arg(long, value_name = "SPAN", env = "SEMEL_DEDUP_WINDOW", default_value = "24h", value_parser = duration::parse, help_heading = "Promises")]
    dedup_window: Duration,
    /// How long an outcome is stored and replayed
    #[arg(long, value_name = "SPAN", env = "SEMEL_TTL", default_value = "24h", value_parser = duration::parse, help_heading = "Promises")]
    ttl: Duration,
    /// How long after that late retries are recognised and refused
    #[arg(long, value_name = "SPAN", env = "SEMEL_TOMBSTONE", default_value = "30d", value_parser = duration::parse, help_heading = "Promises")]
    tombstone: Duration,
    /// How long a claim is valid without renewal
    #[arg(long, value_name = "SPAN", env = "SEMEL_LEASE", default_value = "30s", value_parser = duration::parse, help_heading = "Promises")]
    lease: Duration,
    /// How long a repeat of a running request waits for its outcome
    #[arg(long, value_name = "SPAN", env = "SEMEL_WAIT", default_value = "2s", value_parser = duration::parse, help_heading = "Promises")]
    wait: Duration,
    /// Let all callers share one scope, including their keys and replays; operations with their own `callers` keep
    /// them. For services with a single client
    #[arg(long, env = "SEMEL_ANONYMOUS", help_heading = "Promises")]
    anonymous: bool,

    /// The longest body of a request with a key
    #[arg(long, value_name = "SIZE", env = "SEMEL_REQUEST_MAX", default_value = "10MiB", value_parser = size::parse, help_heading = "Limits")]
    request_max: usize,
    /// The longest response body that is stored; longer ones are forwarded but not replayed
    #[arg(long, value_name = "SIZE", env = "SEMEL_KEPT_MAX", default_value = "10MiB", value_parser = size::parse, help_heading = "Limits")]
    kept_max: usize,
    /// The maximum number of client connections
    #[arg(long, value_name = "NUMBER", env = "SEMEL_CONNECTIONS_MAX", default_value_t = connections_max(), help_heading = "Limits")]
    connections_max: NonZeroUsize,
    /// How long running requests may take after the process was asked to stop
    #[arg(long, value_name = "SPAN", env = "SEMEL_DRAIN", default_value = "30s", value_parser = duration::parse, help_heading = "Limits")]
    drain: Duration,

    /// Use TLS with clients: the certificate chain, PEM
    #[arg(long, value_name = "FILE", env = "SEMEL_TLS_CERT", requires = "tls_key", help_heading = "TLS")]
    tls_cert: Option<PathBuf>,
    /// The certificate's private key, PEM
    #[arg(long, value_name = "FILE", env = "SEMEL_TLS_KEY", requires = "tls_cert", help_heading = "TLS")]
    tls_key: Option<PathBuf>,
    /// Trust these certificate authorities for an https upstream, PEM, instead of the system's
    #[arg(long, value_name = "FILE", env = "SEMEL_UPSTREAM_CA", help_heading = "TLS")]
    upstream_ca: Option<PathBuf>,

    /// How long to wait for a connection to the upstream
    #[arg(long, value_name = "SPAN", env = "SEMEL_CONNECT_TIMEOUT", default_value = "5s", value_parser = duration::parse_limit, help_heading = "Upstream")]
    connect_timeout: Duration,
    /// How long to wait for its response: the whole response with a key, its head without
    #[arg(long, value_name = "SPAN", env = "SEMEL_RESPONSE_TIMEOUT", default_value = "60s", value_parser = duration::parse_limit, help_heading = "Upstream")]
    response_timeout: Duration,
    /// Open a new connection for each protected request, so that none can meet one that is being closed
    #[arg(long, env = "SEMEL_FRESH_CONNECTIONS", help_heading = "Upstream")]
    fresh_connections: bool,

    /// The format of log lines
    #[arg(long, value_name = "FORM", env = "SEMEL_LOG", default_value = "text", help_heading = "Logs")]
    log: logging::Form,
    /// The log level: these lines and more severe ones [default: info; with --demo, error]
    #[arg(long, value_name = "LEVEL", env = "SEMEL_LOG_LEVEL", help_heading = "Logs")]
    log_level: Option<logging::Level>,
    /// Log every request, at any level: method, operation, status, duration, outcome and operation ID
    #[arg(long, env = "SEMEL_LOG_REQUESTS", help_heading = "Logs")]
    log_requests: bool,
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

/// The flags that were given, and whether as an environment variable.
#[derive(Debug, Clone, Default)]
pub(super) struct GivenFlags(BTreeMap<String, bool>);

impl GivenFlags {
    pub(super) fn of(matches: &ArgMatches) -> Self {
        let given = matches.ids().filter_map(|id| {
            let is_variable = match matches.value_source(id.as_str())? {
                ValueSource::CommandLine => false,
                ValueSource::EnvVariable => true,
                _ => return None,
            };
            Some((id.as_str().to_owned(), is_variable))
        });
        Self(given.collect())
    }

    /// The value, if the flag was given.
    fn value<T>(&self, flag: &str, value: T) -> Option<T> {
        self.0.contains_key(flag).then_some(value)
    }

    /// The flags that were given as environment variables, with the names of these.
    fn variables(&self) -> BTreeMap<String, String> {
        let flags = self.0.iter().filter(|(_, is_variable)| **is_variable).map(|(flag, _)| flag);
        flags.map(|flag| (flag.clone(), format!("SEMEL_{}", flag.to_ascii_uppercase()))).collect()
    }
}

/// What environment variables set, as `semel serve` reads them. A value that it refuses is a mistake; a file that cannot be
/// read, an error.
pub(super) fn from_environment() -> Result<Result<Overrides, String>, Mistake> {
    // The service may be missing: a file can name it.
    let command = Args::augment_args(clap::Command::new("semel serve"));
    let mut command = command.mut_group("what", |group| group.required(false));
    command.build();
    let matches = command.clone().try_get_matches_from(["semel serve"]);
    let matches = matches.map_err(|error| refused_variable(&command, &error))?;
    let arguments = Args::from_arg_matches(&matches).map_err(|error| refused_variable(&command, &error))?;
    Ok(arguments.over(&GivenFlags::of(&matches)))
}

/// The mistake in a variable, in the words of the flag's error.
fn refused_variable(command: &clap::Command, error: &clap::Error) -> Mistake {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ");
    let problem =
        text.split("\n\n").next().unwrap_or(text).lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let variable = command.get_arguments().find_map(|argument| {
        let name = argument.get_env()?.to_str()?;
        problem.contains(&format!("'{argument}'")).then_some(name)
    });
    let fix = match variable {
        Some(name) => format!("set {name} to another value, or unset it"),
        None => "set other values, or unset the variables".to_owned(),
    };
    Mistake { what: problem, fix, ..Mistake::default() }
}

/// Runs until the process is asked to stop.
pub(super) fn main(arguments: Args, given: &GivenFlags) -> Result<ExitCode, String> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    serve::allocator::tune();
    let threads = || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
        runtime.map_err(|error| format!("no threads could be started: {error}"))
    };
    if arguments.demo {
        // The demo itself prints what goes wrong.
        logging::begin(arguments.log, arguments.log_level.unwrap_or(logging::Level::Error), None);
        return threads()?.block_on(serve::demo::run(arguments.listen, arguments.exit));
    }
    let over = arguments.over(given)?;
    let config = arguments.read(&over)?;
    let spans = config.tracer.as_ref().map(|tracer| tracer.spans(Arc::new(SystemClock)));
    let config_log = config.log;
    logging::begin(config_log, config.log_level, spans);
    let plan = config.plan().ok_or("no upstream is set: give --upstream, or write `url` under [upstream]")?;
    let reread = arguments.config.map(|file| Box::new(move || reread(&file, &over)) as Box<serve::Reread>);
    let is_json = config_log == logging::Form::Json;
    match threads()?.block_on(serve::run(plan, reread)) {
        // If all lines are JSON, so is the last one.
        Err(why) if is_json => {
            tracing::error!("{why}");
            Ok(ExitCode::FAILURE)
        }
        ended => ended,
    }
}

/// Reads the file again, while the gateway runs.
fn reread(file: &Path, over: &Overrides) -> Result<Plan, Vec<Mistake>> {
    let mistake = |problem: String, fix: &str| {
        vec![Mistake { what: problem, fix: fix.to_owned(), ..Mistake::default() }]
    };
    let text = text(file).map_err(|why| mistake(why, "put the file back"))?;
    let config = config::read(&text, over, &config::environment)?;
    let none = || mistake("no upstream is set".to_owned(), "write `url` under [upstream]");
    config.plan().ok_or_else(none)
}

impl Args {
    /// The file, if there is one, overridden by the flags.
    fn read(&self, over: &Overrides) -> Result<Config, String> {
        let Some(file) = &self.config else {
            return config::read("", over, &config::environment).map_err(|mistakes| {
                let render_mistakes: Vec<_> = mistakes.iter().map(ToString::to_string).collect();
                render_mistakes.join("\n")
            });
        };
        config::read(&text(file)?, over, &config::environment)
            .map_err(|mistakes| render_mistakes(file, &mistakes))
    }

    /// The flags that were given.
    fn over(&self, given: &GivenFlags) -> Result<Overrides, String> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificates), Some(key)) => {
                Some(listen::Tls { certificates: certificates.clone(), key: key.clone() })
            }
            _ => None,
        };
        let key = match self.key {
            Key::Required => KeyRule::Required,
            Key::Optional => KeyRule::Optional,
            Key::Off => KeyRule::Off,
        };
        let class = match self.class {
            ClassName::External => Class::External,
            ClassName::Downstream => Class::Downstream,
        };
        let required = self.require_key.then_some(KeyRule::Required);
        let terms = Patch {
            key: required.or_else(|| given.value("key", key)),
            class: given.value("class", class),
            dedup_window: given.value("dedup_window", self.dedup_window),
            ttl: given.value("ttl", self.ttl),
            tombstone: given.value("tombstone", self.tombstone),
            lease: given.value("lease", self.lease),
            wait: given.value("wait", self.wait),
            request_max: given.value("request_max", self.request_max),
            kept_max: given.value("kept_max", self.kept_max),
            ..Patch::default()
        };
        Ok(Overrides {
            target: self.upstream.clone(),
            listen: given.value("listen", self.listen),
            tls,
            connections_max: given.value("connections_max", self.connections_max.get()),
            drain: given.value("drain", self.drain),
            connect_timeout: given.value("connect_timeout", self.connect_timeout),
            response_timeout: given.value("response_timeout", self.response_timeout),
            fresh_connections: given.value("fresh_connections", self.fresh_connections),
            upstream_authorities: self.upstream_ca.as_deref().map(authorities).transpose()?,
            admin: given.value("admin", self.admin),
            prefix: self.prefix.clone(),
            store: given.value("store", self.store.clone()),
            log: given.value("log", self.log),
            log_level: self.log_level,
            log_requests: given.value("log_requests", self.log_requests),
            anonymous: self.anonymous,
            terms,
            variables: given.variables(),
        })
    }
}

fn connections_max() -> NonZeroUsize {
    NonZeroUsize::new(listen::Options::default().connections_max).unwrap_or(NonZeroUsize::MIN)
}

fn authorities(file: &Path) -> Result<Authorities, String> {
    let pem = bounded_read::read(file, FileKind::Certificates);
    let pem = pem.map_err(|error| unreadable(file, &error))?;
    Authorities::only(&pem).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use semel::core::policy::Policy;
    use std::collections::BTreeSet;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Args,
    }

    fn plan(flags: &[&str]) -> Result<Plan, String> {
        let line = ["serve", "--upstream", "http://127.0.0.1:3000"].into_iter().chain(flags.iter().copied());
        let matches = Line::command().try_get_matches_from(line).map_err(|error| error.to_string())?;
        let arguments = Line::from_arg_matches(&matches).map_err(|error| error.to_string())?.arguments;
        let over = arguments.over(&GivenFlags::of(&matches))?;
        arguments.read(&over)?.plan().ok_or_else(|| "no upstream".to_owned())
    }

    #[test]
    fn without_flags_the_defaults_are_those_of_the_documentation() {
        let plan = plan(&[]).expect("a plan");
        assert_eq!(plan.listen.address.to_string(), "127.0.0.1:8080");
        assert_eq!(plan.store, Url::default());
        assert_eq!(plan.terms.key, KeyRule::Optional);
        let (work_deadline, skew) = (Duration::from_secs(66), Duration::from_secs(5));
        let policy = Policy::new(Class::External)
            .with(|policy| {
                policy.work_deadline = work_deadline;
                policy.skew = skew;
            })
            .expect("fit for use");
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
    fn impossible_terms_are_refused() {
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
    fn every_variable_is_shown_as_a_setting() {
        let read: BTreeSet<_> = crate::cli::variables::names().collect();
        for flag in Line::command().get_arguments() {
            let Some(name) = flag.get_env().and_then(std::ffi::OsStr::to_str) else { continue };
            assert!(name == "SEMEL_CONFIG" || read.contains(name), "{name} is not in `semel config show`");
        }
    }

    #[test]
    fn a_port_alone_is_a_port_of_every_address() {
        assert_eq!(plan(&["--listen", ":8080"]).expect("a plan").listen.address.to_string(), "0.0.0.0:8080");
        assert!(plan(&["--listen", ":x"]).is_err());
    }

    #[test]
    fn addresses_that_get_in_each_others_way_are_refused() {
        for flags in [
            &["--listen", "127.0.0.1:3000"][..],
            &["--listen", ":3000"],
            &["--admin", "127.0.0.1:3000"],
            &["--admin", "127.0.0.1:8080"],
            &["--listen", ":9090"],
        ] {
            assert!(plan(flags).is_err(), "{flags:?}");
        }
    }

    #[test]
    fn a_demo_takes_no_flag_that_it_does_not_read() {
        let read = ["demo", "exit", "listen", "log", "log_level", "help"];
        for flag in Line::command().get_arguments() {
            let id = flag.get_id().as_str();
            assert_ne!(read.contains(&id), NOT_IN_A_DEMO.contains(&id), "{id}");
        }
    }

    #[test]
    fn the_guide_names_every_flag_with_its_default() {
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
