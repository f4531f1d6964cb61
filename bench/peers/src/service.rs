//! One handler behind each of the layers, in a separate process that can be killed.

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use axum_idempotent::{IdempotentLayer, IdempotentOptions};
use fred::clients::Client;
use fred::interfaces::{ClientLike as _, KeysInterface as _};
use fred::types::config::Config;
use ruts::store::Ttl;
use ruts::store::redis::RedisStore;
use ruts::{CookieOptions, Session, SessionLayer};
use semel::Engine;
use semel_http::{Layer, RouteSettings};
use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tower_cookies::CookieManagerLayer;

type Sessions = RedisStore<Client>;
const DAY_SECONDS: i64 = 86_400;
/// As long as a quick payment takes; long enough for duplicates to arrive.
const WORK: Duration = Duration::from_millis(50);
const KEY: &str = "idempotency-key";

/// The layer in front of the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    Semel,
    /// The other crate, keyed by the clients' header.
    OtherByKey,
    /// The other crate with its default: keyed by a hash of the request.
    OtherByHash,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] = [Self::Nothing, Self::Semel, Self::OtherByKey, Self::OtherByHash];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no-layer",
            Self::Semel => "semel",
            Self::OtherByKey => "axum-idempotent-key",
            Self::OtherByHash => "axum-idempotent-hash",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// How often each key took effect.
#[derive(Clone)]
pub(crate) struct Ledger {
    client: Arc<Client>,
    prefix: Arc<str>,
}

impl Ledger {
    pub(crate) async fn connect(url: &str, prefix: &str) -> Result<Self, Box<dyn Error>> {
        let client = Client::new(Config::from_url(url)?, None, None, None);
        client.init().await?;
        Ok(Self { client: Arc::new(client), prefix: prefix.into() })
    }

    async fn pay(&self, kind: &str, key: &str) -> Result<i64, fred::error::Error> {
        self.client.incr(format!("{}:{kind}:{key}", self.prefix)).await
    }

    pub(crate) async fn effects(&self, kind: Kind, key: &str) -> Result<i64, Box<dyn Error>> {
        let count: Option<i64> = self.client.get(format!("{}:{}:{key}", self.prefix, kind.name())).await?;
        Ok(count.unwrap_or(0))
    }
}

/// Removes the keys of this run, except the other crate's sessions, which have random names and expire.
pub(crate) async fn clean(url: &str, prefix: &str) -> Result<(), Box<dyn Error>> {
    let script = "for _,p in ipairs(ARGV) do local c='0' repeat local r=redis.call('SCAN',c,'MATCH',p,'COUNT',1000) c=r[1] \
                  for _,k in ipairs(r[2]) do redis.call('UNLINK',k) end until c=='0' end return 'cleaned'";
    let address = url.strip_prefix("redis://").and_then(|rest| rest.split(['/', '?']).next());
    let mut stream =
        TcpStream::connect(address.ok_or("the server's URL is not like redis://HOST:PORT")?).await?;
    let mut command = String::from("*5\r\n");
    for argument in ["EVAL", script, "0", &format!("{{{prefix}*"), &format!("{prefix}*")] {
        write!(command, "${}\r\n{argument}\r\n", argument.len())?;
    }
    stream.write_all(command.as_bytes()).await?;
    let mut answer = [0; 64];
    let read = stream.read(&mut answer).await?;
    if answer[..read].starts_with(b"$7\r\ncleaned") {
        Ok(())
    } else {
        Err("the keys were not removed".into())
    }
}

#[derive(Clone)]
struct Handler {
    ledger: Ledger,
    kind: &'static str,
}

/// Charges, which takes a while. With `x-hang` it never answers.
async fn charge(State(handler): State<Handler>, headers: HeaderMap, body: Bytes) -> (StatusCode, String) {
    let key = headers.get(KEY).and_then(|key| key.to_str().ok()).unwrap_or("none");
    let Ok(number) = handler.ledger.pay(handler.kind, key).await else {
        return (StatusCode::BAD_GATEWAY, String::new());
    };
    if headers.contains_key("x-hang") {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(WORK).await;
    (StatusCode::CREATED, format!("charge {number} of {}", String::from_utf8_lossy(&body)))
}

/// A handler without cost, so that only the layer is measured.
async fn quick() -> (StatusCode, String) {
    (StatusCode::CREATED, "x".repeat(256))
}

async fn log_in(session: Session<Sessions>) -> StatusCode {
    let Ok(day) = Ttl::new(DAY_SECONDS) else { return StatusCode::INTERNAL_SERVER_ERROR };
    match session.set("user", &"shop", day, None).await {
        Ok(_) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// Serves until it is killed. Prints its address.
pub(crate) async fn serve(kind: Kind, url: &str, prefix: &str) -> Result<(), Box<dyn Error>> {
    let ledger = Ledger::connect(url, prefix).await?;
    let client = Arc::clone(&ledger.client);
    let handler = Handler { ledger, kind: kind.name() };
    let app = Router::new().route("/charge", post(charge)).route("/quick", post(quick)).with_state(handler);
    let app = match kind {
        Kind::Nothing => app,
        Kind::Semel => {
            let store = semel_redis::Store::open(&format!("{url}?prefix={prefix}")).await?;
            let engine = Engine::builder(Arc::new(store)).build().await?;
            app.layer(Layer::new(engine, RouteSettings::default())?)
        }
        Kind::OtherByKey | Kind::OtherByHash => {
            let options = IdempotentOptions::new(DAY_SECONDS);
            let options = if kind == Kind::OtherByKey {
                options.use_idempotency_key_header(Some(KEY), true)
            } else {
                // A retry is recognised although it does not ask the handler to hang.
                options.ignore_header(axum::http::HeaderName::from_static("x-hang"))
            };
            let sessions = Arc::new(RedisStore::new(client).await?);
            let cookie = CookieOptions::build().name("session").max_age(DAY_SECONDS.unsigned_abs()).path("/");
            app.layer(IdempotentLayer::<Sessions>::new(options))
                .route("/login", post(log_in))
                .layer(SessionLayer::new(sessions).with_cookie_options(cookie))
                .layer(CookieManagerLayer::new())
        }
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

/// A running service.
pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Service {
    pub(crate) async fn start(kind: Kind, prefix: &str) -> Result<Self, Box<dyn Error>> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", kind.name(), prefix]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn()?;
        let output = process.stdout.take().ok_or("it has no output")?;
        let line = BufReader::new(output).lines().next_line().await?.ok_or("the service did not start")?;
        Ok(Self { address: line.parse()?, process })
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(mut self) -> Result<(), Box<dyn Error>> {
        Ok(self.process.kill().await?)
    }
}
