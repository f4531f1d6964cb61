//! Parses `redis:` URLs.

use crate::url_error::{FilesError, PrefixError, UrlError};
use semel_core::store::{Error, Kind};
use semel_net::parameters::{Parameters, seconds};
use semel_net::password::Password;
use semel_net::tls;
use semel_text::percent;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 6379;
const TIMEOUT: Duration = Duration::from_secs(5);
/// How many buckets a new store gets.
pub(crate) const BUCKETS: u16 = 64;
const BUCKETS_MAX: u16 = 4096;

/// The hazard of a URL that has it.
pub(crate) const TTL_IGNORED: &str = "the store's URL has `ttl`, which has no effect: only the sweeper removes records, never the server by itself";

/// A server.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{}:{}", self.name, self.port)
        }
    }
}

impl Host {
    /// `HOST`, `HOST:PORT` or `[IPV6]:PORT`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (name, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']')?;
                (name, rest.strip_prefix(':').or(rest.is_empty().then_some(""))?)
            }
            None => text.rsplit_once(':').unwrap_or((text, "")),
        };
        let port = if port.is_empty() { PORT } else { port.parse().ok()? };
        (!name.is_empty()).then(|| Self { name: name.to_owned(), port })
    }

    fn is_local(&self) -> bool {
        self.name == "localhost" || self.name.starts_with("127.") || self.name == "::1"
    }
}

/// What must confirm a write before it is answered, besides the server's reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Confirmation {
    /// This many replicas have the write.
    pub(crate) replicas: u8,
    /// The server has synced it to its own disk.
    pub(crate) synced: bool,
}

impl Confirmation {
    pub(crate) fn is_wanted(self) -> bool {
        self != Self::default()
    }
}

/// A parsed URL. It contains no secret: a password is only named, and read when a connection is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a parameter of its own, on or off")]
pub(crate) struct Address {
    pub(crate) hosts: Vec<Host>,
    pub(crate) user: Option<String>,
    password: Option<Password>,
    pub(crate) database: u32,
    pub(crate) is_encrypted: bool,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) prefix: String,
    pub(crate) buckets: Option<u16>,
    /// How long an answer may take before its connection is closed.
    pub(crate) answer_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) confirmation: Confirmation,
    /// The URL has `ttl`, which older versions needed.
    pub(crate) ignores_ttl: bool,
    pub(crate) notifies: bool,
    /// Any server may be used, even a replica: no decision depends on the data.
    pub(crate) any_server: bool,
}

impl Address {
    /// `address` is what follows `redis:`.
    pub(crate) fn parse(address: &str, is_encrypted: bool) -> Result<Self, UrlError> {
        let rest = address.strip_prefix("//").ok_or(UrlError::NoAuthority)?;
        let (base, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = base.split_once('/').unwrap_or((base, ""));
        let (user, hosts) =
            authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
        if user.is_some_and(|user| user.contains(':')) {
            return Err(UrlError::HasPassword);
        }
        let user = user.filter(|user| !user.is_empty());
        let user = user.map(|user| percent::decode(user).ok_or(UrlError::User));
        let hosts: Option<Vec<_>> = hosts.split(',').map(Host::parse).collect();
        let database = if path.is_empty() { Some(0) } else { path.parse().ok() };
        let mut parsed = Self {
            hosts: hosts.ok_or(UrlError::Hosts)?,
            user: user.transpose()?,
            password: None,
            database: database.ok_or(UrlError::Database)?,
            is_encrypted,
            root_certificates: None,
            prefix: "semel".to_owned(),
            buckets: None,
            answer_timeout: TIMEOUT,
            connect_timeout: TIMEOUT,
            confirmation: Confirmation::default(),
            ignores_ttl: false,
            notifies: true,
            any_server: false,
        };
        for parameter in Parameters::of("redis", query) {
            let parameter = parameter?;
            parsed.take(parameter.name, &parameter.value()?)?;
        }
        if parsed.user.is_some() && parsed.password.is_none() {
            return Err(UrlError::NoPassword);
        }
        if parsed.root_certificates.is_some() && !is_encrypted {
            return Err(UrlError::NotEncrypted);
        }
        Ok(parsed)
    }

    fn take(&mut self, name: &str, value: &str) -> Result<(), UrlError> {
        let number = |range: std::ops::RangeInclusive<u16>| {
            value.parse().ok().filter(|number| range.contains(number)).ok_or_else(|| UrlError::Number {
                name: name.to_owned(),
                least: *range.start(),
                most: *range.end(),
                value: value.to_owned(),
            })
        };
        let on_or_off = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(UrlError::OnOrOff { name: name.to_owned(), value: value.to_owned() }),
        };
        match name {
            "buckets" => self.buckets = Some(number(1..=BUCKETS_MAX)?),
            "connect_timeout" => self.connect_timeout = seconds(name, value)?,
            "notify" => self.notifies = on_or_off()?,
            "password" => self.password = Some(Password::parse(value).ok_or(UrlError::Password)?),
            "prefix" => self.prefix = checked_prefix(value)?,
            "sslrootcert" => self.root_certificates = Some(PathBuf::from(value)),
            "timeout" => self.answer_timeout = seconds(name, value)?,
            "ttl" => self.ignores_ttl = true,
            "wait" => self.confirmation.replicas = u8::try_from(number(1..=64)?).unwrap_or(1),
            "waitaof" => self.confirmation.synced = on_or_off()?,
            _ => return Err(UrlError::UnknownParameter(name.to_owned())),
        }
        Ok(())
    }

    /// The user and the password for the greeting. Read again for every connection, so that a password can be
    /// changed while nodes run.
    pub(crate) fn credentials(&self) -> Result<Option<(String, Vec<u8>)>, Error> {
        let unavailable =
            |cause| Error::new(Kind::Unavailable, "reading the password of the Redis server").because(cause);
        let Some(password) = &self.password else { return Ok(None) };
        let bytes = password.read().map_err(unavailable)?;
        Ok(Some((self.user.clone().unwrap_or_else(|| "default".to_owned()), bytes)))
    }

    /// Reads the password and the root certificates that the URL names.
    pub(crate) fn check_files(&self) -> Result<(), FilesError> {
        if let Some(password) = &self.password {
            password.read()?;
        }
        if self.root_certificates.is_some() {
            tls::store_roots(self.root_certificates.as_deref())?;
        }
        Ok(())
    }

    /// The same for read-only use.
    pub(crate) fn for_reading(mut self) -> Self {
        self.any_server = true;
        self.unconfirmed()
    }

    /// The same without waiting for replicas or disks.
    pub(crate) fn unconfirmed(mut self) -> Self {
        self.confirmation = Confirmation::default();
        self
    }

    /// Whether records may cross a network unencrypted.
    pub(crate) fn may_be_in_the_clear(&self) -> bool {
        !self.is_encrypted && self.hosts.iter().any(|host| !host.is_local())
    }
}

/// A prefix is part of hash tags and of the key patterns in ACLs.
pub(crate) fn checked_prefix(prefix: &str) -> Result<String, PrefixError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if (1..=50).contains(&prefix.len()) && prefix.bytes().all(is_plain) {
        return Ok(prefix.to_owned());
    }
    Err(PrefixError { prefix: prefix.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> UrlError {
        Address::parse(text, false).err().unwrap_or_else(|| panic!("{text} was accepted"))
    }

    fn refusal(text: &str) -> String {
        refused(text).to_string()
    }

    #[test]
    fn a_url_names_the_store_and_its_settings() {
        let plain = address("//cache.example");
        assert_eq!(plain.hosts, [Host { name: "cache.example".to_owned(), port: 6379 }]);
        assert_eq!((&*plain.prefix, plain.buckets, plain.database), ("semel", None, 0));
        assert!(!plain.ignores_ttl && plain.notifies && plain.may_be_in_the_clear());
        let chosen = address(
            "//semel@a.example:7000,[::1]:7001/3?password=env:P&prefix=pay&buckets=16&timeout=1.5&wait=2&waitaof=on&ttl=off\
             &notify=off",
        );
        assert_eq!(
            chosen.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["a.example:7000", "[::1]:7001"]
        );
        assert_eq!((chosen.user.as_deref(), chosen.database, chosen.buckets), (Some("semel"), 3, Some(16)));
        assert_eq!(chosen.answer_timeout, Duration::from_millis(1500));
        assert_eq!(chosen.confirmation, Confirmation { replicas: 2, synced: true });
        assert!(chosen.ignores_ttl && !chosen.notifies);
        assert!(!address("//127.0.0.1:1").may_be_in_the_clear());
        assert!(!Address::parse("//cache.example", true).expect("an address").may_be_in_the_clear());
    }

    #[test]
    fn a_password_in_the_url_is_refused_and_not_repeated() {
        for text in [
            "//semel:hunter2@h",
            "//:hunter2@h",
            "//h?password=hunter2",
            "//h?password=hunter2:x",
            "//h:hunter2",
        ] {
            let refused = refused(text);
            let message = format!("{refused} {refused:?}");
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(refusal("//semel:hunter2@h").contains("password=env:NAME"));
    }

    #[test]
    fn a_password_is_read_from_where_the_url_says() {
        let folder = semel_test_support::ScratchDir::new("redis-password");
        let path = folder.write("password", "hunter2\n");
        let read = address(&format!("//h?password=file:{}", path.display())).credentials().expect("read");
        assert_eq!(read, Some(("default".to_owned(), b"hunter2".to_vec())));
        let missing =
            address("//u@h?password=env:SEMEL_NO_SUCH_VARIABLE").credentials().expect_err("missing");
        assert!(missing.to_string().contains("SEMEL_NO_SUCH_VARIABLE"), "{missing}");
        let endless = address("//h?password=file:/dev/zero").credentials().expect_err("too long");
        assert!(endless.to_string().contains("/dev/zero: it is larger than"), "{endless}");
        assert_eq!(address("//h").credentials().expect("none"), None);
    }

    #[test]
    fn a_meaningless_url_is_refused_with_a_correct_form() {
        for (text, expected) in [
            ("h", "redis://"),
            ("//", "hosts"),
            ("//h?bucket=1", "unknown parameter `bucket`"),
            ("//h?buckets=0", "from 1 to 4096"),
            ("//h?buckets=5000", "from 1 to 4096"),
            ("//h?prefix={a}", "letters"),
            ("//h?prefix=", "letters"),
            ("//h?timeout=0", "from 0.1"),
            ("//h?wait=0", "from 1"),
            ("//h?notify=never", "on or off"),
            ("//h/x", "number"),
            ("//semel@h", "no password"),
            ("//h?sslrootcert=x", "rediss://"),
            ("//h?ttl=off&ttl=on", "`ttl` twice"),
        ] {
            let message = refusal(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }
}
