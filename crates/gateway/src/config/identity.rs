//! `[identity]`: who is calling.
//!
//! What lives here: from the table to [`Identity`], and what is unsafe about it told at its place. What must never: a source
//! that the listener cannot feed.

use super::table::{Span, Table};
use crate::identity::jwt::{Algorithm, Audience, Issuer, KeySource, Secret, Url};
use crate::identity::{Identity, Named, Network, Source, Tenant, Unsafe};
use http::HeaderName;
use std::time::Duration;
use toml::de::DeValue;

/// `asks_clients`: whether the listener asks for certificates.
pub(super) fn read(table: &Table<'_, '_>, asks_clients: bool) -> Identity {
    let tables = table.tables("issuer", "[[identity.issuer]]");
    let places: Vec<(String, Option<Span>)> = tables.iter().map(placed).collect();
    let count = tables.len();
    let issuers: Vec<Issuer> = tables.into_iter().filter_map(issuer).collect();
    let is_whole = issuers.len() == count;
    let sources = table.parsed_list("sources", |text| source(text, &issuers)).unwrap_or_default();
    if count > 0 && !sources.iter().any(|source| matches!(source, Source::Jwt(_))) {
        table.page.mistake(
            places.first().and_then(|(_, at)| at.as_ref()),
            "an issuer is set, but `jwt` is not among the sources: its tokens would mean nothing",
            "add \"jwt\" to identity.sources, or take the issuer out",
        );
    }
    if !asks_clients && sources.iter().any(|source| matches!(source, Source::Mtls(_))) {
        let what = "callers are to be known by their certificates, and the listener asks for none: every request would be refused";
        let mend = "write `client_ca` under [listen], or take mtls out";
        table.page.mistake(table.span_of("sources").as_ref(), what, mend);
    }
    let trusted =
        table.parsed_list("trusted", |text| text.parse::<Network>().map_err(|error| error.to_string()));
    let identity = Identity { sources, tenant: tenant(table), trusted: trusted.unwrap_or_default() };
    // What could not be read is told already; without it the rest would look worse than it is.
    if is_whole && let Err(found) = identity.check() {
        for unsafe_ in found {
            let at = place(&unsafe_, table, &places);
            table.page.told(at.as_ref(), &unsafe_.to_string());
        }
    }
    identity
}

fn placed(table: &Table<'_, '_>) -> (String, Option<Span>) {
    let name = table.value("name").and_then(|name| name.get_ref().as_str()).unwrap_or_default();
    (name.to_owned(), table.span_of("name").or_else(|| table.span()))
}

fn header(name: &str) -> Result<HeaderName, String> {
    name.to_ascii_lowercase().parse().map_err(|_| format!("`{name}` is no header: write a header's name"))
}

fn source(text: &str, issuers: &[Issuer]) -> Result<Source, String> {
    match (text, text.split_once(':')) {
        ("jwt", _) => Ok(Source::Jwt(issuers.to_vec())),
        ("authorization", _) => Ok(Source::Authorization),
        ("anonymous", _) => Ok(Source::Anonymous),
        ("mtls", _) => Ok(Source::Mtls(Named::Subject)),
        ("mtls:uri", _) => Ok(Source::Mtls(Named::Uri)),
        ("mtls:dns", _) => Ok(Source::Mtls(Named::Dns)),
        ("mtls:email", _) => Ok(Source::Mtls(Named::Email)),
        (_, Some(("header", name))) => header(name).map(Source::Header),
        (_, Some(("api-key", name))) => header(name).map(Source::ApiKey),
        (_, Some(("cookie", name))) => Ok(Source::Cookie(name.to_owned())),
        _ => Err(format!(
            "no caller can be told by `{text}`: write \"jwt\", \"header:NAME\", \"api-key:HEADER\", \"cookie:NAME\", \
             \"mtls\", \"mtls:uri\", \"mtls:dns\", \"mtls:email\", \"authorization\" or \"anonymous\""
        )),
    }
}

fn tenant(table: &Table<'_, '_>) -> Tenant {
    let hosts = table.parsed_list("tenant_hosts", |host| Ok(host.to_owned()));
    let tenant = table.parsed("tenant", |text| match (text, text.split_once(':')) {
        ("none", _) => Ok(Tenant::None),
        ("host", _) => Ok(Tenant::Host(hosts.clone().unwrap_or_default())),
        (_, Some(("header", name))) => header(name).map(Tenant::Header),
        (_, Some(("claim", name))) => Ok(Tenant::Claim(name.to_owned())),
        _ => Err(format!(
            "no tenant can be told by `{text}`: write \"none\", \"header:NAME\", \"claim:NAME\" or \"host\""
        )),
    });
    let tenant = tenant.unwrap_or_default();
    if hosts.is_some_and(|hosts| !hosts.is_empty()) && !matches!(tenant, Tenant::Host(_)) {
        let at = table.span_of("tenant_hosts");
        let what = "hosts are named, but the tenant is not told by them";
        table.page.mistake(at.as_ref(), what, "write tenant = \"host\", or leave tenant_hosts out");
    }
    tenant
}

fn issuer(table: Table<'_, '_>) -> Option<Issuer> {
    let name = table.text("name").map(|(name, _)| name.to_owned());
    if name.is_none() && !table.has("name") {
        let at = table.span();
        table.page.mistake(at.as_ref(), "an issuer has no name", "write its tokens' `iss` as `name`");
    }
    let (audience, keys) = (audience(&table), keys(&table));
    let algorithms = table.parsed_list("algorithms", |text| {
        text.parse::<Algorithm>().map_err(|error| format!("`{text}` is {error}. Write one of these"))
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
        let what = "an issuer has no audience: tokens that it made for other services would do here too";
        let mend =
            "write what its tokens for this service have as `aud`, or audience = \"any\" where that is meant";
        table.page.mistake(table.span_of("name").or_else(|| table.span()).as_ref(), what, mend);
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
        let what =
            if given == 0 { "an issuer has no keys" } else { "an issuer has its keys from several places" };
        let at = table.span_of("name").or_else(|| table.span());
        table.page.mistake(at.as_ref(), what, format!("write one of {}", ways.join(", ")));
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
            let what = format!("`{key}` is about keys that are fetched from jwks_url, and there is none");
            table.page.mistake(table.span_of(key).as_ref(), what, "take it out");
        }
        return None;
    };
    let mut url = Url::new(address);
    let set = |place: &mut Duration, span: Option<Duration>| *place = span.unwrap_or(*place);
    set(&mut url.refresh_every, every);
    set(&mut url.refresh_interval_min, interval);
    set(&mut url.stale_max, stale);
    set(&mut url.timeout, timeout);
    url.roots_pem = roots;
    Some(url)
}

/// Where the setting stands that is unsafe.
fn place(found: &Unsafe, table: &Table<'_, '_>, issuers: &[(String, Option<Span>)]) -> Option<Span> {
    let key =
        match found {
            Unsafe::TrustTooWide(_) | Unsafe::TrustWithoutHeader => "trusted",
            Unsafe::ClaimWithoutToken | Unsafe::ClaimName => "tenant",
            Unsafe::NoHosts | Unsafe::HostName(_) | Unsafe::HostWithAnonymous => {
                if table.has("tenant_hosts") { "tenant_hosts" } else { "tenant" }
            }
            Unsafe::IssuerTwice(issuer)
            | Unsafe::NoAudience(issuer)
            | Unsafe::NoAlgorithm(issuer)
            | Unsafe::Leeway(issuer)
            | Unsafe::AlgorithmOfOtherKey { issuer, .. }
            | Unsafe::ShortSecret { issuer, .. }
            | Unsafe::Key { issuer, .. }
            | Unsafe::KeysAddress { issuer }
            | Unsafe::KeysInTheClear { issuer }
            | Unsafe::KeysRefresh { issuer }
            | Unsafe::KeysNotLoaded { issuer, .. } => {
                return issuers.iter().rev().find(|(name, _)| name == issuer).and_then(|(_, at)| at.clone());
            }
            _ => "sources",
        };
    table.span_of(key).or_else(|| table.span())
}
