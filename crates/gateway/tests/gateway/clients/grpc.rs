//! A tonic client and a tonic server, with the gateway between them.

use super::lossy::Lossy;
use super::process::Process;
use super::world::{folder, listening, serve};
use bytes::{Buf, BufMut, Bytes};
use semel_test_support::ScratchDir;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Code, Request, Response, Status};

/// Messages as raw bytes.
#[derive(Debug, Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
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

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Counts its calls and answers with the number; a message of one word is the status to fail with.
#[derive(Clone, Default)]
struct Payments(Arc<AtomicU32>);

impl tonic::server::UnaryService<Bytes> for Payments {
    type Response = Bytes;
    type Future = Answer<Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let call = self.0.fetch_add(1, Ordering::SeqCst) + 1;
        let has_id = request.metadata().contains_key("operation-id");
        Box::pin(async move {
            match request.get_ref().as_ref() {
                b"invalid" => Err(Status::invalid_argument(format!("call {call}: 50 % is no amount"))),
                _ if !has_id => Err(Status::internal("no operation id")),
                _ => Ok(Response::new(Bytes::from(format!("charge {call}")))),
            }
        })
    }
}

impl tower_service::Service<http::Request<tonic::body::Body>> for Payments {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<tonic::body::Body>) -> Self::Future {
        let handler = self.clone();
        Box::pin(async move { Ok(tonic::server::Grpc::new(Raw).unary(handler, request).await) })
    }
}

impl tonic::server::NamedService for Payments {
    const NAME: &'static str = "pay.Payments";
}

/// A server behind the gateway.
struct World {
    calls: Arc<AtomicU32>,
    gateway: SocketAddr,
    server: tokio::task::JoinHandle<()>,
    _process: Process,
    _folder: ScratchDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl World {
    fn new() -> Self {
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let address = incoming.local_addr().expect("an address");
        let payments = Payments::default();
        let calls = Arc::clone(&payments.0);
        let serving = Server::builder().add_service(payments).serve_with_incoming(incoming);
        let server = tokio::spawn(async move { serving.await.expect("it serves") });
        let folder = folder();
        let process = Process::start(&mut serve(&["--upstream", &format!("h2c://{address}")], &folder));
        let gateway = tokio::task::block_in_place(|| process.wait_for(listening));
        Self { calls, gateway, server, _process: process, _folder: folder }
    }

    fn calls(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn charge(to: SocketAddr, key: &str, message: &'static str) -> Result<Response<Bytes>, Status> {
    let channel = Channel::from_shared(format!("http://{to}")).expect("an address").connect().await;
    let mut client = tonic::client::Grpc::new(channel.expect("a connection"));
    client.ready().await.expect("a connection");
    let mut request = Request::new(Bytes::from_static(message.as_bytes()));
    request.metadata_mut().insert("idempotency-key", key.parse().expect("a value"));
    client.unary(request, "/pay.Payments/Charge".parse().expect("a path"), Raw).await
}

const KEY: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_whose_answer_was_lost_is_made_once() {
    let world = World::new();
    let calls = Arc::clone(&world.calls);
    let lossy = Lossy::new(world.gateway, move || calls.load(Ordering::SeqCst) > 0);
    let lost = charge(lossy.address, KEY, "2500 eur").await.expect_err("it is lost");
    assert!(lossy.has_lost(), "{lost:?}");
    let retried = charge(lossy.address, KEY, "2500 eur").await.expect("an answer");
    assert_eq!((retried.get_ref().as_ref(), world.calls()), (&b"charge 1"[..], 1));
    assert_eq!(retried.metadata().get("idempotency-replayed").expect("a mark"), "true");
    let other = charge(lossy.address, "another-8e03978e40d5", "2500 eur").await.expect("an answer");
    assert_eq!((other.get_ref().as_ref(), world.calls()), (&b"charge 2"[..], 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_replayed_with_its_status_and_message() {
    let world = World::new();
    for is_replay in [false, true] {
        let refused = charge(world.gateway, KEY, "invalid").await.expect_err("a refusal");
        assert_eq!((refused.code(), refused.message()), (Code::InvalidArgument, "call 1: 50 % is no amount"));
        assert_eq!(refused.metadata().contains_key("idempotency-replayed"), is_replay, "{refused:?}");
    }
    assert_eq!(world.calls(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_gateway_is_a_status_that_tonic_understands() {
    let world = World::new();
    charge(world.gateway, KEY, "2500 eur").await.expect("an answer");
    let refused = charge(world.gateway, KEY, "9900 eur").await.expect_err("a refusal");
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let code = refused.metadata().get("code").expect("a code");
    assert_eq!(code, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
    assert_eq!(world.calls(), 1);
}
