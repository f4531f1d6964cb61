//! The admin API in this process, over an engine that it was given: nothing listens.

use super::{AskError, RESPONSE_BYTES_MAX, Reply, reply};
use crate::{
    Admin, LOOPBACK, Options, OptionsError, Peer, ResponseLimits, Role, Sources, Token, TokenHash, service,
};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use semel::core::history::WHO_BYTES_MAX;
use semel::core::store::Clock as _;
use semel::{Engine, Random as _, SystemClock, SystemRandom};
use semel_text::printable::is_printable;
use serde_json::Value;
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use tower_service::Service as _;

/// The limits of a response that is entered for a record of this operation.
pub type ResponseLimitsOf = Arc<dyn Fn(&str) -> ResponseLimits + Send + Sync>;

/// The admin API over an engine of this process.
pub struct InProcess {
    admin: Admin,
    token: String,
}

impl InProcess {
    /// `who` is recorded in histories, `with_bodies` shows stored responses.
    pub fn new(
        engine: Engine,
        who: &str,
        with_bodies: bool,
        response_limits: ResponseLimitsOf,
    ) -> Result<Self, OptionsError> {
        let token = format!("{:032x}", SystemRandom.bits());
        let mut roles = vec![Role::Read, Role::Operate];
        if with_bodies {
            roles.push(Role::Bodies);
        }
        let holder = Token { name: holder_name(who), hash: TokenHash::of(&token), roles };
        let options = Options { tokens: vec![holder], ..Options::default() };
        let sources = Sources {
            metrics: Arc::new(String::new),
            is_draining: Arc::new(|| false),
            shadow: crate::shadow::Tally::new(SystemClock.now()),
            clock: Arc::new(SystemClock),
            // Only gateways know which operations are configured and have a probe.
            label: Arc::new(str::to_owned),
            response_limits,
            // The token above has the roles that are needed.
            refused: Arc::new(|_| {}),
            knows_probes: false,
        };
        Ok(Self { admin: service(engine, options, sources)?, token })
    }

    /// Sends a request. An error if the response cannot be understood.
    pub async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Reply, AskError> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let body = body.map(|document| Bytes::from(document.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .extension(Peer { address: loopback, local: loopback })
            .body(Full::new(body))?;
        let Ok(response) = self.admin.clone().call(request).await;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, RESPONSE_BYTES_MAX).collect().await.map_err(AskError::Body)?;
        reply(&parts, &body.to_bytes())
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").finish_non_exhaustive()
    }
}

/// A name that fits into a history.
pub fn holder_name(who: &str) -> String {
    let mut name: String = who.chars().filter(|letter| is_printable(*letter)).collect();
    while name.len() > WHO_BYTES_MAX {
        name.pop();
    }
    if name.is_empty() || name == LOOPBACK { "somebody".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operators_name_fits_into_the_history() {
        assert_eq!(holder_name("cli:ada"), "cli:ada");
        assert_eq!(holder_name("cli:a\nb\u{1b}\u{202e}[2J"), "cli:ab[2J");
        assert_eq!(holder_name(&"é".repeat(60)).len(), WHO_BYTES_MAX);
        assert_eq!(holder_name("loopback"), "somebody");
        assert_eq!(holder_name("\n"), "somebody");
    }
}
