//! Parses `postgres:` URLs.

use super::connecting::LastGood;
use super::timeline::Timelines;
use super::tls::{Tls, TlsError, TlsMode};
use super::url_error::{FilesError, UrlError};
use semel_core::store::{Error, Kind};
use semel_net::parameters::{Parameters, seconds};
use semel_net::password::{Password, PasswordError};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error as ThisError;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

/// The schema that the tables are in, unless the URL names another.
pub(super) const SCHEMA: &str = "semel";
const CONNECTIONS: usize = 4;
pub(super) const CONNECTIONS_MAX: usize = 64;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
const SILENT_AFTER: Duration = Duration::from_secs(1);

/// Parameters that are passed to the driver unchanged.
const DRIVER_PARAMETERS: &[&str] = &[
    "application_name",
    "connect_timeout",
    "host",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_retries",
    "tcp_user_timeout",
];
/// Parameters that this store reads itself.
const STORE_PARAMETERS: &[&str] = &[
    "connections",
    "listen",
    "password",
    "schema",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "timeout",
];

/// Every parameter, for an error.
pub(super) fn known_parameters() -> String {
    let mut known: Vec<_> = DRIVER_PARAMETERS.iter().chain(STORE_PARAMETERS).copied().collect();
    known.sort_unstable();
    known.join(", ")
}

/// A parsed URL. It contains no secret: a password is only named, and read when a connection is opened.
#[derive(Clone)]
pub(super) struct Address {
    config: Config,
    password: Option<Password>,
    tls: TlsMode,
    root_certificates: Option<PathBuf>,
    listen: Listen,
    pub(super) schema: String,
    pub(super) connections: Option<usize>,
    /// How long a statement may take before its connection is closed.
    pub(super) answer_timeout: Duration,
    /// How long a connection may be silent, while a statement waits, before it is replaced.
    pub(super) silent_after: Duration,
    pub(super) last_good: Arc<LastGood>,
    /// The servers seen so far; `None` if any server may be used.
    pub(super) timelines: Option<Arc<Timelines>>,
}

/// Where notifications are received.
#[derive(Clone)]
enum Listen {
    /// From the server that is written to.
    Same,
    /// Directly from the server, bypassing a pooler.
    At(String, u16),
    /// Nowhere: waiting requests poll.
    Off,
}

impl FromStr for Address {
    type Err = UrlError;

    /// `address` is what follows `postgres:`.
    fn from_str(address: &str) -> Result<Self, UrlError> {
        let rest = address.strip_prefix("//").ok_or(UrlError::NoAuthority)?;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, _) = base.split_once('/').unwrap_or((base, ""));
        if authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
            return Err(UrlError::HasPassword);
        }
        let mut passed_on = Vec::new();
        let mut settings = Settings::default();
        for parameter in Parameters::of("postgres", query) {
            let parameter = parameter?;
            if DRIVER_PARAMETERS.contains(&parameter.name) {
                passed_on.push(parameter.pair);
            } else {
                settings.take(parameter.name, &parameter.value()?)?;
            }
        }
        let text = format!("postgres://{base}?{}", passed_on.join("&"));
        let mut config: Config = text.parse().map_err(UrlError::Unreadable)?;
        settings.complete(&mut config)?;
        let Settings { password, tls, root_certificates, listen, schema, connections, timeout, .. } =
            settings;
        let all_local = config.get_hosts().iter().all(is_local);
        let tls = tls.unwrap_or(if all_local { TlsMode::Disable } else { TlsMode::Prefer });
        Ok(Self {
            config,
            password,
            tls: tls.with_root(root_certificates.is_some()),
            root_certificates,
            listen: listen.unwrap_or(Listen::Same),
            schema: schema.unwrap_or_else(|| SCHEMA.to_owned()),
            connections,
            answer_timeout: timeout.unwrap_or(ANSWER_TIMEOUT),
            silent_after: SILENT_AFTER,
            last_good: Arc::default(),
            timelines: Some(Arc::default()),
        })
    }
}

#[derive(Default)]
struct Settings {
    password: Option<Password>,
    tls: Option<TlsMode>,
    root_certificates: Option<PathBuf>,
    listen: Option<Listen>,
    schema: Option<String>,
    connections: Option<usize>,
    timeout: Option<Duration>,
    session: Option<TargetSessionAttrs>,
}

impl Settings {
    fn take(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        match name {
            "password" => self.password = Some(Password::parse(value).ok_or(UrlError::Password)?),
            "sslmode" => self.tls = Some(value.parse()?),
            "sslrootcert" => self.root_certificates = Some(PathBuf::from(value)),
            "listen" => self.listen = Some(Listen::parse(value)?),
            "schema" => self.schema = Some(schema_name(value)?),
            "connections" => {
                let number = value.parse().ok().filter(|number| (2..=CONNECTIONS_MAX).contains(number));
                self.connections = Some(number.ok_or_else(|| UrlError::Connections(value.to_owned()))?);
            }
            "timeout" => self.timeout = Some(seconds(name, value)?),
            "target_session_attrs" => match value {
                "any" => self.session = Some(TargetSessionAttrs::Any),
                "read-write" => self.session = Some(TargetSessionAttrs::ReadWrite),
                _ => return Err(UrlError::SessionAttributes(value.to_owned())),
            },
            _ => return Err(UrlError::UnknownParameter(name.to_owned())),
        }
        Ok(())
    }

    /// The driver's settings beyond the URL.
    fn complete(&self, config: &mut Config) -> Result<(), UrlError> {
        if config.get_hosts().is_empty() {
            return Err(UrlError::NoHost);
        }
        if config.get_user().is_none() {
            return Err(UrlError::NoUser);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(10));
        }
        config.keepalives_idle(config.get_keepalives_idle().min(Duration::from_mins(1)));
        if config.get_application_name().is_none() {
            config.application_name("semel");
        }
        // Several hosts are one server and its standbys: only the one that takes writes may be used.
        config.target_session_attrs(self.session.unwrap_or(TargetSessionAttrs::ReadWrite));
        Ok(())
    }
}

impl Listen {
    fn parse(value: &str) -> Result<Self, UrlError> {
        if value == "off" {
            return Ok(Self::Off);
        }
        let parts =
            value.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
        match parts {
            Some((host, port)) if !host.is_empty() => Ok(Self::At(host, port)),
            _ => Err(UrlError::Listen(value.to_owned())),
        }
    }
}

impl Address {
    /// How many connections serve requests, without those for listings, notifications and locked rows.
    pub(super) fn connections_or(&self, chosen: Option<usize>) -> usize {
        self.connections.or(chosen).unwrap_or(CONNECTIONS).clamp(2, CONNECTIONS_MAX)
    }

    /// The driver's settings, password included.
    pub(super) fn config(&self) -> Result<Config, Error> {
        let mut config = self.config.clone();
        config.ssl_mode(match self.tls {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        if let Some(password) = &self.password {
            // Read again for every connection, so that a password can be changed while nodes run.
            let unavailable = |cause: PasswordError| {
                Error::new(Kind::Unavailable, "reading the database password").because(cause)
            };
            config.password(password.read().map_err(unavailable)?);
        }
        Ok(config)
    }

    /// Reads the password and the root certificates that the URL names.
    pub(super) fn check_files(&self) -> Result<(), FilesError> {
        if let Some(password) = &self.password {
            password.read()?;
        }
        if self.root_certificates.is_some() {
            self.prepare_tls()?;
        }
        Ok(())
    }

    /// The same for read-only use: a standby is sufficient.
    pub(super) fn for_reading(mut self) -> Self {
        self.config.target_session_attrs(TargetSessionAttrs::Any);
        self.timelines = None;
        self
    }

    /// Where notifications are received; `None` if they are off.
    pub(super) fn for_listening(&self) -> Option<Self> {
        let mut address = self.clone();
        match &self.listen {
            Listen::Same => {}
            Listen::Off => return None,
            Listen::At(host, port) => {
                let mut config = Config::new();
                config.host(host).port(*port);
                config.user(self.config.get_user().unwrap_or_default());
                if let Some(database) = self.config.get_dbname() {
                    config.dbname(database);
                }
                config.application_name("semel").target_session_attrs(TargetSessionAttrs::ReadWrite);
                config.connect_timeout(Duration::from_secs(5)).tcp_user_timeout(Duration::from_secs(10));
                config.keepalives_idle(Duration::from_secs(30));
                address.config = config;
                address.last_good = Arc::default();
            }
        }
        Some(address)
    }

    /// The TLS setup for an encrypted connection; `None` if it is not encrypted.
    pub(super) fn tls(&self) -> Result<Option<Tls>, Error> {
        let unavailable =
            |cause| Error::new(Kind::Unavailable, "preparing TLS to the database").because(cause);
        self.prepare_tls().map_err(unavailable)
    }

    fn prepare_tls(&self) -> Result<Option<Tls>, TlsError> {
        match self.tls {
            TlsMode::Disable => Ok(None),
            mode => Tls::new(mode, self.root_certificates.as_deref()).map(Some),
        }
    }

    /// Whether records may cross a network unencrypted.
    pub(super) fn may_be_in_the_clear(&self) -> bool {
        matches!(self.tls, TlsMode::Disable | TlsMode::Prefer)
            && self.config.get_hosts().iter().any(|host| !is_local(host))
    }

    pub(super) fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }
}

/// Debug output without the driver's settings.
impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("schema", &self.schema).finish_non_exhaustive()
    }
}

fn is_local(host: &Host) -> bool {
    match host {
        Host::Tcp(name) => name == "localhost" || name.starts_with("127.") || name == "::1",
        Host::Unix(_) => true,
    }
}

/// A schema name that needs no quotes, so that it can be used in a statement unchanged.
pub(super) fn schema_name(name: &str) -> Result<String, SchemaNameError> {
    let mut bytes = name.bytes();
    let is_plain = bytes.next().is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_')
        && bytes.all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        && name.len() <= 50;
    if is_plain && !name.starts_with("pg_") {
        return Ok(name.to_owned());
    }
    Err(SchemaNameError { name: name.to_owned() })
}

/// A name that the schema of a store cannot have.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
#[error(
    "`{name}` cannot be the schema of the store; use up to 50 lower-case letters, digits and underscores, not beginning with \
     a digit or pg_"
)]
pub struct SchemaNameError {
    /// The name.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> UrlError {
        text.parse::<Address>().err().unwrap_or_else(|| panic!("{text} was accepted"))
    }

    fn refusal(text: &str) -> String {
        refused(text).to_string()
    }

    #[test]
    fn a_parameter_that_is_given_twice_is_refused() {
        assert_eq!(refusal("//semel@h/d?schema=a&schema=b"), "the postgres URL has `schema` twice");
        assert!(
            refusal("//semel@h/d?connect_timeout=1&connect_timeout=2").contains("`connect_timeout` twice")
        );
    }

    #[test]
    fn a_url_names_the_store_and_its_settings() {
        let plain = address("//semel@db.example/payments");
        assert_eq!((plain.user(), &*plain.schema), ("semel", "semel"));
        assert_eq!(plain.connections_or(None), 4);
        assert!(plain.may_be_in_the_clear());
        let chosen = address(
            "//semel@a.example:5433,b.example:5434/payments?schema=once&connections=8&timeout=1.5&sslmode=verify-full\
             &connect_timeout=2&listen=a.example:5432",
        );
        assert_eq!((&*chosen.schema, chosen.connections_or(Some(3))), ("once", 8));
        assert_eq!(chosen.answer_timeout, Duration::from_millis(1500));
        assert!(!chosen.may_be_in_the_clear());
        let config = chosen.config().expect("no password to read");
        assert_eq!(config.get_hosts().len(), 2);
        assert_eq!(config.get_ports(), [5433, 5434]);
        assert_eq!(config.get_ssl_mode(), SslMode::Require);
        assert_eq!(config.get_connect_timeout(), Some(&Duration::from_secs(2)));
        let listening = chosen.for_listening().expect("it listens").config().expect("no password");
        assert_eq!((listening.get_ports(), listening.get_dbname()), (&[5432][..], Some("payments")));
        assert!(address("//semel@h/d?listen=off").for_listening().is_none());
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        for text in [
            "//semel:hunter2@h/d",
            "//semel:hunter2@a,b/d?schema=x",
            "//semel@h/d?password=hunter2",
            "//semel@h/d?password=hunter2:x",
            "//semel@h:hunter2/d",
        ] {
            let refused = refused(text);
            let message = format!("{refused} {refused:?}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(refusal("//semel:hunter2@h/d").contains("password=env:NAME"));
    }

    #[test]
    fn a_password_is_read_from_where_the_url_says() {
        let folder = semel_test_support::ScratchDir::new("password");
        let path = folder.join("password");
        std::fs::write(&path, "hunter2\n").expect("written");
        let config =
            address(&format!("//semel@h/d?password=file:{}", path.display())).config().expect("read");
        assert_eq!(config.get_password(), Some(&b"hunter2"[..]));
        let missing =
            address("//semel@h/d?password=env:SEMEL_NO_SUCH_VARIABLE").config().expect_err("missing");
        assert_eq!(missing.kind(), Kind::Unavailable);
        assert!(missing.to_string().contains("SEMEL_NO_SUCH_VARIABLE"), "{missing}");
        let refused = address("//semel@h/d?password=env:SEMEL_NO_SUCH_VARIABLE").check_files();
        assert!(refused.is_err_and(|why| why.to_string().contains("SEMEL_NO_SUCH_VARIABLE")));
        let refused = address("//semel@h/d?sslmode=verify-full&sslrootcert=/no/such/file").check_files();
        assert!(refused.is_err_and(|why| why.to_string().starts_with("sslrootcert=/no/such/file")));
        let found = address(&format!("//semel@h/d?password=file:{}", path.display())).check_files();
        found.expect("the file is there");
        let missing = address("//semel@h/d?password=file:/no/such/file").config().expect_err("missing");
        assert!(missing.to_string().contains("/no/such/file"), "{missing}");
        let endless = address("//semel@h/d?password=file:/dev/zero").config().expect_err("too long");
        assert!(endless.to_string().contains("/dev/zero: it is larger than"), "{endless}");
    }

    #[test]
    fn a_meaningless_url_is_refused_with_a_correct_form() {
        for (text, expected) in [
            ("semel@h/d", "postgres://"),
            ("//semel@h/d?schemas=x", "unknown parameter `schemas`"),
            ("//semel@h/d?schema=Payments", "lower-case"),
            ("//semel@h/d?schema=a;b", "lower-case"),
            ("//semel@h/d?schema=pg_catalog", "pg_"),
            ("//semel@h/d?connections=1", "from 2 to 64"),
            ("//semel@h/d?connections=many", "from 2 to 64"),
            ("//semel@h/d?timeout=0", "from 0.1"),
            ("//semel@h/d?sslmode=yes", "verify-full"),
            ("//semel@h/d?listen=here", "HOST:PORT"),
            ("//semel@h/d?target_session_attrs=read-only", "read-write or any"),
            ("//h/d", "no user"),
            ("//semel@/d", "no host"),
        ] {
            let message = refusal(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
