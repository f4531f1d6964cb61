//! Connections to the server, reopened when they break.

use super::address::Address;
use super::fault::{Fault, chain};
use super::timeline::Origin;
use futures_util::stream::{self, StreamExt};
use semel_core::store::{Error, Kind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, NoTls, Notification, Row};

/// How long a server that refused a connection is not tried again.
const PAUSE: Duration = Duration::from_millis(250);
const CONNECTING: &str = "connecting to PostgreSQL";

pub(super) type OnNotification = Arc<dyn Fn(&Notification) + Send + Sync>;
pub(super) type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// One connection. Its driver runs in its own task: dropping a query cancels nothing on the network.
pub(super) struct Session {
    client: Client,
    /// The server sent a warning: a commit may have been acknowledged before its standby had it.
    warned: Arc<AtomicBool>,
    origin: Option<Origin>,
    driver: AbortHandle,
    /// Its other end is dropped with the driver.
    ended: watch::Receiver<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Session {
    /// Connects to a server that takes writes and was not replaced.
    pub(super) async fn open(address: &Address, notified: Option<OnNotification>) -> Result<Self, Error> {
        let config = address.config()?;
        let session = Self::connect(address, &config, notified.clone()).await?;
        let Some(timelines) = &address.timelines else { return Ok(session) };
        let Err(cause) = timelines.admit(session.origin) else { return Ok(session) };
        // The driver chose the first host that takes writes, but a later host may be its successor.
        for host in Address::each_host(&config) {
            if let Ok(session) = Self::connect(address, &host, notified.clone()).await
                && timelines.admit(session.origin).is_ok()
            {
                return Ok(session);
            }
        }
        Err(Error::new(Kind::ReadOnly, CONNECTING).because(cause))
    }

    async fn connect(
        address: &Address,
        config: &Config,
        notified: Option<OnNotification>,
    ) -> Result<Self, Error> {
        let connect_timeout = config.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        // The driver's own timeout applies to each host, and to the TCP handshake only.
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(1);
        let connecting = async {
            let connected = match address.tls()? {
                Some(tls) => config
                    .connect(tls)
                    .await
                    .map(|(client, connection)| Self::drive(client, connection, notified)),
                None => config
                    .connect(NoTls)
                    .await
                    .map(|(client, connection)| Self::drive(client, connection, notified)),
            };
            let mut session = connected.map_err(|error| refused(address, &error))?;
            if address.timelines.is_some() {
                session.origin = Origin::of(&session).await;
            }
            Ok(session)
        };
        let silent = |_| {
            Error::new(Kind::Unavailable, CONNECTING)
                .because(format!("the server did not answer within {connect_timeout:?}"))
        };
        timeout(connect_timeout * hosts.max(1), connecting).await.map_err(silent)?
    }

    fn drive<S, T>(client: Client, mut connection: Connection<S, T>, notified: Option<OnNotification>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let warned = Arc::new(AtomicBool::new(false));
        let warn = Arc::clone(&warned);
        let (alive, ended) = watch::channel(());
        let driver = tokio::spawn(async move {
            let _alive = alive;
            let mut messages = stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                match message {
                    AsyncMessage::Notification(notification) => {
                        if let Some(notified) = &notified {
                            notified(&notification);
                        }
                    }
                    AsyncMessage::Notice(notice) if notice.severity() == "WARNING" => {
                        warn.store(true, Ordering::Release);
                    }
                    _ => {}
                }
            }
        });
        Self { client, warned, origin: None, driver: driver.abort_handle(), ended }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Returns when the connection ends.
    pub(super) async fn closed(&self) {
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
    }

    /// Runs one unprepared statement. The answer is complete: the server has committed, and is ready for the
    /// next.
    pub(super) async fn query(
        &self,
        sql: &str,
        parameters: &[Parameter<'_>],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        self.client.query_typed(sql, parameters).await
    }

    /// Runs several statements without an answer.
    pub(super) async fn execute(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(sql).await
    }

    /// Discards earlier warnings.
    pub(super) fn expect_no_warning(&self) {
        self.warned.store(false, Ordering::Release);
    }

    pub(super) fn was_warned(&self) -> bool {
        self.warned.load(Ordering::Acquire)
    }
}

/// Why a connection failed, and which setting to check.
fn refused(address: &Address, error: &tokio_postgres::Error) -> Error {
    let help = match error.code() {
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
    let text = chain(error);
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
    } else if text.contains("session is not writable") || text.contains("does not allow writes") {
        return Error::new(Kind::ReadOnly, CONNECTING).because(
            "none of the hosts takes writes: they are standbys, or set to default_transaction_read_only",
        );
    } else {
        String::new()
    };
    Error::new(Kind::Unavailable, CONNECTING).because(format!("{text}{help}"))
}

/// A connection that is opened when needed and replaced when broken.
pub(super) struct Slot {
    address: Arc<Address>,
    held: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    session: Option<Arc<Session>>,
    /// Why the last attempt failed, remembered briefly.
    refusal: Option<(Kind, String)>,
}

impl Slot {
    pub(super) fn new(address: &Arc<Address>) -> Self {
        Self { address: Arc::clone(address), held: Arc::default() }
    }

    /// A connection that is not known to be broken, to a server that is not known to be replaced. Concurrent
    /// callers share one attempt.
    pub(super) async fn session(&self) -> Result<Arc<Session>, Error> {
        let mut held = self.held.lock().await;
        if let Some(session) = held.session.as_ref().filter(|session| self.is_good(session)) {
            return Ok(Arc::clone(session));
        }
        held.session = None;
        if let Some((kind, cause)) = &held.refusal {
            return Err(Error::new(*kind, CONNECTING).because(cause.clone()));
        }
        match Session::open(&self.address, None).await {
            Ok(session) => {
                let session = Arc::new(session);
                held.session = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(error) => {
                let cause = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
                held.refusal = Some((error.kind(), cause));
                let held = Arc::clone(&self.held);
                tokio::spawn(async move {
                    tokio::time::sleep(PAUSE).await;
                    held.lock().await.refusal = None;
                });
                Err(error)
            }
        }
    }

    fn is_good(&self, session: &Session) -> bool {
        let timelines = self.address.timelines.as_ref();
        !session.is_closed() && !timelines.is_some_and(|timelines| timelines.has_replaced(session.origin))
    }

    /// Drops a connection that broke, hangs, or leads to a server that takes no writes.
    pub(super) async fn discard(&self, session: &Arc<Session>) {
        let mut held = self.held.lock().await;
        if held.session.as_ref().is_some_and(|kept| Arc::ptr_eq(kept, session)) {
            held.session = None;
        }
    }

    /// Runs a statement that changes nothing. A broken connection is replaced once.
    pub(super) async fn read(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let mut tries = 0;
        loop {
            let session = self.session().await.map_err(|error| unconnected(&error))?;
            let asked = timeout(self.address.answer_timeout, session.query(sql, parameters)).await;
            let fault = match asked {
                Ok(Ok(rows)) => return Ok(rows),
                Ok(Err(error)) => {
                    let fault = Fault::of_read(&error);
                    if error.as_db_error().is_some() && !session.is_closed() && fault.kind != Kind::ReadOnly {
                        return Err(fault);
                    }
                    fault
                }
                Err(_) => {
                    self.discard(&session).await;
                    return Err(silent(self.address.answer_timeout, Kind::Unavailable));
                }
            };
            self.discard(&session).await;
            tries += 1;
            if tries == 2 {
                return Err(fault);
            }
        }
    }

    /// Runs a statement that changes something. After an ambiguous error, nothing is repeated.
    pub(super) async fn write(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let session = self.session().await.map_err(|error| unconnected(&error))?;
        session.expect_no_warning();
        let asked = timeout(self.address.answer_timeout, session.query(sql, parameters)).await;
        let fault = match asked {
            // A commit whose wait for the standby an operator cancelled is acknowledged with a warning.
            Ok(Ok(_)) if session.was_warned() => {
                Fault::new(Kind::Ambiguous, "the server sent a warning with its answer")
            }
            Ok(Ok(rows)) => return Ok(rows),
            Ok(Err(error)) => Fault::of_write(&error),
            Err(_) => silent(self.address.answer_timeout, Kind::Ambiguous),
        };
        if matches!(fault.kind, Kind::Ambiguous | Kind::ReadOnly) {
            self.discard(&session).await;
        }
        Err(fault)
    }
}

fn unconnected(error: &Error) -> Fault {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Fault::new(error.kind(), format!("no connection: {cause}"))
}

fn silent(after: Duration, kind: Kind) -> Fault {
    Fault::new(kind, format!("the server did not answer within {after:?}"))
}
