//! A real server over TCP, a plain client, and handlers that count their calls.

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use semel::core::store::Store;
use semel::{Engine, memory};
use semel_http::{EventKind, Layer, RouteSettings};
use semel_sql::sqlite;
pub(crate) use semel_test_support::{KEY, Reply};
use semel_test_support::{ScratchDir, client};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::{TcpListener, TcpStream};

/// How often a handler was called.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicU32>);

impl Calls {
    /// Counts one more call and returns its number.
    pub(crate) fn one(&self) -> u32 {
        self.0.fetch_add(1, Ordering::SeqCst) + 1
    }

    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
    pub(crate) calls: Calls,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Runs `answer` on every path under the layer, and counts the calls.
pub(crate) fn app<A, F>(layer: Layer, calls: &Calls, answer: A) -> Router
where
    A: Fn(u32, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let calls = calls.clone();
    let handler = move |request: Incoming| answer(calls.one(), request);
    Router::new().route("/{*path}", any(handler)).layer(layer)
}

/// A handler that charges: its answer contains the number of the call.
pub(crate) async fn charged(call: u32, _: Incoming) -> Response {
    (StatusCode::CREATED, [("location", "/charges/7")], format!("charge {call}")).into_response()
}

impl Server {
    pub(crate) async fn of(router: Router, calls: Calls) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let task = tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
        Self { address, task, calls }
    }

    /// A server on a memory store.
    pub(crate) async fn new<A, F>(settings: RouteSettings, answer: A) -> Self
    where
        A: Fn(u32, Incoming) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        Self::under(Layer::new(engine().await, settings).expect("valid"), answer).await
    }

    pub(crate) async fn under<A, F>(layer: Layer, answer: A) -> Self
    where
        A: Fn(u32, Incoming) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        let calls = Calls::default();
        Self::of(app(layer, &calls, answer), calls).await
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }

    /// Sends a request on its own connection.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Reply
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<semel_http::BoxError>,
    {
        let response = client::request_by(self.connect().await, request).await.expect("a response");
        Reply::read(response).await.expect("a complete body")
    }

    /// Sends a JSON charge with the usual key.
    pub(crate) async fn charge(&self, amount: u32) -> Reply {
        self.send(post("/charges").json(&format!("{{\"amount\":{amount}}}"))).await
    }
}

/// A POST with the usual key.
pub(crate) fn post(path: &str) -> http::request::Builder {
    request("POST", path).header("idempotency-key", KEY)
}

pub(crate) fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(path).header("host", "test").header("te", "trailers")
}

pub(crate) trait Bodies {
    fn json(self, text: &str) -> Request<Full<Bytes>>;
    fn bytes(self, bytes: impl Into<Bytes>) -> Request<Full<Bytes>>;
    fn empty(self) -> Request<Full<Bytes>>;
}

impl Bodies for http::request::Builder {
    fn json(self, text: &str) -> Request<Full<Bytes>> {
        self.header("content-type", "application/json").bytes(text.to_owned())
    }

    fn bytes(self, bytes: impl Into<Bytes>) -> Request<Full<Bytes>> {
        self.body(Full::new(bytes.into())).expect("a request")
    }

    fn empty(self) -> Request<Full<Bytes>> {
        self.bytes(Bytes::new())
    }
}

pub(crate) async fn engine() -> Engine {
    engine_on(Arc::new(memory::Store::new())).await
}

pub(crate) async fn engine_on(store: Arc<dyn Store>) -> Engine {
    Engine::builder(store).build().await.expect("the store answers")
}

/// A new SQLite store.
pub(crate) struct Scratch(ScratchDir);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        Self(ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name))
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let file = self.0.join("semel.db");
        Arc::new(sqlite::Store::open(file, sqlite::Options::default()).expect("the store opens"))
    }
}

/// Work that a test can hold and release.
#[derive(Clone)]
pub(crate) struct Gate {
    started: Arc<tokio::sync::Semaphore>,
    open: Arc<tokio::sync::Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            started: Arc::new(tokio::sync::Semaphore::new(0)),
            open: Arc::new(tokio::sync::Semaphore::new(0)),
        }
    }

    /// Reports that the work has started, and waits.
    pub(crate) async fn pass(&self) {
        self.started.add_permits(1);
        self.open.acquire().await.expect("never closed").forget();
    }

    /// Waits until the work has started.
    pub(crate) async fn started(&self) {
        self.started.acquire().await.expect("never closed").forget();
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}

/// The reports of a layer about its requests, one by one.
pub(crate) struct Observed(tokio::sync::mpsc::UnboundedReceiver<(String, EventKind)>);

impl Observed {
    /// The layer with an observer.
    pub(crate) fn over(layer: Layer) -> (Layer, Self) {
        let (report, reports) = tokio::sync::mpsc::unbounded_channel();
        let observer = move |event: &semel_http::Event<'_>| {
            // The test may be over.
            drop(report.send((event.operation.to_owned(), event.what)));
        };
        (layer.observer(observer), Self(reports))
    }

    /// The outcome of the next request.
    pub(crate) async fn next(&mut self) -> EventKind {
        self.next_of().await.1
    }

    /// The same with its operation.
    pub(crate) async fn next_of(&mut self) -> (String, EventKind) {
        self.0.recv().await.expect("a report")
    }
}

/// A handler that reads its request and charges.
pub(crate) async fn reads(call: u32, request: Incoming) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let request = Incoming::from_parts(parts, axum::body::Body::from(bytes));
    charged(call, request).await
}

/// A store that can be disconnected.
pub(crate) fn cuttable() -> (Arc<dyn Store>, Arc<std::sync::atomic::AtomicBool>) {
    use semel_testkit::faults::{Call, Fault, Faulty};
    let is_cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    let plan = move |_: &Call| if cut.load(Ordering::SeqCst) { Fault::FailBefore } else { Fault::Pass };
    (Arc::new(Faulty::new(Arc::new(memory::Store::new()), plan)), is_cut)
}
