//! A server that publishes keys, correctly or not.

use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// How the server responds.
#[derive(Clone)]
pub(crate) enum Answer {
    /// This document, with status 200.
    Document(String),
    /// These bytes, whatever they are, and then the connection is closed.
    Raw(String),
    /// No response, and the connection stays open.
    Silence,
}

struct Shared {
    answer: Mutex<Answer>,
    /// The request lines that arrived.
    requests: Mutex<Vec<String>>,
}

pub(crate) struct KeyServer {
    shared: Arc<Shared>,
    pub(crate) address: String,
    serving: JoinHandle<()>,
}

impl Drop for KeyServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl KeyServer {
    pub(crate) async fn new(answer: Answer) -> Self {
        Self::serve(answer, None).await
    }

    /// A server with a certificate for `localhost`, and that certificate.
    pub(crate) async fn with_tls(answer: Answer) -> (Self, Vec<u8>) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.expect("versions").with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).expect("a server");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self::serve(answer, Some(acceptor)).await, made.cert.pem().into_bytes())
    }

    async fn serve(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let address = match tls {
            Some(_) => format!("https://localhost:{port}/keys?v=1"),
            None => format!("http://127.0.0.1:{port}/keys?v=1"),
        };
        let shared = Arc::new(Shared { answer: Mutex::new(answer), requests: Mutex::default() });
        let serving = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (shared, tls) = (Arc::clone(&shared), tls.clone());
                    tokio::spawn(async move {
                        match tls {
                            None => answer_one(&shared, stream).await,
                            Some(tls) => {
                                if let Ok(stream) = tls.accept(stream).await {
                                    answer_one(&shared, stream).await;
                                }
                            }
                        }
                    });
                }
            }
        });
        Self { shared, address, serving }
    }

    pub(crate) fn set(&self, answer: Answer) {
        *self.shared.answer.lock().expect("not poisoned") = answer;
    }

    /// How many requests arrived.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.requests.lock().expect("not poisoned").len()
    }

    pub(crate) fn last_request(&self) -> String {
        self.shared.requests.lock().expect("not poisoned").last().expect("a request").clone()
    }
}

async fn answer_one(shared: &Shared, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8(head).expect("text");
    shared.requests.lock().expect("not poisoned").push(head.lines().next().expect("a line").to_owned());
    let answer = shared.answer.lock().expect("not poisoned").clone();
    let raw = match answer {
        Answer::Document(text) => {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len())
        }
        Answer::Raw(raw) => raw,
        Answer::Silence => return std::future::pending().await,
    };
    // The reader may have stopped before the end.
    let _ = stream.write_all(raw.as_bytes()).await;
    let _ = stream.shutdown().await;
}
