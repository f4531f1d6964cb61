//! A real server over TCP, a client without opinions, and handlers to count.

use axum::Router;
use axum::extract::Request as Incoming;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use semel::core::store::Store;
use semel::{Engine, memory};
use semel_http::{Layer, Terms, What};
use semel_sql::sqlite;
use semel_test_support::ScratchDir;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

/// How often a handler was called.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<AtomicU32>);

impl Calls {
    /// Counts one more, and tells which it is.
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

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("ASCII"))
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }

    /// The members of a problem, after a look at what every problem must and must not have.
    pub(crate) fn problem(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert!(!self.text().contains(KEY), "the key is in the problem");
        let problem: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        let code = problem["code"].as_str().expect("a code");
        assert_eq!(problem["type"], format!("/.well-known/idempotency#{code}"));
        assert_eq!(problem["status"], self.status);
        assert!(
            problem["title"].is_string()
                && problem["detail"].is_string()
                && problem["retryable"].is_boolean()
        );
        assert_eq!(problem["operationId"].as_str(), self.header("operation-id"));
        problem
    }

    /// The status, code and retryability of a problem.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str, retryable: bool) {
        let problem = self.problem();
        let told = (self.status, problem["code"].as_str().expect("a code"), problem["retryable"].as_bool());
        assert_eq!(told, (status, code, Some(retryable)), "{problem}");
    }
}

/// `answer` on every path, under the layer, counted.
pub(crate) fn app<A, F>(layer: Layer, calls: &Calls, answer: A) -> Router
where
    A: Fn(u32, Incoming) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = Response> + Send + 'static,
{
    let calls = calls.clone();
    let handler = move |request: Incoming| answer(calls.one(), request);
    Router::new().route("/{*path}", any(handler)).layer(layer)
}

/// A handler that charges: its answer tells which call it was.
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
    pub(crate) async fn new<A, F>(terms: Terms, answer: A) -> Self
    where
        A: Fn(u32, Incoming) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = Response> + Send + 'static,
    {
        Self::under(Layer::new(engine().await, terms).expect("fit for use"), answer).await
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

    /// Sends a request on a connection of its own.
    pub(crate) async fn send<B>(&self, request: Request<B>) -> Reply
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<semel_http::BoxError>,
    {
        let stream = TokioIo::new(self.connect().await);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await.expect("HTTP");
        tokio::spawn(connection);
        let response = sender.send_request(request).await.expect("a response");
        let (parts, body) = response.into_parts();
        let body = body.collect().await.expect("a whole body");
        let trailers = body.trailers().cloned();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes(), trailers }
    }

    /// Sends a JSON charge under the usual key.
    pub(crate) async fn charge(&self, amount: u32) -> Reply {
        self.send(post("/charges").json(&format!("{{\"amount\":{amount}}}"))).await
    }
}

/// A POST under the usual key.
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

/// A SQLite store of its own.
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

/// Work that a test lets go on.
#[derive(Clone)]
pub(crate) struct Gate {
    begun: Arc<tokio::sync::Semaphore>,
    open: Arc<tokio::sync::Semaphore>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self {
            begun: Arc::new(tokio::sync::Semaphore::new(0)),
            open: Arc::new(tokio::sync::Semaphore::new(0)),
        }
    }

    /// What the work does: tells that it began, and waits.
    pub(crate) async fn pass(&self) {
        self.begun.add_permits(1);
        self.open.acquire().await.expect("never closed").forget();
    }

    /// Waits until the work has begun.
    pub(crate) async fn begun(&self) {
        self.begun.acquire().await.expect("never closed").forget();
    }

    pub(crate) fn open(&self) {
        self.open.add_permits(1);
    }
}

/// What a layer tells of its requests, one by one.
pub(crate) struct Watching(tokio::sync::mpsc::UnboundedReceiver<(String, What)>);

impl Watching {
    /// The layer with somebody who watches it.
    pub(crate) fn over(layer: Layer) -> (Layer, Self) {
        let (tell, told) = tokio::sync::mpsc::unbounded_channel();
        let observer = move |event: &semel_http::Event<'_>| {
            // The test may be over.
            drop(tell.send((event.operation.to_owned(), event.what)));
        };
        (layer.observer(observer), Self(told))
    }

    /// What became of the next request.
    pub(crate) async fn next(&mut self) -> What {
        self.next_of().await.1
    }

    /// The same with its operation.
    pub(crate) async fn next_of(&mut self) -> (String, What) {
        self.0.recv().await.expect("somebody tells")
    }
}

/// A handler that reads what it gets, and charges.
pub(crate) async fn reads(call: u32, request: Incoming) -> Response {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let request = Incoming::from_parts(parts, axum::body::Body::from(bytes));
    charged(call, request).await
}

/// A store that can be cut off.
pub(crate) fn cuttable() -> (Arc<dyn Store>, Arc<std::sync::atomic::AtomicBool>) {
    use semel_testkit::faults::{Call, Fault, Faulty};
    let is_cut = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    let plan = move |_: &Call| if cut.load(Ordering::SeqCst) { Fault::FailBefore } else { Fault::Pass };
    (Arc::new(Faulty::new(Arc::new(memory::Store::new()), plan)), is_cut)
}
