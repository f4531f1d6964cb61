//! Who is calling: the rule of `[identity]`, and those of operations that write `callers` or `tenant`.
//!
//! What lives here: from what was written to an [`Identity`] for each rule, and what is unsafe about it told at its place. What must
//! never: an operation's rule that is looked at less closely than the default, or a source that the listener cannot feed.

use super::identity::{self, Said, Setting};
use super::mistake::parted;
use super::table::Table;
use crate::identity::{Identity, Source, Tenant, Unsafe};

/// The default rule, and what operations with a rule of their own have in common with it.
pub(super) struct Callers {
    said: Said,
    default: Identity,
    /// Whether the listener asks for certificates.
    asks_clients: bool,
    /// What is unsafe about `[identity]` as it is written.
    found: Vec<Unsafe>,
    /// What was told of operations.
    told: Vec<Unsafe>,
    /// The rules that operations have of their own.
    own: Vec<Identity>,
}

impl Callers {
    /// Reads `[identity]`. `is_anonymous`: a flag says that callers are not told apart, unless an operation does.
    pub(super) fn read(table: &Table<'_, '_>, asks_clients: bool, is_anonymous: bool) -> Self {
        let said = identity::read(table);
        let (sources, tenant, trusted) = (said.sources.clone(), said.tenant.clone(), said.trusted.clone());
        let mut default = Identity { sources, tenant, trusted, is_by_place: false };
        check_certificates(table, "sources", &default, asks_clients);
        let found = default.check().err().filter(|_| said.is_whole).unwrap_or_default();
        if is_anonymous {
            default = Identity { sources: vec![Source::Anonymous], ..Identity::default() };
        }
        Self { said, default, asks_clients, found, told: Vec::new(), own: Vec::new() }
    }

    /// The rule that an `[[operation]]` has of its own: by `callers` and `tenant` where it writes them, and for the rest by
    /// `[identity]`. Nothing where it writes a tenant alone, and that is the default's.
    pub(super) fn of_operation(&mut self, table: &Table<'_, '_>) -> Option<Identity> {
        let sources = identity::sources(table, "callers", &self.said.issuers);
        let tenant = identity::tenant(table, &self.said.hosts);
        let written =
            table.value("callers").and_then(|value| value.get_ref().as_array()).map(|list| list.len());
        // What could not be read is told already.
        if sources.as_ref().map(Vec::len) != written || tenant.is_some() != table.has("tenant") {
            return None;
        }
        if sources.is_none() && tenant.is_none() {
            return None;
        }
        if written == Some(0) {
            let what = "no source is named by which callers of this operation could be told apart";
            let mend =
                "name one, such as \"jwt\" or \"anonymous\"; or take the line out, and [identity] decides";
            table.page.mistake(table.span_of("callers").as_ref(), what, mend);
            return None;
        }
        let mut identity = Identity {
            sources: sources.unwrap_or_else(|| self.default.sources.clone()),
            tenant: tenant.unwrap_or_else(|| self.said.tenant.clone()),
            trusted: Vec::new(),
            // By what stands here alone: what becomes of [identity] must make no key of this operation a new one.
            is_by_place: written.is_some(),
        };
        if believes(&identity) {
            identity.trusted.clone_from(&self.said.trusted);
        }
        check_certificates(table, "callers", &identity, self.asks_clients);
        if self.said.is_whole {
            let mut found = identity.check().err().unwrap_or_default();
            found.extend(identity.check_beside(self.own.iter().chain([&self.default])));
            for found in found {
                self.tell(table, &identity, found);
            }
        }
        self.own.push(identity.clone());
        (identity.is_by_place || identity.tenant != self.default.tenant).then_some(identity)
    }

    /// Tells what is unsafe about an operation's rule, unless that was told where it can be mended.
    fn tell(&mut self, table: &Table<'_, '_>, identity: &Identity, found: Unsafe) {
        let setting = Setting::of(&found, identity);
        let own = match setting {
            Setting::Sources => table.span_of("callers"),
            Setting::Tenant => table.span_of("tenant"),
            Setting::Trusted | Setting::Hosts | Setting::Issuer(_) => None,
        };
        let is_elsewhere = matches!(setting, Setting::Trusted | Setting::Hosts | Setting::Issuer(_));
        // One line of [identity] mends these for all operations.
        let is_shared = is_elsewhere
            || matches!(found, Unsafe::HeaderWithoutTrust(_) | Unsafe::NoIssuers | Unsafe::NoHosts);
        if self.found.contains(&found) && (own.is_none() || is_shared)
            || self.told.contains(&found) && is_shared
        {
            return;
        }
        let here = table.span_of("callers").or_else(|| table.span_of("tenant"));
        let at = own.clone().or_else(|| self.said.at(setting).filter(|_| is_elsewhere)).or(here);
        let told = found.to_string();
        let (what, mend) = parted(&told);
        if own.is_none() && setting == Setting::Tenant {
            let mend = "write tenant = \"none\" for this operation, or tell its callers in another way";
            table.page.mistake(at.as_ref(), format!("{what} (the tenant is that of [identity])"), mend);
        } else {
            table.page.mistake(at.as_ref(), what, mend);
        }
        self.told.push(found);
    }

    /// The default rule, now that it is known what operations go by. Tells what is unsafe about it, and what is of no use.
    pub(super) fn end(mut self, table: &Table<'_, '_>) -> Identity {
        let is_trust_used = self.own.iter().any(believes);
        for found in &self.found {
            if *found == Unsafe::TrustWithoutHeader && is_trust_used {
                continue;
            }
            let setting = match Setting::of(found, &self.default) {
                // The hosts are what is nearest to it.
                Setting::Tenant if matches!(self.said.tenant, Tenant::Host(_)) => Setting::Hosts,
                setting => setting,
            };
            let at = self
                .said
                .at(setting)
                .or_else(|| self.said.at(Setting::Tenant).filter(|_| setting == Setting::Hosts));
            table.page.told(at.or_else(|| self.said.table_at()).as_ref(), &found.to_string());
        }
        if !believes(&self.default) && is_trust_used {
            self.default.trusted.clear();
        }
        self.check_use(table);
        self.default
    }

    /// Tells what stands in `[identity]` and no rule goes by.
    fn check_use(&self, table: &Table<'_, '_>) {
        let has_token = |sources: &[Source]| sources.iter().any(|source| matches!(source, Source::Jwt(_)));
        let is_token_used =
            has_token(&self.said.sources) || self.own.iter().any(|own| has_token(&own.sources));
        if let Some(at) = self.said.issuer_at().filter(|_| !is_token_used) {
            table.page.mistake(
                at.as_ref(),
                "an issuer is set, but `jwt` is not among the sources: its tokens would mean nothing",
                "add \"jwt\" to identity.sources or to an operation's callers, or take the issuer out",
            );
        }
        let is_host = |tenant: &Tenant| matches!(tenant, Tenant::Host(_));
        let is_host_used = is_host(&self.said.tenant) || self.own.iter().any(|own| is_host(&own.tenant));
        if !self.said.hosts.is_empty() && !is_host_used {
            let what = "hosts are named, but the tenant is not told by them";
            let mend = "write tenant = \"host\", or leave tenant_hosts out";
            table.page.mistake(self.said.at(Setting::Hosts).as_ref(), what, mend);
        }
    }
}

fn believes(identity: &Identity) -> bool {
    identity.believed_headers().next().is_some()
}

fn check_certificates(table: &Table<'_, '_>, key: &str, identity: &Identity, asks_clients: bool) {
    if !asks_clients
        && table.has(key)
        && identity.sources.iter().any(|source| matches!(source, Source::Mtls(_)))
    {
        let what = "callers are to be known by their certificates, and the listener asks for none: every request would be refused";
        let mend = "write `client_ca` under [listen], or take mtls out";
        table.page.mistake(table.span_of(key).as_ref(), what, mend);
    }
}
