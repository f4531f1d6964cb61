//! By what callers and tenants are distinguished, in words.

use super::settings::{Identity, Source, Tenant};

/// Callers, and tenants if there are any.
pub fn known(identity: &Identity) -> String {
    let tenants = tenants(identity).map(|tenants| format!("; tenants {tenants}")).unwrap_or_default();
    format!("callers {}{tenants}", callers(identity))
}

/// By what callers are distinguished.
pub fn callers(identity: &Identity) -> String {
    let sources = &identity.sources;
    if identity.is_anonymous() {
        return "all anonymous: one scope for everybody".to_owned();
    }
    if sources.is_empty() {
        return "by Authorization (Basic, Bearer): the guarantee is per access token".to_owned();
    }
    let clients: Vec<_> = sources.iter().map(way).collect();
    format!("by {}", clients.join(", or "))
}

fn way(source: &Source) -> String {
    match source {
        Source::Header(name) => format!("the header {name} of trusted proxies"),
        Source::Jwt(issuers) => {
            let names: Vec<_> = issuers.iter().map(|issuer| issuer.name.as_str()).collect();
            format!("verified tokens of {}", names.join(" and "))
        }
        Source::ApiKey(name) => format!("the API key in {name}"),
        Source::Cookie(name) => format!("the session cookie {name}"),
        Source::Mtls(by) => format!("the {by} of their certificates"),
        Source::Authorization => "Authorization (per access token)".to_owned(),
        Source::Anonymous => "else in one anonymous scope".to_owned(),
    }
}

/// By what tenants are distinguished; `None` if there are none.
pub fn tenants(identity: &Identity) -> Option<String> {
    match &identity.tenant {
        Tenant::None => None,
        Tenant::Header(name) => Some(format!("by the header {name} of trusted proxies")),
        Tenant::Claim(name) => Some(format!("by the token's claim {name}")),
        Tenant::Host(hosts) => Some(format!("by Host: {}", hosts.join(", "))),
    }
}
