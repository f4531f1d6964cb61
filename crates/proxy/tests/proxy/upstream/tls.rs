//! Upstreams over TLS.

use super::world::{Script, ask, get, post, upstream};
use bytes::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use semel_http::Failure;
use semel_net::client::Authorities;
use semel_proxy::upstream::Options;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// A server with a certificate for `name`, and the authority that issued it.
struct Server {
    address: SocketAddr,
    authority: String,
    connections: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn server(name: &str, protocols: &[&str]) -> Server {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority =
        CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, &authority).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let mut config = config.with_single_cert(vec![certificate.der().clone()], key).expect("a configuration");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            counted.fetch_add(1, Ordering::SeqCst);
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let service =
                hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async move {
                    let body = http_body_util::Full::new(Bytes::from(format!("{:?}", request.version())));
                    Ok::<_, std::convert::Infallible>(http::Response::new(body))
                });
            let io = TokioIo::new(stream);
            if is_h2 {
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(server.serve_connection(io, service));
            } else {
                tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, service));
            }
        }
    });
    Server { address, authority: authority.pem(), connections, serving }
}

fn options(authority: &str) -> Options {
    Options {
        authorities: Authorities::only(authority.as_bytes()).expect("an authority"),
        ..Options::default()
    }
}

#[tokio::test]
async fn http_2_is_used_if_it_is_offered() {
    for (protocols, version) in
        [(&["h2", "http/1.1"][..], "HTTP/2.0"), (&["http/1.1"], "HTTP/1.1"), (&[], "HTTP/1.1")]
    {
        let server = server("localhost", protocols).await;
        let url = format!("https://localhost:{}", server.address.port());
        let upstream = upstream(&url, options(&server.authority));
        for _ in 0..3 {
            let reply = ask(&upstream, post("/", "1")).await.expect("an answer");
            assert_eq!(reply.text(), version);
            tokio::task::yield_now().await;
        }
        assert_eq!(server.connections.load(Ordering::SeqCst), 1, "{protocols:?}");
    }
}

#[tokio::test]
async fn an_upstream_whose_certificate_cannot_be_believed_is_sent_nothing() {
    let (server, other) = (server("localhost", &[]).await, server("localhost", &[]).await);
    let url = format!("https://localhost:{}", server.address.port());
    let unknown = upstream(&url, options(&other.authority));
    assert_eq!(ask(&unknown, post("/", "1")).await, Err(Failure::Unreachable));
    let misnamed = format!("https://127.0.0.1:{}", server.address.port());
    let misnamed = upstream(&misnamed, options(&server.authority));
    assert_eq!(ask(&misnamed, post("/", "1")).await, Err(Failure::Unreachable));
}

#[tokio::test]
async fn an_upstream_that_does_not_speak_tls_is_sent_nothing() {
    let script = Script::new(|_, peer| {
        peer.say("HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.half_close();
        peer.rest();
    });
    let other = server("localhost", &[]).await;
    let upstream =
        upstream(&format!("https://localhost:{}", script.address.port()), options(&other.authority));
    assert_eq!(ask(&upstream, get("/")).await, Err(Failure::Unreachable));
    assert!(script.requests().is_empty());
}

#[test]
fn an_invalid_certificate_is_refused() {
    let refusal = Authorities::only(b"-----BEGIN NOTHING-----").expect_err("no certificate").to_string();
    assert!(refusal.contains("certificate"), "{refusal}");
}
