//! A running gateway's admin address, over HTTP: one request on one connection, bounded in time and size, without
//! redirects.

use super::{AskError, RESPONSE_BYTES_MAX, RemoteError, Reply, UrlError, reply};
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request};
use http_body_util::Full;
use semel_net::client::{self, Authorities, AuthoritiesError, Client, ClientError, ConnectError};
use semel_net::target::Target;
use serde_json::Value;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;
use tokio::time::timeout;

pub(super) const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The API itself gives a store 10 s for a page.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A gateway's admin address: `http://127.0.0.1:9090`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    target: Target,
    is_tls: bool,
}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let is_tls = text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        if !is_tls && !text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
            return Err(UrlError::Scheme);
        }
        if text.contains('@') {
            return Err(UrlError::Credentials);
        }
        Ok(Self { target: Target::parse(text).map_err(UrlError::Target)?, is_tls })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

impl Url {
    /// Whether requests can be read on the network.
    pub fn is_in_clear(&self) -> bool {
        let host = self.target.host();
        let is_here = host.eq_ignore_ascii_case("localhost")
            || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
        !self.is_tls && !is_here
    }
}

/// A gateway's admin API.
pub struct Remote {
    url: Url,
    client: Client,
    authorization: Option<HeaderValue>,
}

impl Remote {
    /// Opens no connection yet. `authorities`: PEM, trusted instead of the system's.
    pub fn new(url: Url, token: Option<&str>, authorities: Option<&[u8]>) -> Result<Self, RemoteError> {
        let authorization = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(RemoteError::Token)?;
            value.set_sensitive(true);
            Ok::<_, RemoteError>(value)
        });
        let trusted = match authorities {
            _ if !url.is_tls => None,
            Some(pem) => Some(Authorities::only(pem)?),
            None => Some(Authorities::default()),
        };
        let client = Client::new(url.target.host(), url.target.port(), trusted.as_ref());
        let client = client.map_err(|error| match error {
            ClientError::Host => RemoteError::Host(url.to_string()),
            ClientError::Authorities(AuthoritiesError::None) => RemoteError::NoAuthorities,
            ClientError::Authorities(error) => error.into(),
        })?;
        Ok(Self { url, client, authorization: authorization.transpose()? })
    }

    /// Sends a request, and reads the response.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, AskError> {
        let url = || self.url.to_string();
        let request = self.request(method, path, body)?;
        let mut connection = match timeout(CONNECT_WITHIN, self.client.connect()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ConnectError::Tls(source))) => return Err(AskError::Tls(url(), source)),
            Ok(Err(ConnectError::Name(source) | ConnectError::Connect(source))) => {
                return Err(AskError::Unreachable(url(), source));
            }
            Err(_) => return Err(AskError::ConnectTimeout(url())),
        };
        let asking = async {
            let response = connection.send(request).await.map_err(|source| match source.unsent {
                Some(_) => AskError::Unsent(url(), source),
                None => AskError::Closed(url(), source),
            })?;
            let (parts, body) = response.into_parts();
            let body = client::read(body, RESPONSE_BYTES_MAX).await;
            reply(&parts, &body.map_err(|source| AskError::Unreadable(url(), source))?)
        };
        timeout(ANSWER_WITHIN, asking).await.map_err(|_| AskError::Timeout(url()))?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, AskError> {
        let unfit = |source| AskError::Path(path.to_owned(), self.url.to_string(), source);
        let path = self.url.target.join(&path.parse().map_err(unfit)?).map_err(unfit)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path.as_str())
            .header(HOST, self.url.target.authority().as_str())
            .header(ACCEPT, "application/json, application/problem+json")
            .header(USER_AGENT, concat!("semel/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let body = match body {
            Some(document) => {
                request = request.header(CONTENT_TYPE, "application/json");
                Bytes::from(document.to_string())
            }
            None => Bytes::new(),
        };
        Ok(request.body(Full::new(body))?)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_admin_address_is_a_url_of_http() {
        for good in ["http://127.0.0.1:9090", "HTTPS://ops.example", "http://[::1]:9090/semel"] {
            assert!(good.parse::<Url>().is_ok(), "{good}");
        }
        for bad in [
            "127.0.0.1:9090",
            "h2c://127.0.0.1:1",
            "",
            "http://",
            "http://u:hunter2@h",
            "http://h?token=hunter2",
        ] {
            let refused = bad.parse::<Url>().expect_err(bad).to_string();
            assert!(!refused.contains("hunter2") && !refused.contains("upstream"), "{refused}");
        }
    }

    #[test]
    fn plain_http_to_another_machine_is_in_the_clear() {
        let in_clear = |url: &str| url.parse::<Url>().expect("a URL").is_in_clear();
        assert!(in_clear("http://10.0.0.1:9090") && in_clear("http://ops.example"));
        for kept in
            ["http://127.0.0.1:9090", "http://localhost:9090", "http://[::1]:1", "https://ops.example"]
        {
            assert!(!in_clear(kept), "{kept}");
        }
    }
}
