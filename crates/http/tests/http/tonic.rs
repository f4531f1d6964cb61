//! gRPC in practice: a tonic client and a tonic server over HTTP/2, with the layer in between.

use super::world::{Calls, Gate, KEY, engine, engine_on};
use bytes::{Buf, BufMut, Bytes};
use semel::memory;
use semel_http::{KeyRule, Layer, RouteSettings};
use semel_testkit::faults::{Call, Fault, Faulty};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

/// Messages as plain bytes.
#[derive(Clone, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// A service's answer to a message, given the number of the call.
type Answer = fn(u32, &[u8]) -> Result<&'static str, Status>;

/// A service of payments.
#[derive(Clone)]
struct Payments {
    calls: Calls,
    gate: Option<Gate>,
    answer: Answer,
}

impl tonic::server::NamedService for Payments {
    const NAME: &'static str = "pay.Payments";
}

impl tower::Service<http::Request<tonic::body::Body>> for Payments {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let Self { calls, gate, answer } = self.clone();
        let handler = tower::service_fn(move |request: Request<Bytes>| {
            let (calls, gate) = (calls.clone(), gate.clone());
            async move {
                let call = calls.one();
                assert!(request.extensions().get::<semel::Attempt>().is_some(), "the attempt is passed on");
                if let Some(gate) = gate {
                    gate.pass().await;
                }
                let mut response =
                    Response::new(Bytes::from_static(answer(call, request.get_ref())?.as_bytes()));
                response.metadata_mut().insert("x-own", "kept".parse().expect("a value"));
                Ok::<_, Status>(response)
            }
        });
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(handler, request).await) })
    }
}

/// A server that runs until it is dropped, and a client of it.
struct World {
    task: tokio::task::JoinHandle<()>,
    channel: Channel,
    calls: Calls,
}

impl Drop for World {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl World {
    async fn new(layer: Layer, gate: Option<Gate>, answer: Answer) -> Self {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = incoming.local_addr().expect("an address");
        let calls = Calls::default();
        let payments = Payments { calls: calls.clone(), gate, answer };
        let server = Server::builder().layer(layer).add_service(payments);
        let task =
            tokio::spawn(async move { server.serve_with_incoming(incoming).await.expect("it serves") });
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an endpoint");
        Self { task, channel: endpoint.connect().await.expect("a connection"), calls }
    }

    async fn under(settings: RouteSettings, answer: Answer) -> Self {
        Self::new(Layer::new(engine().await, settings).expect("valid"), None, answer).await
    }

    async fn charge(&self, key: Option<&str>, message: &'static str) -> Result<Response<Bytes>, Status> {
        let mut client = tonic::client::Grpc::new(self.channel.clone());
        client.ready().await.expect("a connection");
        let mut request = Request::new(Bytes::from_static(message.as_bytes()));
        if let Some(key) = key {
            request.metadata_mut().insert("idempotency-key", key.parse().expect("a value"));
        }
        client.unary(request, "/pay.Payments/Charge".parse().expect("a path"), Raw).await
    }
}

fn metadata<'a>(status: &'a Status, name: &str) -> &'a str {
    status.metadata().get(name).unwrap_or_else(|| panic!("no {name}")).to_str().expect("ASCII")
}

fn code(status: &Status) -> (Code, &str) {
    (status.code(), metadata(status, "code"))
}

#[tokio::test]
async fn the_second_call_replays_message_metadata_and_status() {
    let world = World::under(RouteSettings::default(), |_, message| {
        assert_eq!(message, b"5 euros");
        Ok("charged")
    })
    .await;
    for replayed in [None, Some("true")] {
        let response = world.charge(Some(KEY), "5 euros").await.expect("charged");
        let metadata = |name| response.metadata().get(name).map(|value| value.to_str().expect("ASCII"));
        assert_eq!((&response.get_ref()[..], metadata("x-own")), (&b"charged"[..], Some("kept")));
        assert_eq!(metadata("idempotency-replayed"), replayed);
        assert!(metadata("operation-id").is_some() && metadata("idempotency-expires").is_some());
        assert_eq!(metadata("grpc-status"), Some("0"), "in the trailers");
    }
    assert_eq!(world.calls.count(), 1);
}

#[tokio::test]
async fn a_refusal_of_the_service_is_replayed_with_its_details() {
    let world = World::under(RouteSettings::default(), |_, _| {
        let mut status =
            Status::with_details(Code::NotFound, "no account – 7", Bytes::from_static(b"\xff\0"));
        status.metadata_mut().insert("x-reason", "closed".parse().expect("a value"));
        Err(status)
    })
    .await;
    for replayed in [false, true] {
        let status = world.charge(Some(KEY), "x").await.expect_err("refused");
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no account – 7"));
        assert_eq!((status.details(), metadata(&status, "x-reason")), (&b"\xff\0"[..], "closed"));
        assert_eq!(status.metadata().contains_key("idempotency-replayed"), replayed);
    }
    assert_eq!(world.calls.count(), 1);
}

#[tokio::test]
async fn refusals_of_the_layer_are_statuses_that_a_client_understands() {
    let settings = RouteSettings { key: KeyRule::Required, ..RouteSettings::default() };
    let world = World::under(settings, |_, message| match message {
        b"fail" => Err(Status::internal("after the effect, perhaps")),
        _ => Ok("charged"),
    })
    .await;
    let missing = world.charge(None, "x").await.expect_err("refused");
    assert_eq!(code(&missing), (Code::InvalidArgument, "MISSING_IDEMPOTENCY_KEY"));
    let short = world.charge(Some("short"), "x").await.expect_err("refused");
    assert_eq!(code(&short), (Code::InvalidArgument, "INVALID_IDEMPOTENCY_KEY"));
    assert_eq!(world.calls.count(), 0);

    world.charge(Some(KEY), "x").await.expect("charged");
    let other = world.charge(Some(KEY), "y").await.expect_err("refused");
    let reused = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
    assert_eq!(code(&other), (Code::FailedPrecondition, reused));
    assert!(other.message().contains("a different request") && other.metadata().contains_key("operation-id"));

    let another = "another-key-than-before-7";
    assert_eq!(world.charge(Some(another), "fail").await.expect_err("failed").code(), Code::Internal);
    let unknown = world.charge(Some(another), "fail").await.expect_err("refused");
    assert_eq!(code(&unknown), (Code::Unknown, "IDEMPOTENCY_OUTCOME_UNKNOWN"));
    assert_eq!(world.calls.count(), 2);
}

#[tokio::test]
async fn a_duplicate_of_a_running_call_is_asked_to_retry() {
    let gate = Gate::new();
    let settings = RouteSettings { wait: Some(Duration::ZERO), ..RouteSettings::default() };
    let layer = Layer::new(engine().await, settings).expect("valid");
    let world = Arc::new(World::new(layer, Some(gate.clone()), |_, _| Ok("charged")).await);
    let first = tokio::spawn({
        let world = Arc::clone(&world);
        async move { world.charge(Some(KEY), "x").await }
    });
    gate.started().await;
    let duplicate = world.charge(Some(KEY), "x").await.expect_err("refused");
    assert_eq!(code(&duplicate), (Code::Aborted, "IDEMPOTENCY_REQUEST_IN_PROGRESS"));
    assert_eq!((metadata(&duplicate, "retry-after"), metadata(&duplicate, "retryable")), ("1", "true"));
    gate.open();
    first.await.expect("no panic").expect("charged");
    assert_eq!(world.calls.count(), 1);
}

#[tokio::test]
async fn a_store_that_is_down_is_unavailable() {
    let is_cut = Arc::new(AtomicBool::new(false));
    let cut = Arc::clone(&is_cut);
    let plan = move |_: &Call| if cut.load(Ordering::SeqCst) { Fault::FailBefore } else { Fault::Pass };
    let store = Arc::new(Faulty::new(Arc::new(memory::Store::new()), plan));
    let layer = Layer::new(engine_on(store).await, RouteSettings::default()).expect("valid");
    let world = World::new(layer, None, |_, _| Ok("charged")).await;
    is_cut.store(true, Ordering::SeqCst);
    let down = world.charge(Some(KEY), "x").await.expect_err("refused");
    assert_eq!(code(&down), (Code::Unavailable, "IDEMPOTENCY_STORE_UNAVAILABLE"));
    assert_eq!(world.calls.count(), 0);
}
