//! A payment service, and the layer on SQLite in front of it.

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use semel::Engine;
use semel_gateway::demo::payments::{self, Payments};
use semel_gateway::demo::story::{Pace, Stage};
use semel_http::{Body, Failure, Layer, RouteSettings};
use semel_sql::sqlite;
use semel_test_support::{Reply, ScratchDir, client};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use tokio::net::{TcpListener, TcpStream};
use tower_layer::Layer as _;
use tower_service::Service as _;

/// Everything that the story needs; stopped on drop.
pub(crate) struct World {
    pub(crate) payments: Payments,
    pub(crate) gateway: SocketAddr,
    posts: Arc<AtomicU32>,
    engine: Engine,
    serving: tokio::task::JoinHandle<()>,
    _directory: ScratchDir,
}

impl World {
    /// With the layer in front of the payment service.
    pub(crate) async fn new() -> Self {
        Self::with(|engine| {
            Layer::new(engine, RouteSettings::default()).expect("valid settings").publishing("")
        })
        .await
    }

    pub(crate) async fn with(layer: impl FnOnce(Engine) -> Layer) -> Self {
        let directory = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "demo");
        let store = sqlite::Store::open(directory.join("semel.db"), sqlite::Options::default());
        let engine = Engine::builder(Arc::new(store.expect("the store opens"))).build().await;
        let engine = engine.expect("the store answers");
        let payments = payments::start().await.expect("a port");
        let guarded = layer(engine.clone()).layer(Forward(payments.address()));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let gateway = listener.local_addr().expect("an address");
        let posts = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&posts);
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                let (guarded, counter) = (guarded.clone(), Arc::clone(&counter));
                let service = service_fn(move |request: Request<Incoming>| {
                    counter.fetch_add(u32::from(request.method() == Method::POST), Ordering::Relaxed);
                    guarded.clone().call(request)
                });
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { payments, gateway, posts, engine, serving, _directory: directory }
    }

    /// The POST requests that arrived at the gateway.
    pub(crate) fn posts(&self) -> u32 {
        self.posts.load(Ordering::Relaxed)
    }

    pub(crate) fn stage(&self) -> Stage {
        Stage {
            program: "semel".to_owned(),
            gateway: self.gateway,
            admin: None,
            upstream: self.payments.address(),
            ledger: self.payments.ledger().clone(),
            engine: self.engine.clone(),
            pace: Pace::BRISK,
            has_colour: false,
            keeps_running: false,
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Forwards requests, each over its own connection.
#[derive(Clone)]
struct Forward(SocketAddr);

impl tower_service::Service<Request<Body>> for Forward {
    type Response = Response<Incoming>;
    type Error = Failure;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Incoming>, Failure>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let to = self.0;
        Box::pin(async move {
            let stream = TcpStream::connect(to).await.map_err(|_| Failure::Unreachable)?;
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(|_| Failure::Unreachable)?;
            tokio::spawn(connection);
            sender.send_request(request).await.map_err(|_| Failure::Broken)
        })
    }
}

/// Sends a request on its own connection; `None` if it was closed without a response.
pub(crate) async fn send(
    to: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Option<Reply> {
    let stream = TcpStream::connect(to).await.expect("a connection");
    let mut request = Request::builder().method(method).uri(path).header("host", to.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).expect("a request");
    let response = client::request_by(stream, request).await.ok()?;
    Some(Reply::read(response).await.expect("a complete body"))
}

pub(crate) async fn get(to: SocketAddr, path: &str) -> Reply {
    send(to, "GET", path, &[], "").await.expect("an answer")
}
