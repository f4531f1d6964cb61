//! An engine on a store in its own folder, and its admin address, with a fake clock.

use super::client::{AdminRequest, Reply};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use semel::core::id::OperationId;
use semel::core::record::Record;
use semel::core::store::{Clock as _, Store};
use semel::core::time::Time;
use semel::sealing::{KeyRing, SealingKey};
use semel::{Clock, Engine, Event, Observer, Settings, SystemClock, SystemRandom, secrets};
use semel_admin::shadow::Tally;
use semel_admin::{self as admin, Admin, Options, Peer, ResponseLimits, Role, Sources, Token, TokenHash};
use semel_sql::sqlite;
use semel_test_support::ScratchDir;
use semel_testkit::FakeClock;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tower_service::Service;

pub(crate) struct World {
    pub(crate) clock: FakeClock,
    pub(crate) engine: Engine,
    pub(crate) address: SocketAddr,
    pub(crate) draining: Arc<AtomicBool>,
    pub(crate) folder: ScratchDir,
    store: Arc<sqlite::Store>,
    options: Options,
    conflicts: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

/// Counts the reports that contradict their record.
struct Conflicts(Arc<AtomicUsize>);

impl Observer for Conflicts {
    fn observe(&self, event: &Event<'_>) {
        if matches!(event, Event::Fenced { differs: true, .. }) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl World {
    /// Starts without tokens.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let clock = FakeClock::at(SystemClock.now());
        let mut options = Options { address: ([127, 0, 0, 1], 0).into(), ..Options::default() };
        change(&mut options);
        Self::open(ScratchDir::new("admin"), clock, options, None).await
    }

    /// Starts with sealed outcomes.
    pub(crate) async fn sealed(change: impl FnOnce(&mut Options)) -> Self {
        let clock = FakeClock::at(SystemClock.now());
        let mut options = Options { address: ([127, 0, 0, 1], 0).into(), ..Options::default() };
        change(&mut options);
        let key = SealingKey::new("2026-11", &[7; 32]).expect("32 bytes");
        Self::open(ScratchDir::new("admin"), clock, options, Some(KeyRing::new(key))).await
    }

    async fn open(folder: ScratchDir, clock: FakeClock, options: Options, ring: Option<KeyRing>) -> Self {
        let store_options = sqlite::Options::default().clock(Arc::new(clock.clone()));
        let store = Arc::new(sqlite::Store::open(folder.join("store.db"), store_options).expect("a store"));
        let conflicts = Arc::<AtomicUsize>::default();
        let engine = engine(store.clone(), Arc::new(clock.clone()), ring, Arc::clone(&conflicts)).await;
        let draining = Arc::new(AtomicBool::new(false));
        let admin = admin::service(engine.clone(), options.clone(), sources(&clock, &draining)).expect("fit");
        let (address, serving) = serve(options.address, admin).await;
        Self { clock, engine, address, draining, folder, store, options, conflicts, serving }
    }

    /// Restarts the process on the same store.
    pub(crate) async fn restarted(self) -> Self {
        self.restarted_with(|_| {}).await
    }

    /// Restarts with other options.
    pub(crate) async fn restarted_with(mut self, change: impl FnOnce(&mut Options)) -> Self {
        change(&mut self.options);
        self.serving.abort();
        self.store.close().await;
        let folder = std::mem::replace(&mut self.folder, ScratchDir::new("admin"));
        Self::open(folder, self.clock.clone(), self.options.clone(), None).await
    }

    /// Makes the store unavailable while the process runs.
    pub(crate) async fn lose_store(&self) {
        self.store.close().await;
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> AdminRequest {
        AdminRequest::new(self.address, method, path)
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.ask("GET", path).send().await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path).json(body).send().await
    }

    /// Claims an attempt for `key`, with the members in `more`.
    pub(crate) async fn claimed(&self, key: &str, more: &Value) -> Attempt {
        let reply = self.post("/v1/claims", &claim(key, more)).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        let claimed = reply.json();
        let text = |name: &str| claimed[name].as_str().expect("text").to_owned();
        Attempt { id: text("operationId"), token: text("token") }
    }

    pub(crate) async fn record(&self, id: &str) -> Record {
        let id: OperationId = id.parse().expect("an operation id");
        self.engine.look_up(id).await.expect("a record").record
    }

    pub(crate) async fn state(&self, id: &str) -> &'static str {
        self.record(id).await.state_name().as_str()
    }

    /// How many reports contradicted their record.
    pub(crate) fn conflicts(&self) -> usize {
        self.conflicts.load(Ordering::SeqCst)
    }

    pub(crate) fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }

    /// Advances the clock to each next wake-up until `task` has ended. No time passes while the store works.
    pub(crate) async fn pass_until<T>(&self, task: tokio::task::JoinHandle<T>) -> T {
        while !task.is_finished() {
            match self.clock.next_wake() {
                Some(pause) if pause <= Duration::from_secs(1) => self.clock.advance(pause),
                _ => {}
            }
            tokio::task::yield_now().await;
        }
        task.await.expect("no panic")
    }

    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }
}

/// An attempt that a worker holds.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Attempt {
    pub(crate) fn at(&self, step: &str) -> String {
        format!("/v1/claims/{}/{step}", self.id)
    }

    /// A body with the attempt's token.
    pub(crate) fn with(&self, more: &Value) -> Value {
        merged(json!({ "token": self.token }), more)
    }
}

/// The body of a claim request.
pub(crate) fn claim(key: &str, more: &Value) -> Value {
    let claim = json!({ "operation": "charge", "key": key });
    let is_about = ["payload", "payloadBase64", "payload_base64", "fingerprint"]
        .iter()
        .any(|name| more.get(name).is_some());
    let claim = if is_about { claim } else { merged(claim, &json!({ "payload": { "amount": 5 } })) };
    merged(claim, more)
}

pub(crate) fn merged(mut into: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().expect("an object") {
        into[name] = value.clone();
    }
    into
}

/// A token with `roles`. The secret to send is its name with `-secret`.
pub(crate) fn token(name: &str, roles: &[Role]) -> Token {
    Token { name: name.into(), hash: TokenHash::of(format!("{name}-secret")), roles: roles.to_vec() }
}

async fn engine(
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ring: Option<KeyRing>,
    conflicts: Arc<AtomicUsize>,
) -> Engine {
    let mut settings = Settings::default();
    // The clock is fake, and no test here is about a slow store.
    settings.request_timeout = settings.store_timeout;
    settings.sweep.every = Duration::ZERO;
    // All nodes share one trusted clock, so leases and outcomes expire exactly on time.
    (settings.clock.skew, settings.clock.settle) = (Duration::ZERO, Duration::ZERO);
    // The clock jumps by hours; no secret is replaced in the meantime.
    let hour = Duration::from_hours(1);
    let refresh = secrets::RefreshSettings { refresh_every: hour, good_for: 10_000 * hour, in_flight: hour };
    let spawn = Arc::new(tokio::runtime::Handle::current());
    let builder = Engine::builder(store).settings(settings).secret_refresh(refresh).name("node-1");
    let builder = builder.observer(Conflicts(conflicts));
    let builder = match ring {
        Some(ring) => builder.sealing(ring),
        None => builder,
    };
    builder.on(clock, Arc::new(SystemRandom), spawn).build().await.expect("the store answers")
}

fn sources(clock: &FakeClock, draining: &Arc<AtomicBool>) -> Sources {
    let draining = Arc::clone(draining);
    Sources {
        metrics: Arc::new(|| "idempotency_unknown{operation=\"charge\"} 1\n".into()),
        is_draining: Arc::new(move || draining.load(Ordering::SeqCst)),
        shadow: Tally::new(Time::from_millis(0)),
        clock: Arc::new(clock.clone()),
        label: Arc::new(str::to_owned),
        response_limits: Arc::new(|_| ResponseLimits::default()),
        refused: Arc::new(|_| {}),
        knows_probes: true,
    }
}

async fn serve(address: SocketAddr, admin: Admin) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind(address).await.expect("a port");
    let local = listener.local_addr().expect("bound");
    let serving = tokio::spawn(async move {
        while let Ok((stream, address)) = listener.accept().await {
            let admin = admin.clone();
            let answer = service_fn(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(Peer { address, local });
                admin.clone().call(request)
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    });
    (local, serving)
}
