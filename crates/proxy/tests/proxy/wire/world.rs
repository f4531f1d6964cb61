//! A listening socket, with a service that records what reaches it.

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use semel_proxy::listen::{self, Bound, Drained, Options};
pub(crate) use semel_test_support::wait::within;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// What the service saw of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) line: String,
    /// `None` if it was cut off.
    pub(crate) body: Option<Vec<u8>>,
}

/// Answers every request with a description of it. `/hang` waits for [`Service::release`], `/panic` panics, `/unread`
/// does not read its body, `/big` answers 32 MiB, `/echo` echoes its body as it arrives, `/tunnel` and CONNECT grant
/// the upgrade and echo.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    seen: Arc<Mutex<Vec<Seen>>>,
    pub(crate) arrived: Arc<Notify>,
    released: Arc<Notify>,
    pub(crate) heads: Arc<Mutex<Vec<http::request::Parts>>>,
    pub(crate) broken: Arc<Notify>,
}

impl Service {
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| seen.line).collect()
    }

    pub(crate) fn release(&self) {
        self.released.notify_one();
    }

    async fn answer(self, request: Request<listen::Body>) -> Response<semel_http::Body> {
        let line = format!("{} {}", request.method(), request.uri());
        let path = request.uri().path().to_owned();
        let (parts, body) = request.into_parts();
        // An upgrade handle would keep the connection open, and other extensions the request's slot.
        let mut kept = parts.clone();
        kept.extensions.clear();
        if let Some(peer) = parts.extensions.get::<listen::Peer>() {
            kept.extensions.insert(*peer);
        }
        if let Some(certificate) = parts.extensions.get::<listen::ClientCertificate>() {
            kept.extensions.insert(certificate.clone());
        }
        self.heads.lock().expect("not poisoned").push(kept);
        if path == "/echo" {
            return Response::new(semel_http::Body::live(body));
        }
        let body = if path == "/unread" {
            Some(Vec::new())
        } else {
            body.collect().await.ok().map(|body| body.to_bytes().to_vec())
        };
        let text = format!("{line} {}", String::from_utf8_lossy(body.as_deref().unwrap_or(b"(broken)")));
        let is_broken = body.is_none();
        self.seen.lock().expect("not poisoned").push(Seen { line, body });
        self.arrived.notify_one();
        if is_broken {
            self.broken.notify_one();
            return response(StatusCode::BAD_REQUEST, text);
        }
        match path.as_str() {
            "/hang" => self.released.notified().await,
            "/panic" => panic!("as the test wants it"),
            "/big" => return response(StatusCode::OK, vec![b'x'; 32 << 20]),
            _ => {}
        }
        if path == "/tunnel" || parts.method == http::Method::CONNECT {
            let status = if path == "/tunnel" { StatusCode::SWITCHING_PROTOCOLS } else { StatusCode::OK };
            tokio::spawn(echo(hyper::upgrade::on(Request::from_parts(parts, ()))));
            return response(status, Vec::new());
        }
        response(StatusCode::OK, text)
    }
}

async fn echo(upgrade: hyper::upgrade::OnUpgrade) {
    let Ok(upgraded) = upgrade.await else { return };
    let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
    let _ = tokio::io::copy(&mut reader, &mut writer).await;
}

fn response(status: StatusCode, body: impl Into<Bytes>) -> Response<semel_http::Body> {
    let mut response = Response::new(semel_http::Body::from(body.into()));
    *response.status_mut() = status;
    response
}

impl tower_service::Service<Request<listen::Body>> for Service {
    type Response = Response<semel_http::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<listen::Body>) -> Self::Future {
        let this = self.clone();
        Box::pin(async move { Ok(this.answer(request).await) })
    }
}

/// A listening gateway.
pub(crate) struct World {
    pub(crate) address: SocketAddr,
    pub(crate) service: Service,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Drained>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(options()).await
    }

    pub(crate) async fn with(options: Options) -> Self {
        let bound = Bound::bind(&options).await.expect("a free port");
        let (address, service) = (bound.address(), Service::default());
        let (stop, stopped) = oneshot::channel();
        let serving = bound.serve(service.clone(), async {
            let _ = stopped.await;
        });
        Self { address, service, stop, serving: tokio::spawn(serving) }
    }

    pub(crate) async fn connect(&self) -> Client {
        Client { tcp: TcpStream::connect(self.address).await.expect("it listens") }
    }

    /// Sends all of `bytes` on their own connection, and reads until the gateway closes it.
    pub(crate) async fn exchange(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.connect().await;
        client.send(bytes).await;
        client.rest().await
    }

    /// Starts the shutdown; the returned value resolves when it is complete.
    pub(crate) fn stop(self) -> impl Future<Output = Drained> {
        self.stop.send(()).expect("it serves");
        async { within(self.serving).await.expect("it ends without an error") }
    }
}

pub(crate) fn options() -> Options {
    Options { address: SocketAddr::from(([127, 0, 0, 1], 0)), ..Options::default() }
}

/// A scripted client.
pub(crate) struct Client {
    pub(crate) tcp: TcpStream,
}

impl Client {
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.tcp.write_all(bytes.as_ref()).await.expect("sent");
    }

    /// Everything up to the end.
    pub(crate) async fn rest(&mut self) -> String {
        let mut bytes = Vec::new();
        within(self.tcp.read_to_end(&mut bytes)).await.expect("a clean close");
        String::from_utf8(bytes).expect("text")
    }

    /// Reads until `end` arrives.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let byte = within(self.tcp.read_u8()).await;
            bytes.push(byte.unwrap_or_else(|_| panic!("{:?} ended", String::from_utf8_lossy(&bytes))));
        }
        String::from_utf8(bytes).expect("text")
    }
}

/// A request without a body.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}
