//! Fetches a key set over HTTP: one request on one connection, bounded in time and size, without redirects.

use super::issuer::{Url, bare};
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use semel_net::client::{
    self, Authorities, AuthoritiesError, Client, ClientError, ConnectError, ReadError, SendError,
};
use std::fmt;

/// A URL, ready to be fetched.
pub(super) struct Fetcher {
    uri: Uri,
    client: Client,
    bytes_max: usize,
}

/// Why fetching failed.
#[derive(Debug)]
pub(super) enum FetchError {
    Address,
    Roots(AuthoritiesError),
    Connection(ConnectError),
    Send(SendError),
    Read(hyper::Error),
    Status(StatusCode),
    TooLarge,
    Timeout,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address => f.write_str("the URL is not valid"),
            Self::Roots(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
            Self::Send(error) => write!(f, "no answer: {error}"),
            Self::Read(error) => write!(f, "no answer: {error}"),
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
        let is_tls = uri.scheme_str() == Some("https");
        let authorities = match &url.roots_pem {
            _ if !is_tls => None,
            Some(pem) => Some(Authorities::only(pem).map_err(FetchError::Roots)?),
            None => Some(Authorities::default()),
        };
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let client = Client::new(bare(uri.host().unwrap_or_default()), port, authorities.as_ref());
        let client = client.map_err(|error| match error {
            ClientError::Host => FetchError::Address,
            ClientError::Authorities(error) => FetchError::Roots(error),
        })?;
        Ok(Self { uri, client, bytes_max: url.bytes_max })
    }

    /// The document at the URL. It has no timeout of its own.
    pub(super) async fn fetch(&self) -> Result<Bytes, FetchError> {
        let mut connection = self.client.connect().await.map_err(FetchError::Connection)?;
        let response = connection.send(self.request()?).await;
        let response = response.map_err(FetchError::Send)?;
        if response.status() != StatusCode::OK {
            return Err(FetchError::Status(response.status()));
        }
        client::read(response.into_body(), self.bytes_max).await.map_err(|error| match error {
            ReadError::Broken(error) => FetchError::Read(error),
            ReadError::TooLong => FetchError::TooLarge,
        })
    }

    fn request(&self) -> Result<Request<Full<Bytes>>, FetchError> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        let request = Request::get(path)
            .header(HOST, authority)
            .header(ACCEPT, "application/jwk-set+json, application/json")
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")));
        request.body(Full::default()).map_err(|_| FetchError::Address)
    }
}
