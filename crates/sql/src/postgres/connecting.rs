//! Opens connections: one host after another, each with its own share of the time.

use super::address::Address;
use super::fault::chain;
use super::pulse::{Pulse, PulseSettings};
use super::session::{OnNotification, Session};
use super::socket::{Socket, Stream};
use super::timeline::Origin;
use semel_core::store::{Error, Kind};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::timeout;
use tokio_postgres::config::{Host, TargetSessionAttrs};
use tokio_postgres::error::SqlState;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, NoTls};

pub(super) const CONNECTING: &str = "connecting to PostgreSQL";
/// How many addresses of a host's name are tried.
const ADDRESSES_MAX: usize = 4;

/// A host of the URL, or one of its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Target {
    host: Host,
    port: u16,
    ip: Option<IpAddr>,
}

/// The server that the last connection was opened to. It is tried first.
#[derive(Debug, Default)]
pub(super) struct LastGood(Mutex<Option<Target>>);

impl LastGood {
    fn target(&self) -> Option<Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn replace(&self, target: Target) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(target);
    }
}

/// Why a host cannot be used.
struct Refusal {
    kind: Kind,
    cause: String,
    /// It takes writes, but is not the server that the store has seen last.
    is_replaced: bool,
    /// It accepts no connections yet.
    is_starting: bool,
}

impl Refusal {
    fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), is_replaced: false, is_starting: false }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let cause = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        Self { is_starting: error.is_starting(), ..Self::new(error.kind(), cause) }
    }
}

impl Session {
    /// Connects to a server that takes writes and was not replaced. Hosts are tried one after another, first
    /// the one that worked last. Everything from the name's lookup to the first answer of an address counts
    /// against its own share of the time.
    pub(super) async fn open(
        address: &Address,
        pulse: &PulseSettings,
        notified: Option<OnNotification>,
    ) -> Result<Self, Error> {
        let config = address.config()?;
        let share = config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        let silent =
            || Refusal::new(Kind::Unavailable, format!("the server did not answer within {share:?}"));
        let last_good = address.last_good.target();
        let mut hosts = hosts(&config);
        hosts.sort_by_key(|host| {
            last_good.as_ref().is_none_or(|last| last.host != host.host || last.port != host.port)
        });
        let mut refusals = Vec::new();
        for host in hosts {
            let mut refused = None;
            match timeout(share, host.resolve()).await {
                Err(_) => refused = Some(silent()),
                Ok(Err(error)) => {
                    refused = Some(explained(address, &format!("error connecting to server: {error}"), None));
                }
                Ok(Ok(mut targets)) => {
                    targets.sort_by_key(|target| Some(target) != last_good.as_ref());
                    for target in targets.into_iter().take(ADDRESSES_MAX) {
                        let pulse = Pulse::new(pulse, address.answer_timeout);
                        let connecting = target.connect(address, &config, pulse, notified.clone());
                        match timeout(share, connecting).await.unwrap_or_else(|_| Err(silent())) {
                            Ok(session) => {
                                address.last_good.replace(target);
                                return Ok(session);
                            }
                            Err(refusal) => refused = Some(refusal),
                        }
                    }
                }
            }
            refusals.extend(refused.map(|refusal| (host.name(), refusal)));
        }
        Err(refused_by_all(refusals))
    }
}

/// The hosts of the URL, in its order.
fn hosts(config: &Config) -> Vec<Target> {
    let ports = config.get_ports();
    let port = |number: usize| ports.get(number).or_else(|| ports.first()).copied().unwrap_or(5432);
    let hosts = config.get_hosts().iter().enumerate();
    hosts.map(|(number, host)| Target { host: host.clone(), port: port(number), ip: None }).collect()
}

fn refused_by_all(mut refusals: Vec<(String, Refusal)>) -> Error {
    let error = |refusal: Refusal| Error::new(refusal.kind, CONNECTING).because(refusal.cause);
    if let Some(at) = refusals.iter().position(|(_, refusal)| refusal.is_replaced) {
        return error(refusals.swap_remove(at).1);
    }
    let is_starting = refusals.iter().any(|(_, refusal)| refusal.is_starting);
    let last = if refusals.iter().all(|(_, refusal)| refusal.kind == Kind::ReadOnly) || refusals.len() == 1 {
        let none = || Refusal::new(Kind::Unavailable, "the host's name has no address");
        refusals.pop().map_or_else(none, |(_, refusal)| refusal)
    } else {
        let each = refusals.iter().map(|(host, refusal)| format!("{host}: {}", refusal.cause));
        Refusal::new(Kind::Unavailable, each.collect::<Vec<_>>().join("; "))
    };
    if is_starting { Error::starting(CONNECTING).because(last.cause) } else { error(last) }
}

impl Target {
    fn name(&self) -> String {
        match &self.host {
            Host::Tcp(name) => format!("{name}:{}", self.port),
            Host::Unix(path) => path.display().to_string(),
        }
    }

    /// The addresses of the host's name.
    async fn resolve(&self) -> io::Result<Vec<Self>> {
        match &self.host {
            Host::Unix(_) => Ok(vec![self.clone()]),
            Host::Tcp(name) => {
                let found = lookup_host((&**name, self.port)).await?;
                Ok(found.map(|address| Self { ip: Some(address.ip()), ..self.clone() }).collect())
            }
        }
    }

    async fn stream(&self, config: &Config) -> io::Result<Stream> {
        match (&self.host, self.ip) {
            (Host::Unix(folder), _) => {
                let path = folder.join(format!(".s.PGSQL.{}", self.port));
                UnixStream::connect(path).await.map(Stream::Unix)
            }
            (Host::Tcp(_), Some(ip)) => {
                let stream = TcpStream::connect((ip, self.port)).await?;
                stream.set_nodelay(true)?;
                set_timeouts(&stream, config)?;
                Ok(Stream::Tcp(stream))
            }
            (Host::Tcp(_), None) => Err(io::Error::other("the host's name has no address")),
        }
    }

    /// Connects, logs in, and checks that the server takes writes and was not replaced.
    async fn connect(
        &self,
        address: &Address,
        config: &Config,
        pulse: Pulse,
        notified: Option<OnNotification>,
    ) -> Result<Session, Refusal> {
        let pulse = Arc::new(pulse);
        let stream = self.stream(config).await;
        let stream = stream
            .map_err(|error| explained(address, &format!("error connecting to server: {error}"), None))?;
        let socket = Socket::new(stream, Arc::clone(&pulse));
        let mut session = if let (Some(mut tls), Host::Tcp(name)) = (address.tls()?, &self.host) {
            let handshake = MakeTlsConnect::<Socket>::make_tls_connect(&mut tls, name);
            let unnamed = |error| format!("error performing TLS handshake: {error}");
            let handshake = handshake.map_err(|error| explained(address, &unnamed(error), None))?;
            let logged_in = config.connect_raw(socket, handshake).await;
            let (client, connection) = logged_in.map_err(|error| refused(address, &error))?;
            Session::drive(client, connection, pulse, notified)
        } else {
            let logged_in = config.connect_raw(socket, NoTls).await;
            let (client, connection) = logged_in.map_err(|error| refused(address, &error))?;
            Session::drive(client, connection, pulse, notified)
        };
        if config.get_target_session_attrs() == TargetSessionAttrs::ReadWrite {
            let sql = "SELECT pg_catalog.current_setting('transaction_read_only') = 'on'";
            let rows = session.query(sql, &[]).await.map_err(|error| refused(address, &error))?;
            if rows.first().is_none_or(|row| row.try_get(0).unwrap_or(true)) {
                return Err(Refusal::new(
                    Kind::ReadOnly,
                    "none of the hosts takes writes: they are standbys, or set to default_transaction_read_only",
                ));
            }
        }
        if let Some(timelines) = &address.timelines {
            session.origin = Origin::of(&session).await;
            let admitted = timelines.admit(session.origin);
            admitted.map_err(|cause| Refusal {
                is_replaced: true,
                ..Refusal::new(Kind::ReadOnly, cause.to_string())
            })?;
        }
        Ok(session)
    }
}

/// How long the system waits for an unanswered packet, and when it asks a silent peer.
fn set_timeouts(stream: &TcpStream, config: &Config) -> io::Result<()> {
    let socket = SockRef::from(stream);
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(config.get_tcp_user_timeout().copied())?;
    if !config.get_keepalives() {
        return Ok(());
    }
    let mut keepalive = TcpKeepalive::new().with_time(config.get_keepalives_idle());
    if let Some(interval) = config.get_keepalives_interval() {
        keepalive = keepalive.with_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        keepalive = keepalive.with_retries(retries);
    }
    socket.set_tcp_keepalive(&keepalive)
}

fn refused(address: &Address, error: &tokio_postgres::Error) -> Refusal {
    explained(address, &chain(error), error.code())
}

/// Why a connection failed, and which setting to check.
fn explained(address: &Address, text: &str, code: Option<&SqlState>) -> Refusal {
    let help = match code {
        Some(code)
            if *code == SqlState::INVALID_PASSWORD
                || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            format!("; check the user `{}` and the password that the store's URL names", address.user())
        }
        Some(code) if *code == SqlState::INVALID_CATALOG_NAME => {
            "; check the database in the store's URL".to_owned()
        }
        Some(code) if *code == SqlState::TOO_MANY_CONNECTIONS => {
            "; raise max_connections on the server, or lower `connections` in the store's URL".to_owned()
        }
        _ => String::new(),
    };
    let help = if !help.is_empty() {
        help
    } else if text.contains("password missing") {
        "; add password=env:NAME or password=file:PATH to the store's URL".to_owned()
    } else if text.contains("does not support TLS") {
        "; add sslmode=disable to the store's URL if the network between is trusted".to_owned()
    } else if text.contains("not valid for name") {
        "; the server's certificate is for another host: check the host in the store's URL, or check only its authority with \
         sslmode=verify-ca"
            .to_owned()
    } else if text.contains("UnknownIssuer") || text.contains("BadSignature") {
        "; no authority in sslrootcert has signed the server's certificate: check sslrootcert in the store's URL".to_owned()
    } else if text.contains("TLS handshake") {
        "; check sslmode and sslrootcert in the store's URL".to_owned()
    } else if text.contains("Connection refused") || text.contains("failed to lookup address") {
        "; check the host and the port in the store's URL, and that the server runs there".to_owned()
    } else {
        String::new()
    };
    let is_starting = code == Some(&SqlState::CANNOT_CONNECT_NOW);
    Refusal { is_starting, ..Refusal::new(Kind::Unavailable, format!("{text}{help}")) }
}
