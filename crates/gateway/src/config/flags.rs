//! The options that a flag of `semel serve` and an environment variable set too: one row each.
//!
//! A row leads to the flag and its help, to the variable, and to the key of the file. Its default is the one in
//! [`DEFAULT`](super::DEFAULT), and its value is read by the code that reads the key: a flag is one more line of the file.

use super::storage::published_at;
use crate::stores;
use semel_admin::Address;
use semel_net::target::Target;
use semel_text::{address, duration, size};
use std::num::NonZeroUsize;

/// Why a value is refused, as the parser of the command line shows it.
pub(crate) type Refusal = Box<dyn std::error::Error + Send + Sync>;

/// One option.
#[derive(Debug)]
pub(crate) struct Flag {
    /// The flag, without its dashes.
    pub(crate) name: &'static str,
    /// The environment variable.
    pub(crate) variable: &'static str,
    /// The table of the file.
    pub(crate) table: &'static str,
    /// The key in this table.
    pub(crate) key: &'static str,
    /// What values it has.
    pub(crate) kind: Kind,
    /// The heading in the help.
    pub(crate) heading: Option<&'static str>,
    /// What it is for.
    pub(crate) help: &'static str,
    /// Whether the help shows the default of the file.
    pub(crate) shows_default: bool,
}

/// What values an option has. Whoever parses the command line refuses others, before anything is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    /// A text that this function accepts. `is_hidden`: a refused one may contain a password, and is not repeated.
    Text { name: &'static str, check: fn(&str) -> Result<(), Refusal>, is_hidden: bool },
    /// A whole number above zero, without quotation marks in the file.
    Number { name: &'static str },
    /// One of these words, some with an explanation.
    Choice { name: &'static str, words: &'static [(&'static str, Option<&'static str>)] },
    /// The path of a file; the flag of that name is needed too.
    File { needs: Option<&'static str> },
    /// On or off.
    Switch,
    /// A switch that stands for this value of the key.
    Means { value: &'static str, conflicts: &'static str },
    /// A switch that replaces the whole table; it is shown as this value of the key.
    Replaces { shown: &'static str },
}

impl Flag {
    const fn new(
        name: &'static str,
        variable: &'static str,
        (table, key): (&'static str, &'static str),
        kind: Kind,
        help: &'static str,
    ) -> Self {
        Self { name, variable, table, key, kind, heading: None, help, shows_default: true }
    }

    const fn under(self, heading: &'static str) -> Self {
        Self { heading: Some(heading), ..self }
    }

    const fn without_default(self) -> Self {
        Self { shows_default: false, ..self }
    }

    /// The row of this flag.
    pub(crate) fn of(name: &str) -> Option<&'static Self> {
        FLAGS.iter().find(|flag| flag.name == name)
    }
}

const fn text(name: &'static str, check: fn(&str) -> Result<(), Refusal>) -> Kind {
    Kind::Text { name, check, is_hidden: false }
}

const fn hidden(check: fn(&str) -> Result<(), Refusal>) -> Kind {
    Kind::Text { name: "URL", check, is_hidden: true }
}

/// What a parser says about a text, without its value.
fn accepted<T, E: Into<Refusal>>(parsed: Result<T, E>) -> Result<(), Refusal> {
    parsed.map(drop).map_err(E::into)
}

const SPAN: Kind = text("SPAN", |text| accepted(duration::parse(text)));
const LIMIT: Kind = text("SPAN", |text| accepted(duration::parse_limit(text)));
const SIZE: Kind = text("SIZE", |text| accepted(size::parse(text)));
const FILE: Kind = Kind::File { needs: None };

const PROMISES: &str = "Promises";
const LIMITS: &str = "Limits";
const TLS: &str = "TLS";
const UPSTREAM: &str = "Upstream";
const LOGS: &str = "Logs";

/// Every option with a flag, in the order of the help.
pub(crate) const FLAGS: &[Flag] = &[
    Flag::new(
        "upstream",
        "SEMEL_UPSTREAM",
        ("upstream", "url"),
        hidden(|text| accepted(Target::parse(text))),
        "The service to protect, by its URL: http, https, or h2c for plaintext HTTP/2",
    ),
    Flag::new(
        "listen",
        "SEMEL_LISTEN",
        ("listen", "address"),
        text("ADDRESS", |text| accepted(address::parse(text))),
        "The address to listen on. `:8080` means every address of the machine",
    ),
    Flag::new(
        "admin",
        "SEMEL_ADMIN",
        ("admin", "address"),
        text("ADDRESS", |text| accepted(text.parse::<Address>())),
        "The address for health, metrics, records and claims, or off. Other addresses than loopback need a token",
    ),
    Flag::new(
        "prefix",
        "SEMEL_PREFIX",
        ("published", "prefix"),
        text("PATH", |text| accepted(published_at(text))),
        "The prefix of the published paths, such as /payments [default: none]",
    )
    .without_default(),
    Flag::new(
        "store",
        "SEMEL_STORE",
        ("store", "url"),
        hidden(|text| accepted(text.parse::<stores::Url>())),
        "Where records are stored: sqlite:PATH, a postgres:, redis: or rediss: URL, or memory: to lose them at the end",
    ),
    Flag::new(
        "require-key",
        "SEMEL_REQUIRE_KEY",
        ("defaults", "key"),
        Kind::Means { value: "required", conflicts: "key" },
        "Refuse requests without an idempotency key that would be protected (same as --key required)",
    ),
    Flag::new(
        "key",
        "SEMEL_KEY",
        ("defaults", "key"),
        Kind::Choice { name: "RULE", words: &[("required", None), ("optional", None), ("off", None)] },
        "Whether requests need a key: required, optional, or off to protect nothing",
    ),
    Flag::new(
        "class",
        "SEMEL_CLASS",
        ("defaults", "class"),
        Kind::Choice { name: "CLASS", words: &[("external", None), ("downstream", None)] },
        "Where effects happen: external; or downstream, if the service itself recognises repeats by the operation ID or key",
    )
    .under(PROMISES),
    Flag::new(
        "dedup-window",
        "SEMEL_DEDUP_WINDOW",
        ("defaults", "dedup_window"),
        SPAN,
        "How long a service of class downstream remembers an ID",
    )
    .under(PROMISES),
    Flag::new("ttl", "SEMEL_TTL", ("defaults", "ttl"), SPAN, "How long an outcome is stored and replayed")
        .under(PROMISES),
    Flag::new(
        "tombstone",
        "SEMEL_TOMBSTONE",
        ("defaults", "tombstone"),
        SPAN,
        "How long after that late retries are recognised and refused",
    )
    .under(PROMISES),
    Flag::new(
        "lease",
        "SEMEL_LEASE",
        ("defaults", "lease"),
        SPAN,
        "How long a claim is valid without renewal",
    )
    .under(PROMISES),
    Flag::new(
        "wait",
        "SEMEL_WAIT",
        ("defaults", "wait"),
        SPAN,
        "How long a repeat of a running request waits for its outcome",
    )
    .under(PROMISES),
    Flag::new(
        "anonymous",
        "SEMEL_ANONYMOUS",
        ("identity", "sources"),
        Kind::Replaces { shown: "[\"anonymous\"]" },
        "Let all callers share one scope, including their keys and replays; operations with their own `callers` keep them. \
         For services with a single client",
    )
    .under(PROMISES),
    Flag::new(
        "request-max",
        "SEMEL_REQUEST_MAX",
        ("defaults", "request_max"),
        SIZE,
        "The longest body of a request with a key",
    )
    .under(LIMITS),
    Flag::new(
        "kept-max",
        "SEMEL_KEPT_MAX",
        ("defaults", "kept_max"),
        SIZE,
        "The longest response body that is stored; longer ones are forwarded but not replayed",
    )
    .under(LIMITS),
    Flag::new(
        "connections-max",
        "SEMEL_CONNECTIONS_MAX",
        ("listen", "connections_max"),
        Kind::Number { name: "NUMBER" },
        "The maximum number of client connections",
    )
    .under(LIMITS),
    Flag::new(
        "drain",
        "SEMEL_DRAIN",
        ("listen", "drain"),
        SPAN,
        "How long running requests may take after the process was asked to stop",
    )
    .under(LIMITS),
    Flag::new(
        "tls-cert",
        "SEMEL_TLS_CERT",
        ("listen", "tls_cert"),
        Kind::File { needs: Some("tls-key") },
        "Use TLS with clients: the certificate chain, PEM",
    )
    .under(TLS),
    Flag::new(
        "tls-key",
        "SEMEL_TLS_KEY",
        ("listen", "tls_key"),
        Kind::File { needs: Some("tls-cert") },
        "The certificate's private key, PEM",
    )
    .under(TLS),
    Flag::new(
        "upstream-ca",
        "SEMEL_UPSTREAM_CA",
        ("upstream", "ca"),
        FILE,
        "Trust these certificate authorities for an https upstream, PEM, instead of the system's",
    )
    .under(TLS),
    Flag::new(
        "connect-timeout",
        "SEMEL_CONNECT_TIMEOUT",
        ("upstream", "connect_timeout"),
        LIMIT,
        "How long to wait for a connection to the upstream",
    )
    .under(UPSTREAM),
    Flag::new(
        "response-timeout",
        "SEMEL_RESPONSE_TIMEOUT",
        ("upstream", "response_timeout"),
        LIMIT,
        "How long to wait for its response: the whole response with a key, its head without",
    )
    .under(UPSTREAM),
    Flag::new(
        "fresh-connections",
        "SEMEL_FRESH_CONNECTIONS",
        ("upstream", "fresh_connections"),
        Kind::Switch,
        "Open a new connection for each protected request, so that none can meet one that is being closed",
    )
    .under(UPSTREAM),
    Flag::new(
        "log",
        "SEMEL_LOG",
        ("log", "form"),
        Kind::Choice {
            name: "FORM",
            words: &[("text", Some("For people")), ("json", Some("One JSON object per line"))],
        },
        "The format of log lines",
    )
    .under(LOGS),
    Flag::new(
        "log-level",
        "SEMEL_LOG_LEVEL",
        ("log", "level"),
        Kind::Choice {
            name: "LEVEL",
            words: &[("error", None), ("warn", None), ("info", None), ("debug", None)],
        },
        "The log level: these lines and more severe ones [default: info; with --demo, error]",
    )
    .under(LOGS)
    .without_default(),
    Flag::new(
        "log-requests",
        "SEMEL_LOG_REQUESTS",
        ("log", "requests"),
        Kind::Switch,
        "Log every request, at any level: method, operation, status, duration, outcome and operation ID",
    )
    .under(LOGS),
];

/// Whether this is a whole number above zero.
pub(crate) fn check_number(text: &str) -> Result<(), Refusal> {
    accepted(text.parse::<NonZeroUsize>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT;
    use std::collections::BTreeSet;

    #[test]
    fn each_variable_is_named_after_its_flag() {
        for flag in FLAGS {
            let name = flag.name.to_ascii_uppercase().replace('-', "_");
            assert_eq!(flag.variable, format!("SEMEL_{name}"));
        }
        let names: BTreeSet<_> = FLAGS.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), FLAGS.len());
    }

    /// The line of a key names its flag, and no line names a flag that does not exist.
    #[test]
    fn the_default_file_names_every_flag_at_its_key() {
        let mut table = "";
        let mut named = BTreeSet::new();
        for line in DEFAULT.lines() {
            if let Some(name) = line.strip_prefix('[') {
                table = name.trim_matches(['[', ']']);
            }
            let Some((key, rest)) = line.trim_start_matches('#').split_once(" = ") else { continue };
            let flags = rest.split_once("# --").map(|(_, flags)| flags);
            let Some(flag) = flags.and_then(|flags| flags.split([':', ';', ' ']).next()) else { continue };
            let row = Flag::of(flag).unwrap_or_else(|| panic!("--{flag} does not exist"));
            assert_eq!((row.table, row.key), (table, key), "--{flag}");
            named.insert(row.name);
        }
        // One stands for a value of another's key, the other replaces a table.
        named.extend(["require-key", "anonymous"]);
        for flag in FLAGS {
            assert!(named.contains(flag.name), "no line of the default file names --{}", flag.name);
        }
    }
}
