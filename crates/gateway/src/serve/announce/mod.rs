//! The start-up text: what is protected, with which guarantee, on which store, and what is dangerous. Every sentence
//! is derived from the plan or the store.

mod promise;
mod warnings;

use crate::config::{Admin, Hashing, Next, Plan};
use promise::{OBSERVED, assumption, describe, describe_questions, guarantee, protects};
use semel::core::store::{Capabilities, Hazard, Store};
use semel::sealing::Seal;
use semel_http::{KeyRule, Mode};
use semel_identity::caller_text::{callers, tenants};
use semel_text::duration;
use semel_text::wrap::wrapped;
use std::fmt;
use std::net::SocketAddr;
use tracing::{error, info, warn};
use warnings::{Warning, WarningLevel, unverified, warnings};

/// The start-up text: as text for people, or as log lines for programs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announcement {
    /// The subject and its text; a continuation has no subject.
    lines: Vec<(&'static str, String)>,
    warnings: Vec<Warning>,
}

impl Announcement {
    /// One log line for each subject and each warning, at the level of its weight.
    pub(super) fn log(&self) {
        info!(version = env!("CARGO_PKG_VERSION"), "semel starts");
        for (about, text) in self.subjects() {
            info!(about, "{text}");
        }
        for Warning { weight, message, code, fix } in &self.warnings {
            let (severity, fix) = (weight.name(), fix.as_deref());
            match weight {
                WarningLevel::Danger => error!(severity, code, fix, "{message}"),
                WarningLevel::Warning | WarningLevel::Unverified => warn!(severity, code, fix, "{message}"),
                WarningLevel::Note => info!(severity, code, fix, "{message}"),
            }
        }
    }

    /// The text for people, in lines of at most so many columns as far as its words allow.
    pub(super) fn text(&self, width: Option<usize>) -> String {
        let mut lines: Vec<String> = Vec::new();
        for (about, line) in &self.lines {
            lines.push(hanging(&format!("  {about:<10} {line}"), 13, width));
        }
        for warning in &self.warnings {
            lines.push(String::new());
            for (at, line) in format!("  {warning}").lines().enumerate() {
                lines.push(hanging(line, if at == 0 { 4 } else { 9 }, width));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// The lines, joined with their continuations.
    fn subjects(&self) -> Vec<(&'static str, String)> {
        let mut subjects: Vec<(&'static str, String)> = Vec::new();
        for (about, line) in &self.lines {
            match subjects.last_mut() {
                Some((_, text)) if about.is_empty() => {
                    text.push_str("; ");
                    text.push_str(line);
                }
                _ => subjects.push((about, line.clone())),
            }
        }
        subjects
    }
}

impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(None))
    }
}

/// A line in as many as it takes, the later ones indented by so many columns.
fn hanging(line: &str, indent: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return line.to_owned() };
    let head: String = line.chars().take(indent).collect();
    let rest: String = line.chars().skip(indent).collect();
    let lines = wrapped(&rest, width.saturating_sub(indent).max(20));
    format!("{head}{}", lines.join(&format!("\n{}", " ".repeat(indent))))
}

/// What is dangerous about the store now. A store that does not answer is not known to be safe.
pub(super) async fn hazards(store: &dyn Store) -> Vec<Hazard> {
    store.hazards().await.unwrap_or_else(|error| vec![unverified(&error)])
}

/// The start-up text.
pub(super) fn announce(
    plan: &Plan,
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    store: Capabilities,
    hazards: &[Hazard],
) -> Announcement {
    let mut lines = Vec::new();
    let mut say = |about: &'static str, line: &str| lines.push((about, line.to_owned()));
    let scheme = if plan.listen.tls.is_some() { "https" } else { "http" };
    say("listening", &format!("{scheme}://{address}"));
    say("upstream", &upstream(plan));
    if let (Some(admin_address), Some(admin)) = (admin_address, &plan.admin) {
        say("admin", &admitted(admin_address, admin));
    }
    for operation in &plan.operations {
        for (at, line) in describe(operation).iter().enumerate() {
            say(if at == 0 { "operation" } else { "" }, line);
        }
    }
    say(if plan.operations.is_empty() { "protects" } else { "otherwise" }, &protects(&plan.route_settings));
    if plan.route_settings.key != KeyRule::Off && plan.route_settings.mode == Mode::Shadow {
        say("", OBSERVED);
    } else if plan.route_settings.key != KeyRule::Off {
        let promised = guarantee(&plan.route_settings)
            .into_iter()
            .chain(describe_questions(&plan.callbacks, &plan.route_settings));
        for (at, line) in promised.enumerate() {
            say(if at == 0 { "guarantee" } else { "" }, &line);
        }
        say("assumes", &assumption(&plan.route_settings));
    }
    if plan.is_any_protected() {
        say("callers", &callers(&plan.identity));
        if let Some(tenants) = tenants(&plan.identity) {
            say("tenants", &tenants);
        }
        say("store", &kept(plan, store, hazards));
        if plan.sealing.is_some() {
            say("sealed", &sealed(plan));
        }
        if !plan.quotas.are_off() {
            say("quotas", "on new keys; retries and replays are never refused by them");
        }
        if let Some(hashed) = hashed(plan) {
            say("hashed", hashed);
        }
        if let Some(archive) = &plan.storage.archive {
            say("archive", &format!("{}: records, before they are deleted", archive.display()));
        }
        let prefix = &plan.prefix;
        say("published", &format!("{prefix}/.well-known/idempotency and {prefix}/operations/{{id}}"));
    }
    if let Some(tracer) = &plan.tracer {
        say("spans", &format!("to {}", tracer.options().endpoint));
    }
    Announcement { lines, warnings: warnings(plan, store, hazards) }
}

fn admitted(admin_address: SocketAddr, admin: &Admin) -> String {
    let scheme = if admin.tls.is_some() { "https" } else { "http" };
    if admin.options.tokens.is_empty() {
        return format!("{scheme}://{admin_address} (from this machine only)");
    }
    let mut names: Vec<_> = admin.options.tokens.iter().map(|token| token.name.as_str()).collect();
    names.dedup();
    format!("{scheme}://{admin_address} (by token: {})", names.join(", "))
}

/// What can be read only with a key.
fn sealed(plan: &Plan) -> String {
    let is_by_choice = plan.all_route_settings().any(|route_settings| route_settings.seal == Seal::Off);
    if !is_by_choice {
        return "stored responses can be read only with a key of [sealing]".to_owned();
    }
    let others = (plan.route_settings.seal == Seal::Required).then_some("requests of no operation");
    let chosen = plan.operations.iter().filter(|operation| operation.route_settings.seal == Seal::Required);
    let chosen =
        chosen.map(|operation| operation.route_settings.name.as_deref().unwrap_or(&operation.template));
    let chosen: Vec<_> = chosen.chain(others).collect();
    let besides = "what workers, probes and operators report; other responses are stored unsealed";
    if chosen.is_empty() {
        return format!("only {besides}");
    }
    format!("responses of {}, and {besides}", chosen.join(", "))
}

fn hashed(plan: &Plan) -> Option<&'static str> {
    let Hashing { secret, next } = &plan.storage.hashing;
    match (secret, next) {
        (_, Next::Secret(_)) => {
            Some("keys and callers, with a secret that is being replaced by hashing_secret_next")
        }
        (_, Next::Withdrawn) => {
            Some("keys and callers, with a secret whose announced replacement was withdrawn")
        }
        (Some(_), Next::None) => Some("keys and callers, with hashing_secret, which is not in the store"),
        (None, Next::None) => None,
    }
}

fn upstream(plan: &Plan) -> String {
    let (connect, response) = (plan.upstream.connect_timeout, plan.upstream.response_timeout);
    let fresh = if plan.upstream.is_fresh_when_protected { ", a fresh connection each" } else { "" };
    format!(
        "{} (connect {}, response {}{fresh})",
        plan.target,
        duration::text(connect),
        duration::text(response)
    )
}

/// Hazards that mean that the server does not sync each write before it answers, or that nobody knows whether it does.
const UNSYNCED: [&str; 4] = ["redis-appendfsync", "redis-no-aof", "redis-unverified", "store-unverified"];

fn kept(plan: &Plan, store: Capabilities, hazards: &[Hazard]) -> String {
    let is_unsynced = || hazards.iter().any(|hazard| UNSYNCED.contains(&hazard.code));
    let durable = if !store.durable {
        "not durable"
    } else if store.kept_in_memory && is_unsynced() {
        // When it syncs is a setting of the server that keeps the records.
        "durable as the server is configured"
    } else {
        "synced to disk before it answers"
    };
    format!("{} ({durable})", plan.store)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_net::target::Target;

    fn all_warnings(plan: &Plan, store: Capabilities) -> String {
        let found: Vec<_> = warnings(plan, store, &[]).iter().map(ToString::to_string).collect();
        found.join("\n")
    }

    #[test]
    fn each_operation_is_announced_with_its_promise() {
        let config = "[defaults]\nkey = \"off\"\n\
            [[operation]]\nname = \"charge\"\npath = \"/charges\"\nkey = \"required\"\nttl = \"7d\"\n\
            not_applied_statuses = []\nstore_down = \"pass\"\n\
            [[operation]]\npath = \"/hook\"\nkey = \"optional\"\nkey_from = \"json:/id\"\nclass = \"downstream\"\n\
            mode = \"shadow\"\nafter_expiry = \"run-as-new\"\n\
            [[operation]]\npath = \"/logs\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let lines: Vec<String> = plan.operations.iter().flat_map(describe).collect();
        assert_eq!(
            lines,
            [
                "charge: POST and PATCH /charges; Idempotency-Key required",
                "external, at most once per key; replayed for 7d, then refused as expired for 30d",
                "assumes of no status that nothing took effect",
                "POST and PATCH /hook; key optional, from the JSON body at /id; SHADOW, nothing is enforced",
                "observed only: requests are passed on as they came",
                "POST and PATCH /logs; not protected",
            ]
        );
        assert_eq!(protects(&plan.route_settings), "nothing: key off");
        let durable = Capabilities { durable: true, ..Store::capabilities(&semel::memory::Store::new()) };
        let warned = all_warnings(&plan, durable);
        assert!(warned.contains("UNPROTECTED") && warned.contains("anonymous scope"), "{warned}");
    }

    #[test]
    fn in_shadow_mode_nothing_is_promised() {
        let config = "[defaults]\nmode = \"shadow\"\n\
            [[operation]]\nname = \"watched\"\npath = \"/charges\"\nkey = \"required\"\nnot_applied_statuses = []\n\
            [operation.quotas]\nnew_per_caller = \"5/1m\"\n[operation.probe]\nurl = \"/x/{operation_id}\"\nanswer = \"nothing\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        assert_eq!(
            describe(&plan.operations[0]),
            [
                "watched: POST and PATCH /charges; Idempotency-Key required; SHADOW, nothing is enforced",
                "observed only: requests are passed on as they came",
            ]
        );
        let text = text_of(&plan, Store::capabilities(&semel::memory::Store::new()));
        assert_eq!(
            text.matches("             observed only: requests are passed on as they came\n").count(),
            2
        );
        for promise in ["\n  guarantee ", "\n  assumes ", "at most once", "replayed"] {
            assert!(!text.contains(promise), "{promise} is in {text}");
        }
    }

    #[test]
    fn a_store_whose_server_does_not_sync_is_not_announced_as_synced() {
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read("", &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let in_memory = Store::capabilities(&semel::memory::Store::new());
        let served = Capabilities { durable: true, ..in_memory };
        let hazard = |code| Hazard {
            severity: semel::core::store::Severity::Danger,
            code,
            what: String::new(),
            fix: String::new(),
        };
        for code in UNSYNCED {
            let text = kept(&plan, served, &[hazard(code)]);
            assert!(text.ends_with(" (durable as the server is configured)"), "{code}: {text}");
        }
        for hazards in [Vec::new(), vec![hazard("redis-eviction")]] {
            assert!(kept(&plan, served, &hazards).ends_with(" (synced to disk before it answers)"));
        }
        assert!(kept(&plan, in_memory, &[]).ends_with(" (not durable)"));
    }

    #[test]
    fn secrets_in_the_urls_of_questions_are_masked() {
        let config = "[defaults.probe]\nurl = \"https://ledger.example/effects/{operation_id}?api_key=hunter2\"\n\
            answer = \"nothing\"\n[[operation]]\nname = \"charge\"\npath = \"/charges\"\n\
            authorize = { path = \"/allowed?key=hunter2\" }\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let text = text_of(&plan, Store::capabilities(&semel::memory::Store::new()));
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("/effects/{operation_id}?api_key=(masked)"), "{text}");
        assert!(text.contains("/allowed?key=(masked)"), "{text}");
    }

    #[test]
    fn tokens_without_tls_are_a_danger() {
        let token = "[[admin.token]]\nname = \"ops\"\nroles = [\"read\"]\n\
            hash = \"sha256:f717cc288f8244cd16e83dac18a2583f289edb13c096663087f5436e18bde736\"\n";
        let warned = |admin: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides::default().with("upstream", &target.to_string());
            let config = crate::config::read(&format!("[admin]\n{admin}{token}"), &over, &|_| None);
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = Store::capabilities(&semel::memory::Store::new());
            let admin = plan.admin.as_ref().expect("open");
            (admitted(admin.options.address, admin), all_warnings(&plan, store))
        };
        let (text, warning) = warned("address = \"0.0.0.0:9090\"\n");
        assert_eq!(text, "http://0.0.0.0:9090 (by token: ops)");
        assert!(warning.contains("danger: tokens and responses cross the network in the clear"), "{warning}");
        let pem = crate::config::tests::pem::Pem::new();
        let tls = pem.tls();
        let (text, warning) = warned(&format!("address = \"0.0.0.0:9090\"\n{tls}"));
        assert!(text.starts_with("https://") && !warning.contains("in the clear"), "{warning}");
        assert!(!warned("address = \"127.0.0.1:9090\"\n").1.contains("in the clear"));
    }

    #[test]
    fn the_collector_is_announced_and_its_unencrypted_secret_is_a_danger() {
        let announcement = |endpoint: &str, header: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides::default().with("upstream", &target.to_string());
            let text = format!("[otlp]\nendpoint = \"{endpoint}\"\n{header}");
            let config = crate::config::read(&text, &over, &|_| Some("s3cret".into()));
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = Store::capabilities(&semel::memory::Store::new());
            text_of(&plan, store)
        };
        let header = "[[otlp.header]]\nname = \"authorization\"\nvalue = \"env:TOKEN\"\n";
        let danger = "danger: the values of [[otlp.header]] cross the network in the clear";
        for (endpoint, header, is_dangerous) in [
            ("http://collector:4318", header, true),
            ("http://192.0.2.1:4318/base", header, true),
            ("http://collector:4318", "", false),
            ("https://collector:4318", header, false),
            ("http://127.0.0.1:4318", header, false),
            ("http://[::1]:4318", header, false),
            ("http://localhost:4318", header, false),
        ] {
            let announcement = announcement(endpoint, header);
            assert!(announcement.contains(&format!("  spans      to {endpoint}\n")), "{announcement}");
            assert_eq!(announcement.contains(danger), is_dangerous, "{endpoint}: {announcement}");
            assert!(!announcement.contains("s3cret"), "{announcement}");
        }
    }

    #[test]
    fn the_start_up_text_is_as_written() {
        let config = "[admin]\naddress = \"0.0.0.0:9090\"\n[[admin.token]]\nname = \"ops\"\nroles = [\"read\"]\n\
            hash = \"sha256:f717cc288f8244cd16e83dac18a2583f289edb13c096663087f5436e18bde736\"\n\
            [[operation]]\nname = \"charge\"\npath = \"/charges\"\nkey = \"required\"\nstore_down = \"pass\"\n";
        let target = Target::parse("http://127.0.0.1:3000").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let durable = Capabilities { durable: true, ..Store::capabilities(&semel::memory::Store::new()) };
        let hazards = vec![Hazard {
            severity: semel::core::store::Severity::Danger,
            code: "postgres-fsync",
            what: "fsync is off: a crash of the server loses acknowledged records".to_owned(),
            fix: "set fsync = on".to_owned(),
        }];
        let address = plan.listen.address;
        let admin_address = Some("0.0.0.0:9090".parse().expect("an address"));
        let announcement = announce(&plan, address, admin_address, durable, &hazards);
        crate::texts::assert_is("start-up", &announcement.to_string());
        let narrow = announcement.text(Some(80));
        crate::texts::assert_is("start-up-80", &narrow);
        crate::texts::assert_fits("start-up-80", &narrow, 80);
        // As log lines, a continuation belongs to the line that it continues.
        let subjects = announcement.subjects();
        assert!(subjects.iter().all(|(about, _)| !about.is_empty()), "{subjects:?}");
        let operation = subjects.iter().find(|(about, _)| *about == "operation").expect("an operation");
        assert!(operation.1.contains("required; external, at most once per key"), "{operation:?}");
    }

    fn text_of(plan: &Plan, store: Capabilities) -> String {
        announce(plan, plan.listen.address, None, store, &[]).to_string()
    }

    #[test]
    fn an_operations_questions_are_announced() {
        let config = "[[operation]]\npath = \"/a\"\nkept = \"minimal\"\n\
            [operation.probe]\nurl = \"https://ledger/{operation_id}\"\nanswer = \"nothing\"\n[operation.authorize]\npath = \"/who\"\n\
            [operation.rebuild]\nfrom = \"/by/{operation_id}\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let lines = describe(&plan.operations[0]);
        assert_eq!(
            lines[2..],
            [
                "an outcome in doubt is looked up by GET https://ledger/{operation_id}, for 1d",
                "replayed only if the service allows it at /who",
                "replays are rebuilt from /by/{operation_id}",
            ]
        );
    }

    #[test]
    fn a_probe_in_class_downstream_is_announced_with_its_delay() {
        let config = "[[operation]]\npath = \"/a\"\nclass = \"downstream\"\ndedup_window = \"2h\"\n\
            [operation.probe]\nurl = \"/x/{operation_id}\"\n";
        let target = Target::parse("http://127.0.0.1:1").expect("a target");
        let over = crate::config::Overrides::default().with("upstream", &target.to_string());
        let plan = crate::config::read(config, &over, &|_| None).expect("no mistake").plan().expect("a plan");
        let lines = describe(&plan.operations[0]);
        assert_eq!(
            lines[2],
            "an outcome still in doubt after 2h is looked up by GET /x/{operation_id}, for 1d"
        );
    }

    #[test]
    fn an_operations_sealing_and_limits_are_announced() {
        let config = "[[operation]]\nname = \"card\"\npath = \"/cards\"\nkept = \"sealed\"\n\
            [operation.quotas]\nnew_per_caller = \"5/1m\"\nnew_in_total = \"100/1h\"\n\
            [[operation]]\npath = \"/logs\"\n\
            [[sealing.key]]\nname = \"a\"\nsecret = \"env:KEY\"\n";
        let planned = |config: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides::default().with("upstream", &target.to_string());
            let config = crate::config::read(config, &over, &|_| Some("5a".repeat(32).into()));
            config.expect("no mistake").plan().expect("a plan")
        };
        let plan = planned(config);
        assert_eq!(
            describe(&plan.operations[0])[1..],
            [
                "external, at most once per key; replayed for 1d (sealed), then refused as expired for 30d",
                "new keys: at most 5 in 1m per caller, 100 in 1h in total",
            ]
        );
        assert_eq!(sealed(&plan), "stored responses can be read only with a key of [sealing]");
        let chosen = format!("{config}[sealing]\nseals = \"chosen\"\n");
        let besides = "what workers, probes and operators report; other responses are stored unsealed";
        assert_eq!(sealed(&planned(&chosen)), format!("responses of card, and {besides}"));
        assert_eq!(sealed(&planned(&chosen.replace("kept = \"sealed\"\n", ""))), format!("only {besides}"));
    }

    #[test]
    fn a_probes_secret_without_tls_is_a_danger() {
        let config = "[defaults.probe]\nurl = \"/x/{operation_id}\"\nanswer = \"nothing\"\n\
            headers = { authorization = \"env:TOKEN\" }\n";
        let warned = |target: &str, config: &str| {
            let target = Target::parse(target).expect("a target");
            let over = crate::config::Overrides::default().with("upstream", &target.to_string());
            let config = crate::config::read(config, &over, &|_| Some("hunter2".into()));
            let plan = config.expect("no mistake").plan().expect("a plan");
            let store = Store::capabilities(&semel::memory::Store::new());
            all_warnings(&plan, store)
        };
        let warning = warned("http://service.internal", config);
        assert!(
            warning.contains("danger: the secret headers of a probe") && !warning.contains("hunter2"),
            "{warning}"
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
