//! Finding and showing.

use crate::upstream::Upstream;
use crate::world::{Gateway, Scratch, World, command_line_user, key, post, semel};
use serde_json::Value;

fn ids(found: &Value) -> Vec<&str> {
    found["records"].as_array().expect("records").iter().map(|record| text(record, "operationId")).collect()
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

fn show<'a>(id: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["records", "show", id], more].concat()
}

#[test]
fn each_filter_works_at_a_gateway_and_in_its_store() {
    let world = World::new();
    let charged = world.post("/charges", Some(&key(1)), "{}");
    let doubted = world.post("/doubt", Some(&key(2)), "{}");
    assert_eq!((charged.status, doubted.status), (201, 502));
    let (charged, doubted) = (charged.id(), doubted.id());
    let shown = world.at_admin(&["records", "show", charged, "--json"]).exits(0).json();
    let (key_hash, caller) = (text(&shown, "keyHash"), text(&shown, "callerHash"));
    let raw = key(1);
    let cases: [(&[&str], &[&str]); 15] = [
        (&[], &[charged, doubted]),
        (&["--newest-first"], &[doubted, charged]),
        (&["--id", &charged[..13]], &[charged]),
        (&["--id", doubted, "--newest-first"], &[doubted]),
        (&["--state", "unknown"], &[doubted]),
        (&["--operation", "POST /charges"], &[charged]),
        (&["--key", &raw], &[charged]),
        (&["--key-hash", key_hash], &[charged]),
        (&["--caller", caller], &[charged, doubted]),
        (&["--caller", &caller[..8]], &[charged, doubted]),
        (&["--caller", &caller[..17]], &[charged, doubted]),
        (&["--caller", if caller.starts_with('0') { "10000000" } else { "00000000" }], &[]),
        (&["--since", "1h"], &[charged, doubted]),
        (&["--until", "1h"], &[]),
        (&["--since", "2020-01-01T00:00:00Z", "--until", "2020-01-02T00:00:00Z"], &[]),
    ];
    for [flag, target] in world.targets() {
        for (filter, expected) in cases {
            let found = semel(&[&["records", "list", "--json", &flag, &target], filter].concat()).exits(0);
            assert_eq!(ids(&found.json()), expected, "{flag} {filter:?}");
        }
        let table = semel(&["records", "list", &flag, &target]).exits(0).out;
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("OPERATION ID") && lines[0].contains("STATE"), "{table}");
        assert!(lines[1].starts_with(charged) && lines[1].contains("SUCCEEDED"), "{table}");
        assert!(lines[2].contains("UNKNOWN") && table.contains("1 can be resolved"), "{table}");
        assert!(!table.contains('\u{1b}'), "colours without a terminal: {table:?}");
        let none = semel(&["records", "list", "--state", "EXPIRED", &flag, &target]).exits(0);
        assert_eq!(none.out, "no records\n");
    }
}

#[test]
fn a_list_is_paged_and_all_of_it_can_be_piped() {
    let world = World::new();
    let sent: Vec<_> =
        (0..5).map(|number| world.post("/charges", Some(&key(number)), "{}").id().to_owned()).collect();
    for [flag, target] in world.targets() {
        let list = |more: &[&str]| semel(&[&["records", "list", &flag, &target], more].concat()).exits(0);
        let first = list(&["--json", "--limit", "2"]).json();
        assert_eq!(ids(&first), sent[..2]);
        let rest = list(&["--json", "--after", text(&first, "next")]).json();
        assert_eq!((ids(&rest), rest.get("next")), (sent[2..].iter().map(String::as_str).collect(), None));
        let table = list(&["--limit", "2"]).out;
        assert!(table.contains(&format!("--after {}", text(&first, "next"))), "{table}");
        let lines = list(&["--json", "--all"]).out;
        let lines: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str(line).expect("a document")).collect();
        assert_eq!(lines.iter().map(|line| text(line, "operationId")).collect::<Vec<_>>(), sent);
    }
}

#[test]
fn a_record_is_shown_with_its_response_only_on_request() {
    let world = World::new();
    let reply = world.post("/charges", Some(&key(1)), "{}");
    for [flag, target] in world.targets() {
        let output = semel(&show(reply.id(), &[&flag, &target])).exits(0).out;
        for part in [
            "POST /charges",
            reply.id(),
            "SUCCEEDED",
            "external",
            "201, stored",
            "HISTORY",
            "attempt 1  PROCESSING",
        ] {
            assert!(output.contains(part), "{part} is not in {output}");
        }
        let json = semel(&show(reply.id(), &["--json", &flag, &target])).exits(0).json();
        assert_eq!((json["response"]["status"].as_u64(), json["response"].get("body")), (Some(201), None));
        assert_eq!(json["history"].as_array().expect("a history").len(), 2);
        assert!(!output.contains("charge 1") && json.get("fingerprint").is_none(), "{output}");
    }
    // A gateway without tokens shows nobody stored responses. Anybody who can open the file can read them.
    for more in [&["--body"][..], &["--body", "--json"]] {
        let denied = world.at_admin(&show(reply.id(), more)).exits(1);
        assert!(denied.err.contains("the role `bodies`") && !denied.out.contains("charge 1"), "{denied:?}");
        assert!(denied.out.contains(reply.id()), "the rest is shown: {denied:?}");
    }
    let output = world.in_store(&show(reply.id(), &["--body"])).exits(0).out;
    assert!(output.contains("\nlocation: /charges/1\n") && output.ends_with("\n\ncharge 1\n"), "{output}");
    let json = world.in_store(&show(reply.id(), &["--body", "--json"])).exits(0).json();
    assert_eq!(json["response"]["body"], "charge 1");
}

#[test]
fn a_record_is_named_by_the_first_digits_of_its_id() {
    let world = World::new();
    let charged = world.post("/charges", Some(&key(1)), "{}");
    let doubted = world.post("/doubt", Some(&key(2)), "{}");
    let beginning = |id: &str| id[..12].to_owned();
    let (charged, doubted) = (beginning(charged.id()), beginning(doubted.id()));
    for [flag, target] in world.targets() {
        let output = semel(&show(&charged, &["--json", &flag, &target])).exits(0).json();
        assert!(text(&output, "operationId").starts_with(&charged), "{output}");
        let run_together = charged.replace('-', "").to_uppercase();
        semel(&show(&run_together, &[&flag, &target])).exits(0);
        let none = if charged.starts_with("0000") { "1111" } else { "0000" };
        let output = semel(&show(none, &[&flag, &target])).exits(3).err;
        assert!(output.contains("no operation ID starts with"), "{output}");
        let output = semel(&show("abc", &[&flag, &target])).exits(2).err;
        assert!(output.contains("first 4 digits"), "{output}");
    }
    let settled = ["records", "resolve", &doubted, "--outcome", "applied", "--reason", "it is in the ledger"];
    assert!(world.at_admin(&settled).exits(0).out.contains("SUCCEEDED"));
}

#[test]
fn digits_that_several_ids_begin_with_name_none() {
    let world = World::new();
    // With 65,536 possible prefixes, 1,500 IDs have 17 colliding pairs on average.
    let keys: Vec<_> = (0..1_500).map(key).collect();
    let mut ids: Vec<_> =
        keys.iter().map(|key| world.post("/charges", Some(key), "{}").id().to_owned()).collect();
    ids.sort_unstable();
    let alike =
        ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).expect("two IDs with the same prefix");
    let errors = world.at_admin(&show(&alike[0][..4], &[])).exits(2).err;
    assert!(errors.contains("give more digits") && alike.iter().all(|id| errors.contains(id)), "{errors}");
}

#[test]
fn each_way_to_fail_has_its_exit_code() {
    let world = World::new();
    let id = world.post("/charges", Some(&key(1)), "{}");
    let nobody = "00000000-0000-8000-8000-000000000000";
    for [flag, target] in world.targets() {
        let target = [flag.as_str(), target.as_str()];
        let missing = semel(&[&["records", "show", nobody], &target[..]].concat()).exits(3);
        assert!(missing.err.starts_with("error: ") && missing.out.is_empty(), "{missing:?}");
        let missing = semel(&[&["records", "show", nobody, "--json"], &target[..]].concat()).exits(3);
        assert_eq!(missing.json()["code"], "OPERATION_NOT_FOUND");
        let release = ["records", "release", id.id(), "--reason", "to see"];
        let refused = semel(&[&release, &target[..]].concat()).exits(4);
        assert!(refused.err.contains("RECORD_STATE_CONFLICT"), "{refused:?}");
        semel(&[&["records", "list", "--after", "nonsense"], &target[..]].concat()).exits(2);
        semel(&[&["records", "list", "--key", "a\nb"], &target[..]].concat()).exits(2);
    }
    for usage in [
        &["records"][..],
        &["records", "show", "x"],
        &["records", "list", "--state", "LOST"],
        &["records", "list", "--since", "yesterday"],
        &["records", "list", "--caller", "abc"],
        &["records", "list", "--limit", "0"],
        &["records", "list", "--store", "sqlite:x", "--admin", "http://127.0.0.1:1"],
        &["records", "list", "--admin", "127.0.0.1:9090"],
        &["records", "release", nobody],
        &["records", "resolve", nobody, "--outcome", "maybe", "--reason", "x"],
        &["records", "resolve", nobody, "--outcome", "failed", "--reason", "x"],
        &["records", "resolve", nobody, "--outcome", "failed", "--reason", "x", "--status", "200"],
        &["records", "resolve", nobody, "--outcome", "not-applied", "--reason", "x", "--status", "200"],
    ] {
        semel(usage).exits(2);
    }
    let unreachable = semel(&["records", "list", "--admin", "http://127.0.0.1:1"]).exits(1);
    assert!(unreachable.err.contains("cannot be reached"), "{unreachable:?}");
}

#[test]
fn looking_for_records_creates_no_store_and_no_tables() {
    let scratch = Scratch::new();
    let missing = semel(&["records", "list", "--store", &scratch.store()]).exits(1);
    assert!(missing.err.contains("cannot be used"), "{missing:?}");
    assert!(!scratch.file().exists());
    let other_database = rusqlite::Connection::open(scratch.file()).expect("a file");
    other_database.execute_batch("CREATE TABLE payments (id)").expect("a table");
    drop(other_database);
    let before = std::fs::read(scratch.file()).expect("read");
    let foreign = semel(&["records", "list", "--store", &scratch.store()]).exits(1);
    assert!(foreign.err.contains("contains no records"), "{foreign:?}");
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
    semel(&["records", "list", "--store", "memory:"]).exits(1);
}

/// A configuration file of a gateway on the scratch's store, with `more` under `[store]`.
fn configured(scratch: &Scratch, upstream: &Upstream, name: &str, more: &str) -> String {
    let (store, upstream) = (scratch.store(), upstream.address);
    scratch.write(name, format!("[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n{more}"))
}

#[test]
fn a_store_with_a_configured_secret_needs_the_gateways_configuration() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let secret = |setting: &str, digits: &str| {
        let file = scratch.write(setting, digits.repeat(32));
        format!("{setting} = 'file:{file}'\n")
    };
    let (now, next) = (secret("hashing_secret", "a1"), secret("hashing_secret_next", "b2"));
    let steady = configured(&scratch, &upstream, "steady.toml", &now);
    let turning = configured(&scratch, &upstream, "turning.toml", &format!("{now}{next}"));
    let other = format!("hashing_secret = 'file:{}'\n", scratch.write("other", "c3".repeat(32)));
    let other = configured(&scratch, &upstream, "other.toml", &other);
    let store = scratch.store();
    let raw = key(1);
    let list = |more: &[&str]| {
        semel(&[&["records", "list", "--json", "--key", &raw, "--store", &store], more].concat())
    };

    let gateway = Gateway::start(&["--config", &steady]);
    let reply = post(gateway.address, "/charges", Some(&raw), "{}");
    assert_eq!(ids(&list(&["--config", &steady]).exits(0).json()), [reply.id()]);
    let without = list(&[]).exits(1);
    assert!(without.err.contains("--config FILE"), "{without:?}");
    let wrong = list(&["--config", &other]).exits(1);
    assert!(wrong.err.contains("is not this store's"), "{wrong:?}");
    drop(gateway);

    // Both secrets are needed during a replacement.
    let gateway = Gateway::start(&["--config", &turning]);
    let announced =
        || semel(&["doctor", "--json", "--quick", "--store", &store]).json()["secret"]["phase"] != "steady";
    crate::world::until(announced);
    assert_eq!(ids(&list(&["--config", &turning]).exits(0).json()), [reply.id()]);
    drop(gateway);
}

#[test]
fn looking_for_records_initialises_no_store() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    semel(&["schema", "apply", "--store", &scratch.store()]).exits(0);
    let before = std::fs::read(scratch.file()).expect("read");
    let secret = format!("hashing_secret = 'file:{}'\n", scratch.write("secret", "a1".repeat(32)));
    let config = configured(&scratch, &upstream, "semel.toml", &secret);
    for more in [&[][..], &["--config", &config]] {
        let ran = semel(&[&["records", "list", "--store", &scratch.store()], more].concat()).exits(1);
        assert!(ran.err.contains("no gateway has used it yet"), "{ran:?}");
    }
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
    let settings: i64 = rusqlite::Connection::open(scratch.file())
        .and_then(|raw| raw.query_row("SELECT count(*) FROM semel_settings", [], |row| row.get(0)))
        .expect("a count");
    assert_eq!(settings, 0);
    let gateway = Gateway::start(&["--config", &config]);
    assert_eq!(post(gateway.address, "/charges", Some(&key(1)), "{}").status, 201);
}

/// No gateway knows where the effect of a claim happens.
#[test]
fn no_probe_is_announced_for_a_workers_claim() {
    let world = World::new();
    let admin = world.gateway.admin.expect("it has an admin address");
    let claim = format!(r#"{{"operation": "mail", "key": "{}", "payload": {{}}}}"#, key(1));
    let claimed: Value =
        serde_json::from_str(&post(admin, "/v1/claims", None, &claim).body).expect("a document");
    let (id, token) = (text(&claimed, "operationId"), text(&claimed, "token"));
    let ended = format!(r#"{{"token": "{token}", "outcome": "unknown"}}"#);
    let reply = post(admin, &format!("/v1/claims/{id}/outcome"), None, &ended);
    assert_eq!(reply.status, 200, "{reply:?}");
    for [flag, target] in world.targets() {
        let doubt = &semel(&show(id, &["--json", &flag, &target])).exits(0).json()["doubt"];
        assert_eq!((&doubt["hasProbe"], doubt.get("nextProbeAt")), (&false.into(), None), "{flag}");
    }
}

#[test]
fn actions_on_a_store_are_logged_by_the_command() {
    let world = World::new();
    let doubted = world.post("/doubt", Some(&key(1)), "{}");
    let resolve =
        ["records", "resolve", doubted.id(), "--outcome", "applied", "--reason", "seen in the ledger"];
    let done = world.in_store(&resolve).exits(0);
    let who = command_line_user();
    for part in ["semel::audit", &who, "resolve", doubted.id(), "seen in the ledger"] {
        assert!(done.err.contains(part), "{part} is not in {done:?}");
    }
    assert!(!done.out.contains("semel::audit"), "{done:?}");
    // A running gateway writes its own log.
    let reply = world.post("/doubt", Some(&key(2)), "{}");
    let resolve =
        ["records", "resolve", reply.id(), "--outcome", "not-applied", "--reason", "it is not there"];
    assert_eq!(world.at_admin(&resolve).exits(0).err, "");
}

#[test]
fn a_partial_key_hash_is_refused() {
    let refused = semel(&["records", "list", "--key-hash", "a81b22d0"]).exits(2);
    assert!(refused.err.contains("first 8") && refused.err.contains("records show"), "{refused:?}");
}

#[test]
fn a_caller_is_found_by_at_least_eight_digits() {
    for bad in ["a81b22d", "a81b22dg", ""] {
        let refused = semel(&["records", "list", "--caller", bad]).exits(2);
        assert!(refused.err.contains("8 to 64 hexadecimal digits"), "{refused:?}");
    }
    let help = semel(&["records", "list", "--help"]).exits(0).out;
    let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("at least 8 of the 64, as tables, logs and metrics show them"), "{help}");
}

/// Two hashes with the same prefix cannot be produced, so this response is made up.
#[test]
fn where_the_hashes_of_several_callers_begin_alike_each_is_named() {
    let (one, other) = (format!("a81b22d0{}", "1".repeat(56)), format!("a81b22d0{}", "2".repeat(56)));
    let record = |hash: &str| format!("{{\"operationId\":\"x\",\"callerHash\":\"{hash}\"}}");
    let list = |records: &[String]| {
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        let (url, server) = crate::network::once(crate::network::json("200 OK", &body));
        let ran = semel(&["records", "list", "--caller", "A81B22D0", "--admin", &url]).exits(0);
        assert!(server.join().expect("a request").contains("callerHash=a81b22d0"));
        ran.err
    };
    assert_eq!(list(&[record(&one), record(&one)]), "");
    let errors = list(&[record(&one), record(&other)]);
    assert!(errors.contains("of 2 callers") && errors.contains(&one) && errors.contains(&other), "{errors}");
}
