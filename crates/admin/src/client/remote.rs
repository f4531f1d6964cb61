//! A running gateway's admin address, over HTTP: one request on one connection, bounded in time and size, without
//! redirects.

use super::{RESPONSE_BYTES_MAX, Reply, reply};
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

const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// The API itself gives a store 10 s for a page.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// A gateway's admin address: `http://127.0.0.1:9090`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    target: Target,
    is_tls: bool,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_tls = text.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"));
        if !is_tls && !text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http://")) {
            return Err("expected http://HOST:PORT or https://HOST:PORT".to_owned());
        }
        // The URL may contain a password, so it is not repeated.
        if text.contains('@') {
            return Err(
                "the admin address contains credentials, which are not sent: put a token into SEMEL_ADMIN_TOKEN, or into a \
                 file for --token-file"
                    .to_owned(),
            );
        }
        let target = Target::parse(text);
        let target =
            target.map_err(|error| format!("the admin address cannot be used: {}", error.reason()))?;
        Ok(Self { target, is_tls })
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
    pub fn new(url: Url, token: Option<&str>, authorities: Option<&[u8]>) -> Result<Self, String> {
        let authorization = token.map(|token| {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_| "the token has characters that are not allowed in a header".to_owned())?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        let trusted = match authorities {
            _ if !url.is_tls => None,
            Some(pem) => Some(Authorities::only(pem).map_err(|error| error.to_string())?),
            None => Some(Authorities::default()),
        };
        let client = Client::new(url.target.host(), url.target.port(), trusted.as_ref());
        let client = client.map_err(|error| match error {
            ClientError::Host => format!("the host of {url} is not valid in a certificate"),
            ClientError::Authorities(AuthoritiesError::None) => {
                format!("{}; give --ca FILE", AuthoritiesError::None)
            }
            ClientError::Authorities(error) => error.to_string(),
        })?;
        Ok(Self { url, client, authorization: authorization.transpose()? })
    }

    /// Sends a request, and reads the response.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, String> {
        let url = &self.url;
        let request = self.request(method, path, body)?;
        let mut connection = match timeout(CONNECT_WITHIN, self.client.connect()).await {
            Ok(Ok(connection)) => connection,
            Ok(Err(ConnectError::Tls(error))) => return Err(format!("no TLS with {url}: {error}")),
            Ok(Err(ConnectError::Name(error) | ConnectError::Connect(error))) => {
                return Err(format!(
                    "{url} cannot be reached: {error}. Is a gateway running there, with --admin? You can \
                        also name its store: --store URL"
                ));
            }
            Err(_) => {
                return Err(format!(
                    "{url} cannot be reached: no connection, or no TLS, within {} s",
                    CONNECT_WITHIN.as_secs()
                ));
            }
        };
        let asking = async {
            let response = connection.send(request).await.map_err(|failed| {
                if failed.unsent.is_some() {
                    format!("{url} closed the connection before the request was sent: {failed}")
                } else {
                    format!("{url} closed the connection: {failed}. The action may or may not have been done")
                }
            })?;
            let (parts, body) = response.into_parts();
            let body = client::read(body, RESPONSE_BYTES_MAX).await;
            reply(&parts, &body.map_err(|error| format!("the response of {url} cannot be read: {error}"))?)
        };
        let late = |_| format!("{url} did not answer within {} s", ANSWER_WITHIN.as_secs());
        timeout(ANSWER_WITHIN, asking).await.map_err(late)?
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, String> {
        let unfit = |_| format!("{path} is not a valid path of {}", self.url);
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
        request.body(Full::new(body)).map_err(|error| error.to_string())
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
            let refused = bad.parse::<Url>().expect_err(bad);
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
