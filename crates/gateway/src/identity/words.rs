//! What is said about a rule, to clients and to operators.
//!
//! What lives here: the ways in which a rule knows callers and tenants, as they are published and as refusals tell them. What must
//! never: a word out of a request.

use super::{Identity, Source, Tenant};

/// Where a rule can be changed: in `[identity]`, or with the operation that has its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Default,
    Operation,
}

/// By what callers are told apart: what "the same caller" means to a client.
pub(super) fn told_apart(identity: &Identity) -> String {
    match identity.sources[..] {
        [] => return "per access token".to_owned(),
        [Source::Anonymous] => return "not at all: all are anonymous".to_owned(),
        _ => {}
    }
    let ways: Vec<_> = identity
        .sources
        .iter()
        .map(|source| match source {
            Source::Header(_) => "per identity, as the service determines it".to_owned(),
            Source::Jwt(_) => "per issuer and subject of the bearer token".to_owned(),
            Source::ApiKey(name) => format!("per API key in {name}"),
            Source::Cookie(name) => format!("per session in the cookie {name}"),
            Source::Mtls(by) => format!("per {by} of the client certificate"),
            Source::Authorization => "per access token".to_owned(),
            Source::Anonymous => "else not at all: such requests are anonymous".to_owned(),
        })
        .collect();
    ways.join(", or ")
}

/// What is told where no source finds anything.
pub(super) fn nobody(sources: &[Source], whose: Whose) -> String {
    let ways: Vec<String> = sources
        .iter()
        .filter_map(|source| match source {
            Source::Header(name) => Some(format!("the header {name}, set by the service's own proxy")),
            Source::Jwt(_) => Some("a token in `Authorization: Bearer`".to_owned()),
            Source::ApiKey(name) => Some(format!("an API key in the header {name}")),
            Source::Cookie(name) => Some(format!("the session cookie {name}")),
            Source::Mtls(by) => Some(format!("the {by} of a client certificate")),
            Source::Authorization => Some("an Authorization header".to_owned()),
            Source::Anonymous => None,
        })
        .collect();
    let (here, setting) = match whose {
        Whose::Default => ("This service", "`identity.sources`"),
        Whose::Operation => ("For this operation, this service", "the operation's `callers`"),
    };
    format!(
        "The request does not say who is calling. {here} knows callers by {}. (Service: add a source to {setting}; \
         `anonymous` as the last one lets such requests share one scope.)",
        ways.join(", or ")
    )
}

/// What is told where the tenant cannot be told.
pub(super) fn no_tenant(tenant: &Tenant, whose: Whose) -> String {
    let way = match tenant {
        Tenant::None => "nothing".to_owned(),
        Tenant::Header(name) => format!("the header {name}, set by the service's own proxy"),
        Tenant::Claim(_) => "a claim of its bearer token".to_owned(),
        Tenant::Host(_) => "the host that it is sent to".to_owned(),
    };
    let setting = match whose {
        Whose::Default => "`identity.tenant`",
        Whose::Operation => "the operation's `tenant`",
    };
    format!(
        "The request does not belong to a tenant that is known here; it is told by {way}. (Service: see {setting}.)"
    )
}
