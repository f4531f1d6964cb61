//! What is printed at start: what is protected, with which guarantee, on which store, and what is dangerous.
//!
//! What lives here: the words. What must never: a sentence that is not read from the plan or the store.

use super::{Admin, Hashing, Next, Operation, Plan};
use crate::ask::{self, Questions};
use crate::cli::{size, span};
use crate::identity::{Identity, Source, Tenant};
use crate::trace::{self, Tracer};
use crate::upstream::Transport;
use semel::core::classify::Rules;
use semel::core::outcome::Status;
use semel::core::policy::{AfterExpiry, Class};
use semel::core::store::{Capabilities, Error, Hazard, Severity};
use semel::quota::{Rate, Rates};
use semel::sealing::Seal;
use semel_http::{KeyRule, KeySource, Mode, Retain, StoreDown, Terms};
use std::fmt::Write as _;
use std::net::SocketAddr;

/// The announcement, line by line.
pub(super) fn text(
    plan: &Plan,
    address: SocketAddr,
    desk: Option<SocketAddr>,
    store: Capabilities,
    hazards: Result<Vec<Hazard>, Error>,
) -> String {
    let mut said = String::new();
    let mut say = |what: &str, more: &str| {
        let _ = writeln!(said, "  {what:<10} {more}");
    };
    let scheme = if plan.listen.tls.is_some() { "https" } else { "http" };
    say("listening", &format!("{scheme}://{address}"));
    say("upstream", &upstream(plan));
    if let (Some(desk), Some(admin)) = (desk, &plan.admin) {
        say("admin", &admitted(desk, admin));
    }
    for operation in &plan.operations {
        for (at, line) in told(operation).iter().enumerate() {
            say(if at == 0 { "operation" } else { "" }, line);
        }
    }
    say(if plan.operations.is_empty() { "protects" } else { "otherwise" }, &protects(&plan.terms));
    if plan.terms.key != KeyRule::Off {
        let promised = guarantee(&plan.terms).into_iter().chain(asked(&plan.questions, &plan.terms));
        for (at, line) in promised.enumerate() {
            say(if at == 0 { "guarantee" } else { "" }, &line);
        }
        for (at, line) in assumption(&plan.terms).iter().enumerate() {
            say(if at == 0 { "assumes" } else { "" }, line);
        }
    }
    if plan.is_any_protected() {
        say("callers", &callers(&plan.identity));
        if let Some(tenants) = tenants(&plan.identity) {
            say("tenants", &tenants);
        }
        say("store", &kept(plan, store));
        if plan.sealing.is_some() {
            say("sealed", &sealed(plan));
        }
        if !plan.quotas.are_off() {
            say("quotas", "on new keys; retries and replays are never refused by them");
        }
        if let Some(hashed) = hashed(plan) {
            say("hashed", hashed);
        }
        if let Some(archive) = &plan.keeping.archive {
            say("archive", &format!("{}: records, before they are deleted", archive.display()));
        }
        let prefix = &plan.prefix;
        say("published", &format!("{prefix}/.well-known/idempotency and {prefix}/operations/{{id}}"));
    }
    if let Some(tracer) = &plan.tracer {
        say("spans", &format!("to {}", tracer.options().endpoint));
    }
    let hazards = hazards.unwrap_or_else(|error| vec![unverified(&error)]);
    for warning in warnings(plan, store, &hazards) {
        let _ = writeln!(said, "\n  {warning}");
    }
    said
}

fn admitted(desk: SocketAddr, admin: &Admin) -> String {
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    if admin.options.tokens.is_empty() {
        return format!("{scheme}://{desk} (from this machine only)");
    }
    let mut names: Vec<_> = admin.options.tokens.iter().map(|token| token.name.as_str()).collect();
    names.dedup();
    format!("{scheme}://{desk} (by token: {})", names.join(", "))
}

/// What can be read with a key only.
fn sealed(plan: &Plan) -> String {
    let is_by_choice = plan.all_terms().any(|terms| terms.seal == Seal::Off);
    if !is_by_choice {
        return "stored answers can be read with a key of [sealing] only".to_owned();
    }
    let others = (plan.terms.seal == Seal::Required).then_some("requests that are no operation's");
    let chosen = plan.operations.iter().filter(|operation| operation.terms.seal == Seal::Required);
    let chosen = chosen.map(|operation| operation.terms.name.as_deref().unwrap_or(&operation.template));
    let chosen: Vec<_> = chosen.chain(others).collect();
    let besides = "what workers, probes and operators report; other answers are stored as they are";
    if chosen.is_empty() {
        return format!("only {besides}");
    }
    format!("the answers of {}, and {besides}", chosen.join(", "))
}

/// What an operation's own rates are.
fn limited(rates: &Rates) -> Option<String> {
    let told = |rate: Option<Rate>, whose: &str| {
        rate.map(|Rate { count, per }| format!("{count} in {} {whose}", span::text(per)))
    };
    let told = [
        told(rates.new_per_caller, "per caller"),
        told(rates.new_per_address, "per address"),
        told(rates.new_in_total, "in total"),
    ];
    let told: Vec<_> = told.into_iter().flatten().collect();
    (!told.is_empty()).then(|| format!("new keys: at most {}", told.join(", ")))
}

fn hashed(plan: &Plan) -> Option<&'static str> {
    let Hashing { secret, next } = &plan.keeping.hashing;
    match (secret, next) {
        (_, Next::Secret(_)) => {
            Some("keys and callers, by a secret that is being replaced with hashing_secret_next")
        }
        (_, Next::Withdrawn) => {
            Some("keys and callers, by a secret of which no replacement is announced any more")
        }
        (Some(_), Next::None) => Some("keys and callers, by hashing_secret, which the store does not hold"),
        (None, Next::None) => None,
    }
}

fn upstream(plan: &Plan) -> String {
    let (connect, response) = (plan.upstream.connect_timeout, plan.upstream.response_timeout);
    let fresh = if plan.upstream.is_fresh_when_protected { ", a fresh connection each" } else { "" };
    format!("{} (connect {}, response {}{fresh})", plan.target, span::text(connect), span::text(response))
}

fn methods(terms: &Terms) -> String {
    let methods: Vec<_> = terms.methods.iter().map(http::Method::as_str).collect();
    methods.join(" and ")
}

/// Whether a key is needed, and where it comes from.
fn key(terms: &Terms, rule: &str) -> String {
    match &terms.key_source {
        KeySource::Header(name) if *name == semel_http::names::KEY => format!("Idempotency-Key {rule}"),
        source => format!("key {rule}, from {source}"),
    }
}

fn protects(terms: &Terms) -> String {
    let (methods, max) = (methods(terms), size::text(terms.request_bytes_max));
    let what = match (terms.key, &terms.key_source) {
        (KeyRule::Off, _) => return "nothing: key off".to_owned(),
        (KeyRule::Required, _) => format!("{methods}, every path; {}", key(terms, "required")),
        (KeyRule::Optional, KeySource::Header(name)) if *name == semel_http::names::KEY => {
            format!("{methods} that have an Idempotency-Key")
        }
        (KeyRule::Optional, source) => format!("{methods} that have a key in {source}"),
    };
    format!("{what}; bodies up to {max}{}", shadow(terms))
}

fn shadow(terms: &Terms) -> &'static str {
    if terms.mode == Mode::Shadow { "; SHADOW, nothing is enforced" } else { "" }
}

/// What one operation is promised.
fn told(operation: &Operation) -> Vec<String> {
    let Operation { template, terms, questions, rates, .. } = operation;
    let name = terms.name.as_ref().map(|name| format!("{name}: ")).unwrap_or_default();
    let what = format!("{name}{} {template}", methods(terms));
    let rule = match terms.key {
        KeyRule::Off => return vec![format!("{what}; not protected")],
        KeyRule::Required => "required",
        KeyRule::Optional => "optional",
    };
    let mut lines = vec![format!("{what}; {}{}", key(terms, rule), shadow(terms))];
    let policy = &terms.policy;
    let promise = match policy.class {
        Class::Downstream => {
            format!("downstream, which recognises repeats for {}", span::text(policy.dedup_window))
        }
        Class::External | Class::Local => format!("{}, at most once per key", policy.class),
    };
    let least = match (&terms.retain, terms.seal) {
        (Retain::Minimal(_), _) => " (the least is kept)",
        (Retain::Whole, Seal::Required) => " (sealed)",
        (Retain::Whole, Seal::WithKeys | Seal::Off) => "",
    };
    lines.push(format!("{promise}; replayed for {}{least}, {}", span::text(policy.ttl), after(terms)));
    if policy.class != Class::Downstream && terms.rules.not_applied != Rules::default().not_applied {
        lines.extend(assumption(terms).into_iter().map(|line| format!("assumes {line}")));
    }
    lines.extend(asked(questions, terms));
    lines.extend(limited(rates));
    lines.extend(operation.callers());
    lines
}

fn known(identity: &Identity) -> String {
    let tenants = tenants(identity).map(|tenants| format!("; tenants {tenants}")).unwrap_or_default();
    format!("callers {}{tenants}", callers(identity))
}

impl Operation {
    /// By what its callers, and their tenants, are told apart, where that is by a rule of its own.
    pub(crate) fn callers(&self) -> Option<String> {
        self.identity.as_ref().map(known)
    }
}

/// What is asked of the service, or about it.
fn asked(questions: &Questions, terms: &Terms) -> Vec<String> {
    let Questions { probe, authorize, rebuild } = questions;
    let mut lines = Vec::new();
    if let Some(probe) = probe {
        let (method, place, pace) = (&probe.method, &probe.place, &probe.pace);
        let until = span::text(pace.give_up_after);
        let when = match terms.policy.class {
            Class::Downstream => format!("what is in doubt after {}", span::text(terms.policy.dedup_window)),
            Class::External | Class::Local => "what ends in doubt".to_owned(),
        };
        lines.push(format!("{when} is looked up by {method} {place}, for {until}"));
    }
    if let Some(authorize) = authorize {
        lines.push(format!("replayed only where the service allows it at {}", authorize.path));
    }
    match rebuild.as_ref().map(|rebuild| &rebuild.source) {
        Some(ask::Source::Location) => {
            lines.push("replays are made anew from the response's Location".to_owned());
        }
        Some(ask::Source::Path(path)) => lines.push(format!("replays are made anew from {path}")),
        None => {}
    }
    lines
}

fn after(terms: &Terms) -> String {
    match terms.policy.after_expiry {
        AfterExpiry::Refuse => format!("then refused as expired for {}", span::text(terms.policy.tombstone)),
        AfterExpiry::RunAsNew => "then run as new".to_owned(),
    }
}

fn guarantee(terms: &Terms) -> Vec<String> {
    let policy = &terms.policy;
    let (kept, after) = (span::text(policy.ttl), after(terms));
    match policy.class {
        Class::Downstream => vec![
            format!(
                "downstream: once per key, as long as the upstream recognises repeats for {}",
                span::text(policy.dedup_window)
            ),
            format!("outcomes replayed for {kept}, {after}"),
        ],
        Class::External | Class::Local => vec![
            format!("{}: at most once per key; outcomes replayed for {kept}, {after}", policy.class),
            "an attempt that ends in doubt is UNKNOWN and is not repeated".to_owned(),
        ],
    }
}

fn assumption(terms: &Terms) -> Vec<String> {
    if terms.policy.class == Class::Downstream {
        return vec![
            "the upstream gives a repeat of an Operation-Id or key the first one's answer".to_owned(),
        ];
    }
    let (mut http, mut grpc) = (Vec::new(), Vec::new());
    for status in &terms.rules.not_applied {
        match status {
            Status::Http(503) => http.push("503 with Retry-After".to_owned()),
            Status::Http(code) => http.push(code.to_string()),
            Status::Grpc(code) => grpc.push(code.to_string()),
            Status::Value => {}
        }
    }
    let (http, grpc) = (http.join(", "), grpc.join(" and "));
    match (http.is_empty(), grpc.is_empty()) {
        (true, true) => vec!["of no status that nothing took effect".to_owned()],
        (false, true) => vec![format!("the upstream answers {http} only when nothing took effect")],
        (true, false) => vec![format!("the upstream answers gRPC {grpc} only when nothing took effect")],
        (false, false) => {
            vec![
                format!("the upstream answers {http}, and"),
                format!("gRPC {grpc}, only when nothing took effect"),
            ]
        }
    }
}

fn callers(identity: &Identity) -> String {
    let sources = &identity.sources;
    if identity.is_anonymous() {
        return "all anonymous: one scope for everybody".to_owned();
    }
    if sources.is_empty() {
        return "by Authorization (Basic, Bearer): the guarantee is per access token".to_owned();
    }
    let ways: Vec<_> = sources.iter().map(way).collect();
    format!("by {}", ways.join(", or "))
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

fn tenants(identity: &Identity) -> Option<String> {
    match &identity.tenant {
        Tenant::None => None,
        Tenant::Header(name) => Some(format!("by the header {name} of trusted proxies")),
        Tenant::Claim(name) => Some(format!("by the token's claim {name}")),
        Tenant::Host(hosts) => Some(format!("by Host: {}", hosts.join(", "))),
    }
}

fn kept(plan: &Plan, store: Capabilities) -> String {
    let durable = if store.durable { "synced to disk before it answers" } else { "not durable" };
    format!("{} ({durable})", plan.store)
}

fn warnings(plan: &Plan, store: Capabilities, hazards: &[Hazard]) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(Admin { options, tls: None }) = &plan.admin
        && !options.address.ip().to_canonical().is_loopback()
    {
        told.push(format!(
            "danger: tokens and answers cross the network in the clear at the admin address {}\n    mend: set tls_cert and \
             tls_key under [admin], or listen on 127.0.0.1 and reach it through a tunnel",
            options.address
        ));
    }
    if let Some(trace::Options { endpoint, headers, .. }) = plan.tracer.as_ref().map(Tracer::options)
        && !headers.is_empty()
        && endpoint.transport() != Transport::Https
        && !endpoint.is_loopback()
    {
        told.push(format!(
            "danger: what [[otlp.header]] holds crosses the network in the clear, on its way to the collector {endpoint}\n    \
             mend: send to https:// (with ca, where its authority is your own), or to a collector on this machine"
        ));
    }
    if !plan.is_any_protected() {
        told.push("warning: nothing is protected; requests are passed on as they come".to_owned());
        return told;
    }
    // Most stores tell by themselves, and what mends it.
    if !store.durable && !hazards.iter().any(|hazard| hazard.severity == Severity::Danger) {
        told.push(
            "danger: records are gone when this process ends; a retry after that runs again".to_owned(),
        );
    }
    if plan.all_terms().any(|terms| terms.store_down == StoreDown::PassUnprotected) {
        told.push(
            "danger: while the store cannot be reached, requests are handed on UNPROTECTED (store_down = \"pass\")"
                .to_owned(),
        );
    }
    if sends_secrets_openly(plan) {
        told.push(format!(
            "danger: the secret headers of a probe cross the network in the clear to {}\n    mend: write an https:// upstream, or a \
             probe url of its own that begins with https://",
            plan.target
        ));
    }
    if plan.identity.is_anonymous() {
        told.push(
            "warning: whoever knows a key gets its outcome, and every caller's keys are the same".to_owned(),
        );
    } else if plan.identity.sources.is_empty() {
        told.push("note: requests without Authorization share one anonymous scope".to_owned());
    }
    for operation in &plan.operations {
        let Some(identity) = operation.identity.as_ref().filter(|identity| identity.is_open()) else {
            continue;
        };
        let title = operation.title();
        told.push(if identity.is_anonymous() {
            format!("note: whoever knows a key of {title} gets its outcome; its callers are not told apart")
        } else {
            format!(
                "note: requests to {title} that show nothing of what its callers are known by share one anonymous scope: whoever \
                 knows a key of these gets its outcome"
            )
        });
    }
    let longest = plan.all_terms().map(|terms| terms.policy.work_deadline).max().unwrap_or_default();
    if plan.listen.drain < longest {
        told.push(format!(
            "note: an attempt may take {}, and at a stop only {} are waited for: slower ones are then unknown (--drain)",
            span::text(longest),
            span::text(plan.listen.drain)
        ));
    }
    for hazard in hazards {
        let loud = match hazard.severity {
            Severity::Danger => "danger",
            Severity::Unverified => "unverified",
            Severity::Notice => "note",
        };
        told.push(format!("{loud}: {} ({})\n    mend: {}", hazard.what, hazard.code, hazard.mend));
    }
    told
}

/// Whether anybody on the way to the upstream could read what a probe shows it.
fn sends_secrets_openly(plan: &Plan) -> bool {
    let all = plan.operations.iter().map(|operation| &operation.questions).chain([&plan.questions]);
    let mut probes = all.filter_map(|questions| questions.probe.as_ref());
    probes.any(|probe| {
        probe.headers.values().any(http::HeaderValue::is_sensitive) && probe.place.is_open_below(&plan.target)
    })
}

fn unverified(error: &Error) -> Hazard {
    Hazard {
        severity: Severity::Unverified,
        code: "store-unverified",
        what: format!("what is dangerous about the store could not be looked at: {error}"),
        mend: "look at the store; requests with a key are refused for as long as it does not answer"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::Target;

    #[test]
    fn each_operation_is_told_with_what_it_is_promised() {
        let config = "[defaults]\nkey = \"off\"\n\
            [[operation]]\nname = \"charge\"\npath = \"/charges\"\nkey = \"required\"\nttl = \"7d\"\n\
            not_applied_statuses = []\nstore_down = \"pass\"\n\
            [[operation]]\npath = \"/hook\"\nkey = \"optional\"\nkey_from = \"json:/id\"\nclass = \"downstream\"\n\
            mode = \"shadow\"\nafter_expiry = \"run-as-new\"\n\
            [[operation]]\npath = \"/logs\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides { target: Some(target), ..Default::default() };
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let said: Vec<String> = plan.operations.iter().flat_map(told).collect();
        assert_eq!(
            said,
            [
                "charge: POST and PATCH /charges; Idempotency-Key required",
                "external, at most once per key; replayed for 7d, then refused as expired for 30d",
                "assumes of no status that nothing took effect",
                "POST and PATCH /hook; key optional, from the JSON body at /id; SHADOW, nothing is enforced",
                "downstream, which recognises repeats for 1d; replayed for 1d, then run as new",
                "POST and PATCH /logs; not protected",
            ]
        );
        assert_eq!(protects(&plan.terms), "nothing: key off");
        let durable = Capabilities {
            durable: true,
            ..semel::core::store::Store::capabilities(&semel::memory::Store::new())
        };
        let warned = warnings(&plan, durable, &[]).join("\n");
        assert!(warned.contains("UNPROTECTED") && warned.contains("anonymous scope"), "{warned}");
    }

    #[test]
    fn tokens_that_cross_a_network_in_the_clear_are_a_danger_that_is_told() {
        let token = "[[admin.token]]\nname = \"ops\"\nroles = [\"read\"]\n\
            hash = \"sha256:f717cc288f8244cd16e83dac18a2583f289edb13c096663087f5436e18bde736\"\n";
        let warned = |admin: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides { target: Some(target), ..Default::default() };
            let config = crate::config::read(&format!("[admin]\n{admin}{token}"), &over, &|_| None);
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = semel::core::store::Store::capabilities(&semel::memory::Store::new());
            let admin = plan.admin.as_ref().expect("open");
            (admitted(admin.options.address, admin), warnings(&plan, store, &[]).join("\n"))
        };
        let (told, warning) = warned("address = \"0.0.0.0:9090\"\n");
        assert_eq!(told, "http://0.0.0.0:9090 (by token: ops)");
        assert!(warning.contains("danger: tokens and answers cross the network in the clear"), "{warning}");
        let pem = crate::config::tests::pem::Pem::new();
        let tls = pem.tls();
        let (told, warning) = warned(&format!("address = \"0.0.0.0:9090\"\n{tls}"));
        assert!(told.starts_with("https://") && !warning.contains("in the clear"), "{warning}");
        assert!(!warned("address = \"127.0.0.1:9090\"\n").1.contains("in the clear"));
    }

    #[test]
    fn where_spans_go_is_told_and_a_secret_that_crosses_a_network_in_the_clear_is_a_danger() {
        let said = |endpoint: &str, header: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides { target: Some(target), ..Default::default() };
            let text = format!("[otlp]\nendpoint = \"{endpoint}\"\n{header}");
            let config = crate::config::read(&text, &over, &|_| Some("s3cret".into()));
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = semel::core::store::Store::capabilities(&semel::memory::Store::new());
            text_of(&plan, store)
        };
        let header = "[[otlp.header]]\nname = \"authorization\"\nvalue = \"env:TOKEN\"\n";
        let danger = "danger: what [[otlp.header]] holds crosses the network in the clear";
        for (endpoint, header, is_dangerous) in [
            ("http://collector:4318", header, true),
            ("http://192.0.2.1:4318/base", header, true),
            ("http://collector:4318", "", false),
            ("https://collector:4318", header, false),
            ("http://127.0.0.1:4318", header, false),
            ("http://[::1]:4318", header, false),
            ("http://localhost:4318", header, false),
        ] {
            let said = said(endpoint, header);
            assert!(said.contains(&format!("  spans      to {endpoint}\n")), "{said}");
            assert_eq!(said.contains(danger), is_dangerous, "{endpoint}: {said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    fn text_of(plan: &Plan, store: Capabilities) -> String {
        text(plan, plan.listen.address, None, store, Ok(Vec::new()))
    }

    #[test]
    fn what_is_asked_of_the_service_is_told_with_each_operation() {
        let config = "[[operation]]\npath = \"/a\"\nkept = \"minimal\"\n\
            [operation.probe]\nurl = \"https://ledger/{operation_id}\"\nanswer = \"nothing\"\n[operation.authorize]\npath = \"/who\"\n\
            [operation.rebuild]\nfrom = \"/by/{operation_id}\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides { target: Some(target), ..Default::default() };
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let said = told(&plan.operations[0]);
        assert_eq!(
            said[2..],
            [
                "what ends in doubt is looked up by GET https://ledger/{operation_id}, for 1d",
                "replayed only where the service allows it at /who",
                "replays are made anew from /by/{operation_id}",
            ]
        );
    }

    #[test]
    fn a_probe_in_class_downstream_is_told_with_when_it_is_asked() {
        let config = "[[operation]]\npath = \"/a\"\nclass = \"downstream\"\ndedup_window = \"2h\"\n\
            [operation.probe]\nurl = \"/x/{operation_id}\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides { target: Some(target), ..Default::default() };
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let said = told(&plan.operations[0]);
        assert_eq!(said[2], "what is in doubt after 2h is looked up by GET /x/{operation_id}, for 1d");
    }

    #[test]
    fn what_an_operation_seals_and_limits_for_itself_is_told() {
        let config = "[[operation]]\nname = \"card\"\npath = \"/cards\"\nkept = \"sealed\"\n\
            [operation.quotas]\nnew_per_caller = \"5/1m\"\nnew_in_total = \"100/1h\"\n\
            [[operation]]\npath = \"/logs\"\n\
            [[sealing.key]]\nname = \"a\"\nsecret = \"env:KEY\"\n";
        let planned = |config: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides { target: Some(target), ..Default::default() };
            let config = crate::config::read(config, &over, &|_| Some("5a".repeat(32).into()));
            config.expect("no mistake").plan().expect("a plan")
        };
        let plan = planned(config);
        assert_eq!(
            told(&plan.operations[0])[1..],
            [
                "external, at most once per key; replayed for 1d (sealed), then refused as expired for 30d",
                "new keys: at most 5 in 1m per caller, 100 in 1h in total",
            ]
        );
        assert_eq!(sealed(&plan), "stored answers can be read with a key of [sealing] only");
        let chosen = format!("{config}[sealing]\nseals = \"chosen\"\n");
        let besides = "what workers, probes and operators report; other answers are stored as they are";
        assert_eq!(sealed(&planned(&chosen)), format!("the answers of card, and {besides}"));
        assert_eq!(sealed(&planned(&chosen.replace("kept = \"sealed\"\n", ""))), format!("only {besides}"));
    }

    #[test]
    fn a_probes_secret_that_crosses_a_network_in_the_clear_is_a_danger_that_is_told() {
        let config = "[defaults.probe]\nurl = \"/x/{operation_id}\"\nanswer = \"nothing\"\n\
            headers = { authorization = \"env:TOKEN\" }\n";
        let warned = |target: &str, config: &str| {
            let target = Target::parse(target).expect("a target");
            let over = crate::config::Overrides { target: Some(target), ..Default::default() };
            let config = crate::config::read(config, &over, &|_| Some("hunter2".into()));
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = semel::core::store::Store::capabilities(&semel::memory::Store::new());
            warnings(&plan, store, &[]).join("\n")
        };
        let told = warned("http://service.internal", config);
        assert!(
            told.contains("danger: the secret headers of a probe") && !told.contains("hunter2"),
            "{told}"
        );
        for (target, config) in [
            ("https://service.internal", config.to_owned()),
            ("http://127.0.0.1:1", config.to_owned()),
            ("http://service.internal", config.replace("authorization", "x-a").replace("env:TOKEN", "plain")),
        ] {
            assert!(!warned(target, &config).contains("secret headers"), "{target} {config}");
        }
    }
}
