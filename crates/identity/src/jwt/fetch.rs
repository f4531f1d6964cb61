//! Fetches a key set over HTTP: one request on one connection, bounded in time and size, without redirects.

use super::issuer::{Url, bare};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use semel_net::tls;
use std::convert::Infallible;
use std::sync::Arc;
use std::{fmt, io};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A URL, ready to be fetched.
pub(super) struct Fetcher {
    uri: Uri,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    bytes_max: usize,
}

/// Why fetching failed.
#[derive(Debug)]
pub(super) enum FetchError {
    Address,
    Roots,
    Connection(io::Error),
    Http(hyper::Error),
    Status(StatusCode),
    TooLarge,
    Timeout,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("the URL is not valid"),
            Self::Roots => f.write_str("there are no certificate authorities to verify the server with"),
            Self::Connection(error) => write!(f, "no connection: {error}"),
            Self::Http(error) => write!(f, "no answer: {error}"),
            Self::Status(status) => write!(f, "the status is {status}, not 200"),
            Self::TooLarge => f.write_str("the response is too large"),
            Self::Timeout => f.write_str("no response in time"),
        }
    }
}

impl std::error::Error for FetchError {}

impl Fetcher {
    pub(super) fn new(url: &Url) -> Result<Self, FetchError> {
        let uri = url.uri().ok_or(FetchError::Address)?;
        let host = bare(uri.host().unwrap_or_default()).to_owned();
        let is_tls = uri.scheme_str() == Some("https");
        let tls = if is_tls {
            let name = ServerName::try_from(host.clone()).map_err(|_| FetchError::Address)?;
            Some((TlsConnector::from(Arc::new(config(url)?)), name))
        } else {
            None
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { uri, host, port, tls, bytes_max: url.bytes_max })
    }

    /// The document at the URL. It has no timeout of its own.
    pub(super) async fn fetch(&self) -> Result<Vec<u8>, FetchError> {
        let stream =
            TcpStream::connect((self.host.as_str(), self.port)).await.map_err(FetchError::Connection)?;
        match &self.tls {
            None => self.ask(stream).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await.map_err(FetchError::Connection)?;
                self.ask(stream).await
            }
        }
    }

    async fn ask(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Vec<u8>, FetchError> {
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream));
        let (mut sender, connection) = handshake.await.map_err(FetchError::Http)?;
        // The end of the connection alone is not a response: bytes may still be unread.
        let driving = async {
            let _ = connection.await;
            std::future::pending::<Infallible>().await
        };
        let asking = async {
            let response = sender.send_request(self.request()?).await.map_err(FetchError::Http)?;
            self.read(response).await
        };
        tokio::select! {
            biased;
            answered = asking => answered,
            never = driving => match never {},
        }
    }

    fn request(&self) -> Result<Request<Empty<Bytes>>, FetchError> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path)
            .header(HOST, authority)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")));
        request.body(Empty::new()).map_err(|_| FetchError::Address)
    }

    async fn read(&self, response: Response<Incoming>) -> Result<Vec<u8>, FetchError> {
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        let mut body = response.into_body();
        let mut document = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(FetchError::Http)?.into_data() else { continue };
            if data.len() > self.bytes_max - document.len() {
                return Err(FetchError::TooLarge);
            }
            document.extend_from_slice(&data);
        }
        Ok(document)
    }
}

fn config(url: &Url) -> Result<ClientConfig, FetchError> {
    let roots = match &url.roots_pem {
        Some(pem) => tls::roots_of(pem).map_err(|_| FetchError::Roots)?,
        None => tls::system_roots(),
    };
    if roots.is_empty() {
        return Err(FetchError::Roots);
    }
    tls::client_config(roots).map_err(|_| FetchError::Roots)
}
