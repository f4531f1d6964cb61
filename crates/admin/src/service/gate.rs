//! Authentication and roles. A path that is not listed as open needs a token.

use super::host;
use super::problem::{Problem, Situation};
use super::{Peer, Shared};
use crate::options::{LOOPBACK, Role, TokenHash};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use std::net::IpAddr;
use std::sync::Arc;

/// An authenticated operator or worker.
#[derive(Debug, Clone)]
pub(super) struct Principal {
    /// The name in histories.
    pub(super) name: Arc<str>,
    roles: Arc<[Role]>,
}

impl Principal {
    pub(super) fn has(&self, role: Role) -> bool {
        self.roles.contains(&role)
    }
}

/// What a path requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requirement {
    /// Nothing: process managers must be able to check the process.
    Nothing,
    /// Any valid token.
    Somebody,
    Role(Role),
}

impl Requirement {
    fn of(method: &Method, path: &str) -> Self {
        let is_read = *method == Method::GET || *method == Method::HEAD;
        let under =
            |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        match path {
            "/healthz" | "/readyz" => Self::Nothing,
            // A browser cannot send a token before the page has asked for it.
            "/" if is_read => Self::Nothing,
            "/metrics" => Self::Role(Role::Read),
            _ if under("/v1/claims") => Self::Role(Role::Claim),
            _ if ["/v1/records", "/v1/shadow", "/v1/inboxes"].into_iter().any(under) && is_read => {
                Self::Role(Role::Read)
            }
            _ if under("/v1") => Self::Role(Role::Operate),
            _ => Self::Somebody,
        }
    }
}

/// Why a request to the admin address may not do what it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessRefusal {
    /// It has no token.
    NoToken,
    /// Its token is not one of those configured.
    WrongToken,
    /// Its token lacks the role.
    Role,
    /// Without tokens, only requests from the same machine are answered.
    Address,
    /// Without tokens, only requests to a name of this machine are answered.
    Host,
    /// Too many writes, or too many wrong tokens, came from its address.
    Rate,
}

impl AccessRefusal {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::NoToken, Self::WrongToken, Self::Role, Self::Address, Self::Host, Self::Rate];

    /// Its name in metrics and logs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoToken => "no_token",
            Self::WrongToken => "wrong_token",
            Self::Role => "role",
            Self::Address => "address",
            Self::Host => "host",
            Self::Rate => "rate",
        }
    }
}

type Refused = (AccessRefusal, Problem);

/// Lets a request through, or refuses it.
pub(super) async fn gate(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let need = Requirement::of(request.method(), request.uri().path());
    if need == Requirement::Nothing {
        return next.run(request).await;
    }
    match authorize(&shared, &request, need) {
        Ok(who) => {
            request.extensions_mut().insert(who);
            next.run(request).await
        }
        Err((refusal, problem)) => {
            (shared.sources.refused)(refusal);
            problem.into_response()
        }
    }
}

/// The longest path that is logged; those of the API are shorter.
const PATH_CHARACTERS_MAX: usize = 100;

/// Logs a refusal, unless there are too many.
fn log(shared: &Shared, request: &Request, who: Option<&str>, refusal: AccessRefusal) {
    let Some(left_out) = shared.refused_lines.take(shared.clock.uptime()) else { return };
    let left_out = (left_out > 0).then_some(left_out);
    let address = request.extensions().get::<Peer>().map(|peer| tracing::field::display(peer.address.ip()));
    let path: String = request.uri().path().chars().take(PATH_CHARACTERS_MAX).collect();
    let (method, reason) = (request.method().as_str(), refusal.name());
    tracing::warn!(target: "semel::audit", who, address, method, path, reason, left_out, "a request to the admin address was refused");
}

fn authorize(shared: &Shared, request: &Request, need: Requirement) -> Result<Principal, Refused> {
    // The listener sets the peer; without it, callers cannot be distinguished.
    let Some(peer) = request.extensions().get::<Peer>() else {
        let detail = "The address that the request came from is not known.";
        return Err((AccessRefusal::Address, Problem::new(Situation::Forbidden, detail)));
    };
    let address = peer.address.ip();
    let who = if shared.options.tokens.is_empty() {
        from_this_machine(request, peer).inspect_err(|(refusal, _)| log(shared, request, None, *refusal))?
    } else {
        by_token(shared, request.headers(), address)?
    };
    if let Requirement::Role(role) = need
        && !who.has(role)
    {
        let detail = format!("This needs the role {}, which the token does not have.", role.name());
        let challenge = "Bearer realm=\"semel\", error=\"insufficient_scope\"";
        log(shared, request, Some(&who.name), AccessRefusal::Role);
        return Err((AccessRefusal::Role, Problem::new(Situation::Forbidden, detail).challenging(challenge)));
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let taken = shared.writes.take(address, shared.clock.uptime());
        taken.map_err(|wait| {
            let problem = Problem::new(Situation::TooMany, "Too many writes from this address.").after(wait);
            (AccessRefusal::Rate, problem)
        })?;
    }
    Ok(who)
}

/// Without tokens, requests from this machine may do everything except read stored responses.
fn from_this_machine(request: &Request, peer: &Peer) -> Result<Principal, Refused> {
    if !peer.address.ip().to_canonical().is_loopback() {
        let detail = "Without tokens, this address answers only requests from its own machine.";
        return Err((AccessRefusal::Address, Problem::new(Situation::Forbidden, detail)));
    }
    if !host::is_own(request.uri(), request.headers(), peer.local.port()) {
        let detail =
            "Without tokens, this address answers only to localhost or a loopback address, with its port.";
        return Err((AccessRefusal::Host, Problem::new(Situation::Misdirected, detail)));
    }
    Ok(Principal { name: LOOPBACK.into(), roles: [Role::Read, Role::Operate, Role::Claim].into() })
}

fn by_token(shared: &Shared, headers: &HeaderMap, address: IpAddr) -> Result<Principal, Refused> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let Some(line) = lines.next() else {
        let problem = Problem::new(Situation::Unauthenticated, "Send a token as Authorization: Bearer …");
        return Err((AccessRefusal::NoToken, problem.challenging("Bearer realm=\"semel\"")));
    };
    let sent = bearer(line.as_bytes()).filter(|_| lines.next().is_none()).map(TokenHash::of);
    if let Some(who) = sent.and_then(|sent| known(shared, &sent)) {
        return Ok(who);
    }
    // Wrong tokens never block a right one: others may share its address, behind a proxy or in a cluster. The limit
    // keeps guesses out of the log; tokens are random, so guessing is hopeless anyway.
    if let Err(wait) = shared.failures.take(address, shared.clock.uptime()) {
        let detail = "Too many wrong tokens from this address.";
        return Err((AccessRefusal::Rate, Problem::new(Situation::TooMany, detail).after(wait)));
    }
    tracing::warn!(target: "semel::audit", %address, "a wrong token was presented at the admin address");
    let problem = Problem::new(Situation::Unauthenticated, "The token is not one of those configured here.");
    let problem = problem.challenging("Bearer realm=\"semel\", error=\"invalid_token\"");
    Err((AccessRefusal::WrongToken, problem))
}

/// The credentials of `Bearer …`.
fn bearer(line: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = line.split_at_checked(7)?;
    let credentials = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !credentials.is_empty()).then_some(credentials)
}

/// Compares with every token, so that the time reveals nothing about which one was close.
fn known(shared: &Shared, sent: &TokenHash) -> Option<Principal> {
    let mut found = None;
    for token in &shared.options.tokens {
        if token.hash.is(sent) {
            found = Some(token);
        }
    }
    found.map(|token| Principal { name: token.name.as_str().into(), roles: token.roles.as_slice().into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_role_and_unknown_ones_need_any() {
        let need = |method: &str, path| Requirement::of(&method.parse().expect("a method"), path);
        assert_eq!(need("GET", "/healthz"), Requirement::Nothing);
        assert_eq!(need("POST", "/readyz"), Requirement::Nothing);
        assert_eq!((need("GET", "/"), need("POST", "/")), (Requirement::Nothing, Requirement::Somebody));
        assert_eq!(need("GET", "/metrics"), Requirement::Role(Role::Read));
        assert_eq!(need("GET", "/v1/records"), Requirement::Role(Role::Read));
        assert_eq!(need("HEAD", "/v1/records/x"), Requirement::Role(Role::Read));
        assert_eq!(need("GET", "/v1/shadow"), Requirement::Role(Role::Read));
        assert_eq!(need("POST", "/v1/shadow"), Requirement::Role(Role::Operate));
        assert_eq!(need("GET", "/v1/inboxes"), Requirement::Role(Role::Read));
        assert_eq!(need("POST", "/v1/records/x/resolve"), Requirement::Role(Role::Operate));
        assert_eq!(need("DELETE", "/v1/records/x"), Requirement::Role(Role::Operate));
        assert_eq!(need("GET", "/v1/claims/x"), Requirement::Role(Role::Claim));
        assert_eq!(need("POST", "/v1/claims"), Requirement::Role(Role::Claim));
        assert_eq!(need("POST", "/v1/claimsx"), Requirement::Role(Role::Operate));
        assert_eq!(need("GET", "/v1"), Requirement::Role(Role::Operate));
        for path in ["/index.html", "/openapi.json", "/healthz/", "//healthz", "/healthz/x", "/metrics/"] {
            assert_eq!(need("GET", path), Requirement::Somebody, "{path}");
        }
    }

    #[test]
    fn a_bearer_token_is_what_follows_the_scheme() {
        assert_eq!(bearer(b"Bearer abc"), Some(b"abc".as_slice()));
        assert_eq!(bearer(b"bEARER  abc "), Some(b"abc".as_slice()));
        for bad in ["", "Bearer", "Bearer ", "Basic abc", "Bearerabc", "abc"] {
            assert_eq!(bearer(bad.as_bytes()), None, "{bad}");
        }
    }
}
