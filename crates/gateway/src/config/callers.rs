//! Who is calling: the rule of `[identity]`, and those of operations that set `callers` or `tenant`.
//!
//! An operation's rule gets the same checks as the default rule.

use super::identity::{self, IdentityTable, Setting};
use super::table::Table;
use crate::caller_rules;
use crate::invalid_value::InvalidValue;
use semel_identity::{Identity, IdentityError, Source, Tenant};

/// The default rule, and what operations with their own rule share with it.
pub(super) struct Callers {
    identity_table: IdentityTable,
    default: Identity,
    /// Whether the listener asks for certificates.
    asks_clients: bool,
    /// What is unsafe about `[identity]`.
    found: Vec<IdentityError>,
    /// What was reported about operations.
    reported: Vec<IdentityError>,
    /// The operations' own rules.
    operation_rules: Vec<Identity>,
}

impl Callers {
    /// Reads `[identity]`. A flag may say that callers are not distinguished, unless an operation does so.
    pub(super) fn read(table: &Table<'_, '_>, asks_clients: bool) -> Self {
        let identity_table = identity::read(table);
        let (sources, tenant, trusted) =
            (identity_table.sources.clone(), identity_table.tenant.clone(), identity_table.trusted.clone());
        let mut default = Identity { sources, tenant, trusted, is_by_place: false };
        check_certificates(table, "sources", &default, asks_clients);
        let found =
            caller_rules::check(&default).err().filter(|_| identity_table.is_whole).unwrap_or_default();
        if table.is_replaced() {
            default = Identity { sources: vec![Source::Anonymous], ..Identity::default() };
        }
        Self {
            identity_table,
            default,
            asks_clients,
            found,
            reported: Vec::new(),
            operation_rules: Vec::new(),
        }
    }

    /// The own rule of an `[[operation]]`: its `callers` and `tenant` if it has them, and `[identity]` for the rest.
    /// None if it sets only a tenant, and that is the default's.
    pub(super) fn of_operation(&mut self, table: &Table<'_, '_>) -> Option<Identity> {
        let sources = identity::sources(table, "callers", &self.identity_table.issuers);
        let tenant = identity::tenant(table, &self.identity_table.hosts);
        let written =
            table.value("callers").and_then(|value| value.get_ref().as_array()).map(|list| list.len());
        // Unreadable values are already reported.
        if sources.as_ref().map(Vec::len) != written || tenant.is_some() != table.has("tenant") {
            return None;
        }
        if sources.is_none() && tenant.is_none() {
            return None;
        }
        if written == Some(0) {
            let problem = "`callers` is empty, so callers of this operation could not be distinguished";
            let fix =
                "name one, such as \"jwt\" or \"anonymous\"; or remove the line, and [identity] applies";
            table.document.mistake(table.span_of("callers").as_ref(), problem, fix);
            return None;
        }
        let mut identity = Identity {
            sources: sources.unwrap_or_else(|| self.default.sources.clone()),
            tenant: tenant.unwrap_or_else(|| self.identity_table.tenant.clone()),
            trusted: Vec::new(),
            // Only from the operation itself: a change of [identity] must not give this operation's callers new keys.
            is_by_place: written.is_some(),
        };
        if believes(&identity) {
            identity.trusted.clone_from(&self.identity_table.trusted);
        }
        check_certificates(table, "callers", &identity, self.asks_clients);
        if self.identity_table.is_whole {
            let mut found = caller_rules::check(&identity).err().unwrap_or_default();
            found.extend(identity.check_beside(self.operation_rules.iter().chain([&self.default])));
            for found in found {
                self.report_unsafe(table, &identity, found);
            }
        }
        self.operation_rules.push(identity.clone());
        (identity.is_by_place || identity.tenant != self.default.tenant).then_some(identity)
    }

    /// Reports what is unsafe about an operation's rule, unless that was reported where it can be fixed.
    fn report_unsafe(&mut self, table: &Table<'_, '_>, identity: &Identity, found: IdentityError) {
        let setting = Setting::of(&found, identity);
        let own_span = match setting {
            Setting::Sources => table.span_of("callers"),
            Setting::Tenant => table.span_of("tenant"),
            Setting::Trusted | Setting::Hosts | Setting::Issuer(_) => None,
        };
        let is_elsewhere = matches!(setting, Setting::Trusted | Setting::Hosts | Setting::Issuer(_));
        // One line of [identity] fixes these for all operations.
        let is_shared = is_elsewhere
            || matches!(
                found,
                IdentityError::HeaderWithoutTrust(_) | IdentityError::NoIssuers | IdentityError::NoHosts
            );
        if self.found.contains(&found) && (own_span.is_none() || is_shared)
            || self.reported.contains(&found) && is_shared
        {
            return;
        }
        let operation_span = table.span_of("callers").or_else(|| table.span_of("tenant"));
        let at = own_span
            .clone()
            .or_else(|| self.identity_table.at(setting).filter(|_| is_elsewhere))
            .or(operation_span);
        let mut refused = InvalidValue::of_sentence(&found);
        if own_span.is_none() && setting == Setting::Tenant {
            refused = InvalidValue::new(
                format!("{} (the tenant comes from [identity])", refused.problem),
                "write tenant = \"none\" for this operation, or identify its callers in another way",
            );
        }
        table.document.invalid(at.as_ref(), refused);
        self.reported.push(found);
    }

    /// The default rule, after all operations were read. Reports what is unsafe about it, and settings that no rule
    /// uses.
    pub(super) fn end(mut self, table: &Table<'_, '_>) -> Identity {
        let is_trust_used = self.operation_rules.iter().any(believes);
        for found in &self.found {
            if *found == IdentityError::TrustWithoutHeader && is_trust_used {
                continue;
            }
            let setting = match Setting::of(found, &self.default) {
                // The hosts are the nearest setting.
                Setting::Tenant if matches!(self.identity_table.tenant, Tenant::Host(_)) => Setting::Hosts,
                setting => setting,
            };
            let at = self
                .identity_table
                .at(setting)
                .or_else(|| self.identity_table.at(Setting::Tenant).filter(|_| setting == Setting::Hosts));
            let at = at.or_else(|| self.identity_table.table_at());
            table.document.invalid(at.as_ref(), InvalidValue::of_sentence(found));
        }
        if !believes(&self.default) && is_trust_used {
            self.default.trusted.clear();
        }
        self.check_use(table);
        self.default
    }

    /// Reports settings in `[identity]` that no rule uses.
    fn check_use(&self, table: &Table<'_, '_>) {
        let has_token = |sources: &[Source]| sources.iter().any(|source| matches!(source, Source::Jwt(_)));
        let is_token_used = has_token(&self.identity_table.sources)
            || self.operation_rules.iter().any(|rule| has_token(&rule.sources));
        if let Some(at) = self.identity_table.issuer_at().filter(|_| !is_token_used) {
            table.document.mistake(
                at.as_ref(),
                "an issuer is set, but `jwt` is not among the sources, so its tokens would be ignored",
                "add \"jwt\" to identity.sources or to an operation's callers, or remove the issuer",
            );
        }
        let is_host = |tenant: &Tenant| matches!(tenant, Tenant::Host(_));
        let is_host_used = is_host(&self.identity_table.tenant)
            || self.operation_rules.iter().any(|rule| is_host(&rule.tenant));
        if !self.identity_table.hosts.is_empty() && !is_host_used {
            let problem = "tenant_hosts is set, but the tenant does not come from the host";
            let fix = "write tenant = \"host\", or remove tenant_hosts";
            table.document.mistake(self.identity_table.at(Setting::Hosts).as_ref(), problem, fix);
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
        let problem = "callers are identified by certificates, but the listener asks for none, so every \
            request would be refused";
        let fix = "write `client_ca` under [listen], or remove mtls";
        table.document.mistake(table.span_of(key).as_ref(), problem, fix);
    }
}
