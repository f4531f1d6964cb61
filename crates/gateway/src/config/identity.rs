//! `[identity]`: how callers and tenants are identified. Whether the settings fit together is checked later, because
//! operations matter for that.

use super::route_values::header;
use super::table::{Span, Table};
use crate::invalid_value::InvalidValue;
use semel_identity::jwt::{Algorithm, Audience, Issuer, KeySource, Secret, Url};
use semel_identity::{CertificateName, Identity, IdentityError, Network, Source, Tenant};
use std::time::Duration;
use toml::de::DeValue;

/// What `[identity]` says, and the positions of its keys.
pub(super) struct IdentityTable {
    pub(super) sources: Vec<Source>,
    pub(super) tenant: Tenant,
    pub(super) issuers: Vec<Issuer>,
    pub(super) trusted: Vec<Network>,
    pub(super) hosts: Vec<String>,
    /// Whether every issuer could be read. If not, that is already reported, and other checks would be misleading.
    pub(super) is_whole: bool,
    at: IdentitySpans,
}

struct IdentitySpans {
    table: Option<Span>,
    sources: Option<Span>,
    tenant: Option<Span>,
    trusted: Option<Span>,
    hosts: Option<Span>,
    issuers: Vec<(String, Option<Span>)>,
}

pub(super) fn read(table: &Table<'_, '_>) -> IdentityTable {
    let tables = table.tables("issuer", "[[identity.issuer]]");
    let at = IdentitySpans {
        table: table.span(),
        sources: table.span_of("sources"),
        tenant: table.span_of("tenant"),
        trusted: table.span_of("trusted"),
        hosts: table.span_of("tenant_hosts"),
        issuers: tables.iter().map(placed).collect(),
    };
    let issuers: Vec<Issuer> = tables.into_iter().filter_map(issuer).collect();
    let sources = sources(table, "sources", &issuers).unwrap_or_default();
    let trusted =
        table.parsed_list("trusted", |text| text.parse::<Network>().map_err(InvalidValue::of_sentence));
    let trusted = trusted.unwrap_or_default();
    let hosts = table.parsed_list("tenant_hosts", |host| Ok(host.to_owned())).unwrap_or_default();
    let tenant = tenant(table, &hosts).unwrap_or_default();
    let is_whole = issuers.len() == at.issuers.len();
    IdentityTable { sources, tenant, issuers, trusted, hosts, is_whole, at }
}

fn placed(table: &Table<'_, '_>) -> (String, Option<Span>) {
    let name = table.value("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
    (name.to_owned(), table.span_of("name").or_else(|| table.span()))
}

fn source(text: &str, issuers: &[Issuer]) -> Result<Source, InvalidValue> {
    match (text, text.split_once(':')) {
        ("jwt", _) => Ok(Source::Jwt(issuers.to_vec())),
        ("authorization", _) => Ok(Source::Authorization),
        ("anonymous", _) => Ok(Source::Anonymous),
        ("mtls", _) => Ok(Source::Mtls(CertificateName::Subject)),
        ("mtls:uri", _) => Ok(Source::Mtls(CertificateName::Uri)),
        ("mtls:dns", _) => Ok(Source::Mtls(CertificateName::Dns)),
        ("mtls:email", _) => Ok(Source::Mtls(CertificateName::Email)),
        (_, Some(("header", name))) => header(name).map(Source::Header),
        (_, Some(("api-key", name))) => header(name).map(Source::ApiKey),
        (_, Some(("cookie", name))) => Ok(Source::Cookie(name.to_owned())),
        _ => Err(InvalidValue::new(
            format!("unknown source of callers `{text}`"),
            "write \"jwt\", \"header:NAME\", \"api-key:HEADER\", \"cookie:NAME\", \"mtls\", \"mtls:uri\", \"mtls:dns\", \
             \"mtls:email\", \"authorization\" or \"anonymous\"",
        )),
    }
}

/// The sources in a list.
pub(super) fn sources(table: &Table<'_, '_>, key: &'static str, issuers: &[Issuer]) -> Option<Vec<Source>> {
    table.parsed_list(key, |text| source(text, issuers))
}

/// The tenant in a table, if it has one; `hosts` are the possible hosts.
pub(super) fn tenant(table: &Table<'_, '_>, hosts: &[String]) -> Option<Tenant> {
    table.parsed("tenant", |text| match (text, text.split_once(':')) {
        ("none", _) => Ok(Tenant::None),
        ("host", _) => Ok(Tenant::Host(hosts.to_vec())),
        (_, Some(("header", name))) => header(name).map(Tenant::Header),
        (_, Some(("claim", name))) => Ok(Tenant::Claim(name.to_owned())),
        _ => Err(InvalidValue::new(
            format!("unknown source of tenants `{text}`"),
            "write \"none\", \"header:NAME\", \"claim:NAME\" or \"host\"",
        )),
    })
}

fn issuer(table: Table<'_, '_>) -> Option<Issuer> {
    let name = table.text("name").map(|(name, _)| name.to_owned());
    if name.is_none() && !table.has("name") {
        let at = table.span();
        table.document.mistake(at.as_ref(), "an issuer has no name", "write its tokens' `iss` as `name`");
    }
    let (audience, keys) = (audience(&table), keys(&table));
    let algorithms = table.parsed_list("algorithms", |text| {
        let refused = |error| InvalidValue::new(format!("`{text}` is {error}"), "Write one of these");
        text.parse::<Algorithm>().map_err(refused)
    });
    let leeway = table.duration("leeway");
    let is_expiry_required = table.is("expiry_required");
    table.end();
    let mut issuer = Issuer::new(name?, audience?, keys?);
    issuer.algorithms = algorithms.unwrap_or(issuer.algorithms);
    issuer.leeway = leeway.unwrap_or(issuer.leeway);
    issuer.is_expiry_required = is_expiry_required.unwrap_or(issuer.is_expiry_required);
    Some(issuer)
}

fn audience(table: &Table<'_, '_>) -> Option<Audience> {
    let Some(value) = table.value("audience") else {
        let problem = "an issuer has no audience: its tokens for other services would be accepted here too";
        let fix = "write what its tokens for this service have as `aud`, or audience = \"any\" to accept all of them";
        table.document.mistake(table.span_of("name").or_else(|| table.span()).as_ref(), problem, fix);
        return None;
    };
    match value.get_ref() {
        DeValue::String(text) if text == "any" => Some(Audience::Any),
        DeValue::String(text) => Some(Audience::OneOf(vec![text.to_string()])),
        _ => table.parsed_list("audience", |text| Ok(text.to_owned())).map(Audience::OneOf),
    }
}

fn keys(table: &Table<'_, '_>) -> Option<KeySource> {
    let ways = ["secret", "pem", "jwks_file", "jwks_url"];
    let secret = table.secret("secret").map(|secret| KeySource::Secret(Secret::new(secret)));
    let pem = table.file("pem").map(|(_, pem)| KeySource::Pem(pem));
    let file = table.file("jwks_file").map(|(path, _)| KeySource::File(path));
    let url = url(table).map(KeySource::Url);
    let given = ways.iter().filter(|way| table.has(way)).count();
    if given != 1 {
        let problem =
            if given == 0 { "an issuer has no keys" } else { "an issuer has several sources of keys" };
        let at = table.span_of("name").or_else(|| table.span());
        table.document.mistake(at.as_ref(), problem, format!("write one of {}", ways.join(", ")));
        return None;
    }
    secret.or(pem).or(file).or(url)
}

fn url(table: &Table<'_, '_>) -> Option<Url> {
    let every = table.duration("refresh_every");
    let interval = table.duration("refresh_interval_min");
    let stale = table.duration("stale_max");
    let timeout = table.duration("timeout");
    let roots = table.file("ca").map(|(_, pem)| pem);
    let Some((address, _)) = table.text("jwks_url") else {
        let about_url = ["refresh_every", "refresh_interval_min", "stale_max", "timeout", "ca"];
        if let Some(key) = about_url.iter().find(|key| table.has(key)) {
            let problem = format!("`{key}` applies only to keys from jwks_url, which is not set");
            table.document.mistake(table.span_of(key).as_ref(), problem, "remove it");
        }
        return None;
    };
    let mut url = Url::new(address);
    let set = |field: &mut Duration, span: Option<Duration>| *field = span.unwrap_or(*field);
    set(&mut url.refresh_every, every);
    set(&mut url.refresh_interval_min, interval);
    set(&mut url.stale_max, stale);
    set(&mut url.timeout, timeout);
    url.roots_pem = roots;
    Some(url)
}

/// The setting that something unsafe is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting<'u> {
    Sources,
    Tenant,
    Trusted,
    Hosts,
    Issuer(&'u str),
}

impl<'u> Setting<'u> {
    pub(super) fn of(found: &'u IdentityError, identity: &Identity) -> Self {
        match found {
            IdentityError::TrustTooWide(_) | IdentityError::TrustWithoutHeader => Self::Trusted,
            IdentityError::ClaimWithoutToken
            | IdentityError::ClaimName
            | IdentityError::NoHosts
            | IdentityError::HostWithAnonymous => Self::Tenant,
            IdentityError::HostName(_) => Self::Hosts,
            IdentityError::IssuerTwice(issuer)
            | IdentityError::NoAudience(issuer)
            | IdentityError::NoAlgorithm(issuer)
            | IdentityError::Leeway(issuer)
            | IdentityError::AlgorithmOfOtherKey { issuer, .. }
            | IdentityError::ShortSecret { issuer, .. }
            | IdentityError::Key { issuer, .. }
            | IdentityError::KeysAddress { issuer }
            | IdentityError::KeysInTheClear { issuer }
            | IdentityError::KeysRefresh { issuer }
            | IdentityError::KeysNotLoaded { issuer, .. } => Self::Issuer(issuer),
            IdentityError::HeaderWithoutTrust(name)
            | IdentityError::ReservedHeader(name)
            | IdentityError::HeaderTakenOff(name)
                if identity.tenant == Tenant::Header(name.clone())
                    && !identity.sources.contains(&Source::Header(name.clone()))
                    && !identity.sources.contains(&Source::ApiKey(name.clone())) =>
            {
                Self::Tenant
            }
            _ => Self::Sources,
        }
    }
}

impl IdentityTable {
    /// The position of a setting, if it is set.
    pub(super) fn at(&self, setting: Setting<'_>) -> Option<Span> {
        let IdentitySpans { sources, tenant, trusted, hosts, issuers, .. } = &self.at;
        match setting {
            Setting::Sources => sources.clone(),
            Setting::Tenant => tenant.clone(),
            Setting::Trusted => trusted.clone(),
            Setting::Hosts => hosts.clone(),
            Setting::Issuer(issuer) => {
                issuers.iter().rev().find(|(name, _)| name == issuer).and_then(|(_, at)| at.clone())
            }
        }
    }

    /// The position of the first issuer, if there is one.
    pub(super) fn issuer_at(&self) -> Option<&Option<Span>> {
        self.at.issuers.first().map(|(_, at)| at)
    }

    /// The position of the table, as far as it is known.
    pub(super) fn table_at(&self) -> Option<Span> {
        self.at.table.clone()
    }
}
