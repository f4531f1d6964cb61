//! TLS: what clients negotiate, and the errors for invalid settings.

use super::world::{World, get, options, within};
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use semel_proxy::listen::{Bound, Error, Options, Tls};
use semel_test_support::ScratchDir;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate, and the files of one test.
struct Scratch {
    folder: ScratchDir,
    made: CertifiedKey<KeyPair>,
}

impl Scratch {
    fn new(test: &str) -> Self {
        let folder = ScratchDir::new(&format!("tls-{test}"));
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let scratch = Self { folder, made };
        scratch.write("cert.pem", &scratch.made.cert.pem());
        scratch.write("key.pem", &scratch.made.signing_key.serialize_pem());
        scratch
    }

    fn write(&self, name: &str, text: &str) {
        self.folder.write(name, text);
    }

    fn options(&self) -> Options {
        let (certificates, key) = (self.folder.join("cert.pem"), self.folder.join("key.pem"));
        Options { tls: Some(Tls { certificates, key }), ..options() }
    }

    async fn connect(&self, world: &World, protocols: &[&str]) -> TlsStream<TcpStream> {
        let mut roots = RootCertStore::empty();
        roots.add(self.made.cert.der().clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let tcp = TcpStream::connect(world.address).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        within(TlsConnector::from(Arc::new(config)).connect(name, tcp)).await.expect("a handshake")
    }

    /// The error from binding.
    async fn refused(&self) -> Error {
        Bound::bind(&self.options()).await.expect_err("it should not bind")
    }
}

#[tokio::test]
async fn http_1_1_over_tls_is_scanned_like_any_other() {
    let scratch = Scratch::new("http1");
    let world = World::with(scratch.options()).await;
    for protocols in [&[][..], &["http/1.1"]] {
        let mut client = scratch.connect(&world, protocols).await;
        let bad = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n";
        client.write_all(format!("{}{bad}", get("/tls")).as_bytes()).await.expect("sent");
        let mut answer = String::new();
        within(client.read_to_string(&mut answer)).await.expect("a clean close, also in TLS");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 400 "), "{answer}");
    }
    assert_eq!(world.service.lines(), ["GET /tls", "GET /tls"]);
    let heads = world.service.heads.lock().expect("not poisoned");
    assert!(heads[0].extensions.get::<semel_proxy::listen::Peer>().expect("an extension").is_tls);
}

#[tokio::test]
async fn http_2_is_chosen_where_the_client_offers_it() {
    let scratch = Scratch::new("http2");
    let world = World::with(scratch.options()).await;
    let client = scratch.connect(&world, &["http/1.1", "h2"]).await;
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let (mut send, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client))
            .await
            .expect("HTTP/2");
    let driving = tokio::spawn(connection);
    let request =
        Request::get("https://localhost/two").body(Empty::<bytes::Bytes>::new()).expect("a request");
    let response = within(send.send_request(request)).await.expect("an answer");
    let body = within(response.into_body().collect()).await.expect("a body").to_bytes();
    assert_eq!(body, "GET https://localhost/two ");
    drop(send);
    let _ = within(driving).await;
}

#[tokio::test]
async fn a_handshake_that_never_ends_is_given_up() {
    let scratch = Scratch::new("slow");
    let world =
        World::with(Options { handshake_timeout: Duration::from_millis(50), ..scratch.options() }).await;
    assert_eq!(world.exchange("").await, "");
}

#[tokio::test]
async fn a_client_without_tls_does_not_disturb_others() {
    let scratch = Scratch::new("plain");
    let world = World::with(scratch.options()).await;
    let mut plain = world.connect().await;
    plain.send(get("/plain")).await;
    let mut answer = Vec::new();
    let _ = within(plain.tcp.read_to_end(&mut answer)).await;
    assert!(!answer.starts_with(b"HTTP/"));
    let mut client = scratch.connect(&world, &[]).await;
    client.write_all(get("/tls").as_bytes()).await.expect("sent");
    within(client.read_u8()).await.expect("an answer");
    assert_eq!(world.service.lines(), ["GET /tls"]);
}

#[tokio::test]
async fn a_file_that_is_missing_is_named() {
    let scratch = Scratch::new("missing");
    std::fs::remove_file(scratch.folder.join("key.pem")).expect("it was there");
    let error = scratch.refused().await;
    assert!(matches!(error, Error::Unreadable(..)) && error.to_string().contains("key.pem: "), "{error}");
}

#[tokio::test]
async fn a_file_without_a_certificate_is_named() {
    let scratch = Scratch::new("nocert");
    scratch.write("cert.pem", &scratch.made.signing_key.serialize_pem());
    let error = scratch.refused().await;
    assert!(
        matches!(error, Error::NoCertificate(_))
            && error.to_string().contains("cert.pem contains no certificate"),
        "{error}"
    );
}

#[tokio::test]
async fn a_file_without_a_key_is_named() {
    let scratch = Scratch::new("nokey");
    scratch.write("key.pem", &scratch.made.cert.pem());
    let error = scratch.refused().await;
    assert!(
        matches!(error, Error::NoKey(_)) && error.to_string().contains("key.pem contains no private key"),
        "{error}"
    );
}

#[tokio::test]
async fn a_damaged_key_is_named_and_not_shown() {
    let scratch = Scratch::new("damaged");
    scratch.write("key.pem", "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----\n");
    let error = scratch.refused().await;
    assert!(matches!(error, Error::Damaged(..)) && error.to_string().contains("key.pem: "), "{error}");
    assert!(!format!("{error} {error:?}").contains("c2VjcmV0"), "{error:?}");
}

#[tokio::test]
async fn a_key_of_another_certificate_is_refused_with_both_names() {
    let scratch = Scratch::new("other");
    let other = Scratch::new("other-key");
    scratch.write("key.pem", &other.made.signing_key.serialize_pem());
    let error = scratch.refused().await;
    assert!(matches!(error, Error::OtherKey { .. }), "{error}");
    assert!(error.to_string().contains("key.pem: ") && error.to_string().contains("cert.pem"), "{error}");
}

#[tokio::test]
async fn an_address_in_use_is_reported_with_advice() {
    let world = World::new().await;
    let error = Bound::bind(&Options { address: world.address, ..options() }).await.expect_err("taken");
    assert!(error.to_string().contains("in use by another program"), "{error}");
}
