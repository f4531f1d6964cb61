//! How a rule identifies callers and tenants, in words for the published specification and for refusals.

use super::caller_error::CallerError;
use super::settings::{Identity, Source, Tenant};

/// Where a rule can be changed: in `[identity]`, or in the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RuleOwner {
    Default,
    Operation,
}

impl RuleOwner {
    /// The setting of the sources.
    pub(super) const fn setting(self) -> &'static str {
        match self {
            Self::Default => "`identity.sources`",
            Self::Operation => "the operation's `callers`",
        }
    }
}

/// The refusal, with the setting that an operator can change.
pub(super) fn with_setting(why: CallerError, whose: RuleOwner) -> CallerError {
    match why {
        CallerError::Rejected(reason) if !reason.contains("(Service:") => {
            CallerError::Rejected(format!("{reason} (Service: see {}.)", whose.setting()))
        }
        other => other,
    }
}

/// How callers are distinguished: what "the same caller" means to a client.
pub(super) fn description(identity: &Identity) -> String {
    match identity.sources[..] {
        [] => return "per access token".to_owned(),
        [Source::Anonymous] => return "not at all (all are anonymous)".to_owned(),
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

/// The refusal if no source finds anything.
pub(super) fn nobody(sources: &[Source], whose: RuleOwner) -> String {
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
    let here = match whose {
        RuleOwner::Default => "This service",
        RuleOwner::Operation => "For this operation, this service",
    };
    let setting = whose.setting();
    format!(
        "The request does not say who is calling. {here} knows callers by {}. (Service: add a source to {setting}; \
         `anonymous` as the last one lets such requests share one scope.)",
        ways.join(", or ")
    )
}

/// The refusal if there is no tenant.
pub(super) fn no_tenant(tenant: &Tenant, whose: RuleOwner) -> String {
    let way = match tenant {
        Tenant::None => "nothing".to_owned(),
        Tenant::Header(name) => format!("the header {name}, set by the service's own proxy"),
        Tenant::Claim(_) => "a claim of its bearer token".to_owned(),
        Tenant::Host(_) => "the host that it is sent to".to_owned(),
    };
    let setting = match whose {
        RuleOwner::Default => "`identity.tenant`",
        RuleOwner::Operation => "the operation's `tenant`",
    };
    format!(
        "The request does not belong to a known tenant. The tenant comes from {way}. (Service: see {setting}.)"
    )
}
