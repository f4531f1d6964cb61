//! Scripted servers, and plain requests.

use bytes::Bytes;
use http::{Request, Response};
use semel::{Attempt, Engine, memory};
use semel_http::{Failure, Layer, RouteSettings};
use semel_net::target::Target;
use semel_proxy::upstream::{Body, Options, Upstream};
pub(crate) use semel_test_support::{KEY, Reply};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tower_layer::Layer as _;
use tower_service::Service;

/// A server on plain threads: it runs whether or not the runtime under test does.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    /// `play` is called for every connection, with its number from 1 on.
    pub(crate) fn new(play: impl Fn(usize, &mut Peer) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (connections, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let (counted, recorded, play) = (Arc::clone(&connections), Arc::clone(&requests), Arc::new(play));
        // It runs until the process exits; nothing waits for it.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
                let (play, recorded) = (Arc::clone(&play), Arc::clone(&recorded));
                std::thread::spawn(move || play(number, &mut Peer { stream, requests: recorded }));
            }
        });
        Self { address, connections, requests }
    }

    /// Answers every request with the same bytes.
    pub(crate) fn answering(answer: &'static str) -> Self {
        Self::new(move |_, peer| {
            while peer.request().is_some() {
                peer.say(answer);
            }
        })
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Every complete request, unchanged.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }

    pub(crate) fn upstream(&self) -> Upstream {
        self.upstream_with(Options::default())
    }

    pub(crate) fn upstream_with(&self, options: Options) -> Upstream {
        upstream(&format!("http://{}", self.address), options)
    }
}

/// One connection of a script.
pub(crate) struct Peer {
    pub(crate) stream: TcpStream,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Peer {
    /// The next request, head and body; none at the end.
    pub(crate) fn request(&mut self) -> Option<String> {
        let mut received = self.head()?;
        let length = received.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or(0)];
        self.stream.read_exact(&mut body).ok()?;
        received.push_str(&String::from_utf8_lossy(&body));
        self.requests.lock().expect("no panic").push(received.clone());
        Some(received)
    }

    /// The head of the next request.
    pub(crate) fn head(&mut self) -> Option<String> {
        let mut received = Vec::new();
        let mut byte = [0];
        while !received.ends_with(b"\r\n\r\n") {
            if self.stream.read(&mut byte).ok()? == 0 {
                return None;
            }
            received.push(byte[0]);
        }
        Some(String::from_utf8_lossy(&received).into_owned())
    }

    pub(crate) fn say(&mut self, text: &str) {
        // A client that has disconnected gets no response.
        let _ = self.stream.write_all(text.as_bytes());
    }

    /// The remaining bytes, to the end.
    pub(crate) fn rest(&mut self) -> usize {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        rest.len()
    }

    /// Closes the sending side, but keeps reading.
    pub(crate) fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).expect("it was open");
    }
}

pub(crate) fn upstream(url: &str, options: Options) -> Upstream {
    Upstream::new(Target::parse(url).expect("a URL"), options).expect("an upstream")
}

pub(crate) fn get(path: &str) -> Request<semel_http::Body> {
    let body = semel_http::Body::from(Bytes::new());
    Request::get(path).header("host", "pay.example").body(body).expect("a request")
}

pub(crate) fn post(path: &str, body: impl Into<Bytes>) -> Request<semel_http::Body> {
    let body = semel_http::Body::from(body.into());
    Request::post(path).header("host", "pay.example").body(body).expect("a request")
}

pub(crate) fn keyed(path: &str, key: &str) -> Request<semel_http::Body> {
    let mut request = post(path, "{}");
    request.headers_mut().insert("idempotency-key", key.parse().expect("a key"));
    request
}

pub(crate) async fn head(
    upstream: &Upstream,
    request: Request<semel_http::Body>,
) -> Result<Response<Body>, Failure> {
    upstream.clone().call(request).await
}

pub(crate) async fn ask(upstream: &Upstream, request: Request<semel_http::Body>) -> Result<Reply, Failure> {
    Reply::read(head(upstream, request).await?).await
}

pub(crate) async fn layer() -> Layer {
    let engine = Engine::builder(Arc::new(memory::Store::new())).build().await.expect("an engine");
    Layer::new(engine, RouteSettings::default()).expect("terms")
}

/// The response through Semel's layer in front of `upstream`.
pub(crate) async fn through(layer: &Layer, upstream: &Upstream, request: Request<semel_http::Body>) -> Reply {
    let response = layer.layer(upstream.clone()).call(request).await.expect("the layer answers");
    Reply::read(response).await.expect("a complete response")
}

/// An attempt whose operation has already ended.
pub(crate) async fn lost_attempt() -> Attempt {
    #[derive(Clone)]
    struct AttemptCapture(Arc<Mutex<Option<Attempt>>>);
    impl Service<Request<semel_http::Body>> for AttemptCapture {
        type Response = Response<semel_http::Body>;
        type Error = std::convert::Infallible;
        type Future = std::future::Ready<Result<Self::Response, Self::Error>>;
        fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Self::Error>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn call(&mut self, request: Request<semel_http::Body>) -> Self::Future {
            *self.0.lock().expect("no panic") = request.extensions().get::<Attempt>().cloned();
            std::future::ready(Ok(Response::new(semel_http::Body::from(Bytes::new()))))
        }
    }
    let grab = AttemptCapture(Arc::new(Mutex::new(None)));
    let answered = layer().await.layer(grab.clone()).call(keyed("/charges", KEY)).await;
    answered.expect("the layer answers");
    let attempt = grab.0.lock().expect("no panic").take();
    let attempt = attempt.expect("it was protected");
    attempt.check().expect_err("it is over");
    attempt
}
