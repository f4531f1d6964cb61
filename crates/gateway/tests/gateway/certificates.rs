//! Callers identified by certificates.

use crate::secure::{Authority, Holder};
use crate::world::{Gateway, KEY, Scratch, until, within};
use bytes::Bytes;
use http::{Request, Version};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use std::io;

struct World {
    gateway: Gateway,
    upstream: Upstream,
    _scratch: Scratch,
    ours: Authority,
    clients: Authority,
}

impl World {
    /// Starts with `listen` besides the certificates, and the configured trust.
    async fn new(listen: &str, sources: &str) -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
        let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
        let server = ours.server();
        let files = [
            ("cert.pem", server.pem.as_str()),
            ("key.pem", server.key_pem.as_str()),
            ("clients.pem", clients.pem.as_str()),
        ];
        let [certificate, key, authorities] =
            files.map(|(name, text)| scratch.write(name, text).display().to_string());
        scratch.configure(&format!(
            "[listen]\ntls_cert = '{certificate}'\ntls_key = '{key}'\nclient_ca = '{authorities}'\n{listen}\
             [identity]\nsources = {sources}\n"
        ));
        let config = scratch.config();
        let config = ["--config", config.to_str().expect("text")];
        let gateway = Gateway::start(&scratch, upstream.address, &config);
        Self { gateway, upstream, _scratch: scratch, ours, clients }
    }

    async fn charge(&self, holder: Option<&Holder>) -> io::Result<Reply> {
        self.send(TestRequest::post("/charges").key(KEY), holder).await
    }

    async fn send(&self, ask: TestRequest, holder: Option<&Holder>) -> io::Result<Reply> {
        self.ours.send(ask, self.gateway.address, holder).await
    }
}

#[tokio::test]
async fn two_certificate_holders_are_two_callers() {
    let world = World::new("", "[\"mtls\"]").await;
    let (alice, bob) = (world.clients.client("alice"), world.clients.client("bob"));
    let first = world.charge(Some(&alice)).await.expect("an answer");
    assert_eq!((first.status, first.text()), (201, "charge 1"));
    let other = world.charge(Some(&bob)).await.expect("an answer");
    assert_eq!((other.text(), other.is_replay()), ("charge 2", false), "the same key, another caller");
    let renewed = world.clients.client("alice");
    let again = world.charge(Some(&renewed)).await.expect("an answer");
    assert_eq!(
        (again.text(), again.is_replay()),
        ("charge 1", true),
        "a certificate with another key and serial number"
    );

    // No header that bob sends makes him alice.
    let id = first.header("operation-id").expect("an id").to_owned();
    let status = || TestRequest::get(&format!("/operations/{id}"));
    assert_eq!(world.send(status(), Some(&bob)).await.expect("an answer").status, 404);
    assert_eq!(world.send(status(), Some(&renewed)).await.expect("an answer").status, 200);
    for (name, value) in [
        ("x-client-cert", alice.pem.replace('\n', " ")),
        ("x-ssl-client-s-dn", "CN=alice".to_owned()),
        ("x-forwarded-client-cert", "Subject=\"CN=alice\"".to_owned()),
        ("authorization", "Bearer alice".to_owned()),
    ] {
        let reply = world.send(TestRequest::post("/charges").key(KEY).with(name, value), Some(&bob)).await;
        assert_eq!(reply.expect("an answer").text(), "charge 2", "{name}");
    }
    assert_eq!(world.upstream.seen_count(), 2);
}

type Sender = SendRequest<Empty<Bytes>>;

/// An HTTP/2 connection with this certificate.
async fn by_http2(world: &World, holder: Option<&Holder>) -> Sender {
    let stream = world.ours.connect(world.gateway.address, holder, &["h2"]).await.expect("a connection");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
    tokio::spawn(connection);
    sender
}

/// The response to a charge: status, body, and whether it is a replay.
async fn charged_by(mut sender: Sender, world: &World) -> (u16, String, bool) {
    let request = Request::post(format!("https://{}/charges", world.gateway.address))
        .header("idempotency-key", KEY)
        .body(Empty::new())
        .expect("a request");
    let response = within(sender.send_request(request)).await.expect("an answer");
    assert_eq!(response.version(), Version::HTTP_2);
    let (head, body) = response.into_parts();
    let body = within(body.collect()).await.expect("a body").to_bytes();
    let is_replay = head.headers.get("idempotency-replayed").is_some_and(|value| value == "true");
    (head.status.as_u16(), String::from_utf8(body.to_vec()).expect("text"), is_replay)
}

/// Every request on a connection belongs to the certificate's holder, with either protocol.
#[tokio::test]
async fn an_http2_connections_certificate_names_the_caller() {
    let world = World::new("client_certs = \"optional\"\n", "[\"mtls\"]").await;
    let (alice, bob) = (world.clients.client("alice"), world.clients.client("bob"));
    let (of_alice, of_bob) = (by_http2(&world, Some(&alice)).await, by_http2(&world, Some(&bob)).await);
    let first = charged_by(of_alice.clone(), &world).await;
    assert_eq!(first, (201, "charge 1".to_owned(), false));
    let other = charged_by(of_bob.clone(), &world).await;
    assert_eq!(other, (201, "charge 2".to_owned(), false), "the same key, another caller");
    for _ in 0..2 {
        let both = tokio::join!(charged_by(of_bob.clone(), &world), charged_by(of_alice.clone(), &world));
        let replayed = |text: &str| (201, text.to_owned(), true);
        assert_eq!(both, (replayed("charge 2"), replayed("charge 1")));
    }
    let renewed = world.clients.client("alice");
    assert_eq!(charged_by(by_http2(&world, Some(&renewed)).await, &world).await.1, "charge 1");
    let by_http1 = world.charge(Some(&bob)).await.expect("an answer");
    assert_eq!((by_http1.text(), by_http1.is_replay()), ("charge 2", true));

    let (status, body, _) = charged_by(by_http2(&world, None).await, &world).await;
    assert!(status == 400 && body.contains("CALLER_NOT_IDENTIFIED"), "{status} {body}");
    assert_eq!(world.upstream.seen_count(), 2);
}

#[tokio::test]
async fn a_missing_or_foreign_client_certificate_is_refused_in_the_handshake() {
    for listen in ["", "client_certs = \"optional\"\n"] {
        let world = World::new(listen, "[\"mtls\", \"anonymous\"]").await;
        let forged = Authority::new("clients").client("alice");
        assert!(world.charge(Some(&forged)).await.is_err(), "an authority with only the same name");
        let server = world.ours.server();
        assert!(world.charge(Some(&server)).await.is_err(), "the authority of the server's certificate");
        let none = world.charge(None).await;
        if listen.is_empty() {
            assert!(none.is_err(), "required");
        } else {
            assert_eq!(none.expect("an answer").status, 201, "a client without a certificate is anonymous");
        }
        assert_eq!(world.upstream.seen_count(), usize::from(!listen.is_empty()));
    }
}

#[tokio::test]
async fn without_a_certificate_no_caller_is_identified() {
    let world = World::new("client_certs = \"optional\"\n", "[\"mtls\"]").await;
    let refused = world.charge(None).await.expect("an answer");
    assert_eq!((refused.status, refused.code().as_deref()), (400, Some("CALLER_NOT_IDENTIFIED")));
    assert!(refused.text().contains("the subject of a client certificate"), "{}", refused.text());
    assert_eq!(world.upstream.seen_count(), 0);
}

#[tokio::test]
async fn a_reload_cannot_ask_for_certificates_that_the_listener_does_not() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    scratch.configure("");
    let config = scratch.config();
    let gateway = Gateway::start(&scratch, upstream.address, &["--config", config.to_str().expect("text")]);
    let (ours, clients) = (Authority::new("ours"), Authority::new("clients"));
    let server = ours.server();
    let [certificate, key, authorities] =
        [("c.pem", &server.pem), ("k.pem", &server.key_pem), ("a.pem", &clients.pem)]
            .map(|(name, text)| scratch.write(name, text).display().to_string());
    scratch.configure(&format!(
        "[listen]\ntls_cert = '{certificate}'\ntls_key = '{key}'\nclient_ca = '{authorities}'\n\
         [identity]\nsources = [\"mtls\"]\n"
    ));
    gateway.hang_up();
    until(async || scratch.logged().contains("the old one stays in force").then_some(())).await;
    assert!(scratch.logged().contains("the listener asks for none"), "{}", scratch.logged());
    let served = TestRequest::post("/charges").key(KEY).send(gateway.address).await.expect("an answer");
    assert_eq!(served.status, 201, "as before");
}
