//! Finding and showing.

use crate::upstream::Upstream;
use crate::world::{Gateway, Scratch, World, key, post, semel};
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
fn a_list_finds_records_by_each_filter_at_a_gateway_and_in_its_store() {
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
    for [flag, place] in world.places() {
        for (filter, expected) in cases {
            let found = semel(&[&["records", "list", "--json", &flag, &place], filter].concat()).exits(0);
            assert_eq!(ids(&found.json()), expected, "{flag} {filter:?}");
        }
        let table = semel(&["records", "list", &flag, &place]).exits(0).out;
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("OPERATION ID") && lines[0].contains("STATE"), "{table}");
        assert!(lines[1].starts_with(charged) && lines[1].contains("SUCCEEDED"), "{table}");
        assert!(lines[2].contains("UNKNOWN") && table.contains("1 can be resolved"), "{table}");
        assert!(!table.contains('\u{1b}'), "a colour for nobody: {table:?}");
        let none = semel(&["records", "list", "--state", "EXPIRED", &flag, &place]).exits(0);
        assert_eq!(none.out, "no records\n");
    }
}

#[test]
fn a_list_is_paged_and_all_of_it_can_be_piped() {
    let world = World::new();
    let sent: Vec<_> =
        (0..5).map(|number| world.post("/charges", Some(&key(number)), "{}").id().to_owned()).collect();
    for [flag, place] in world.places() {
        let list = |more: &[&str]| semel(&[&["records", "list", &flag, &place], more].concat()).exits(0);
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
fn a_record_is_shown_with_its_history_and_its_response_only_on_request() {
    let world = World::new();
    let reply = world.post("/charges", Some(&key(1)), "{}");
    for [flag, place] in world.places() {
        let told = semel(&show(reply.id(), &[&flag, &place])).exits(0).out;
        for part in [
            "POST /charges",
            reply.id(),
            "SUCCEEDED",
            "external",
            "201, stored",
            "HISTORY",
            "attempt 1  PROCESSING",
        ] {
            assert!(told.contains(part), "{part} is not in {told}");
        }
        let json = semel(&show(reply.id(), &["--json", &flag, &place])).exits(0).json();
        assert_eq!((json["response"]["status"].as_u64(), json["response"].get("body")), (Some(201), None));
        assert_eq!(json["history"].as_array().expect("a history").len(), 2);
        assert!(!told.contains("charge 1") && json.get("fingerprint").is_none(), "{told}");
    }
    // Nobody at a gateway without tokens may read answers; who can open the file can read them anyway.
    for more in [&["--body"][..], &["--body", "--json"]] {
        let denied = world.at_admin(&show(reply.id(), more)).exits(1);
        assert!(denied.err.contains("the role `bodies`") && !denied.out.contains("charge 1"), "{denied:?}");
        assert!(denied.out.contains(reply.id()), "the rest is shown: {denied:?}");
    }
    let told = world.in_store(&show(reply.id(), &["--body"])).exits(0).out;
    assert!(told.contains("\nlocation: /charges/1\n") && told.ends_with("\n\ncharge 1\n"), "{told}");
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
    for [flag, place] in world.places() {
        let told = semel(&show(&charged, &["--json", &flag, &place])).exits(0).json();
        assert!(text(&told, "operationId").starts_with(&charged), "{told}");
        let run_together = charged.replace('-', "").to_uppercase();
        semel(&show(&run_together, &[&flag, &place])).exits(0);
        let none = if charged.starts_with("0000") { "1111" } else { "0000" };
        let told = semel(&show(none, &[&flag, &place])).exits(3).err;
        assert!(told.contains("no operation ID starts with"), "{told}");
        let told = semel(&show("abc", &[&flag, &place])).exits(2).err;
        assert!(told.contains("first 4 digits"), "{told}");
    }
    let settled = ["records", "resolve", &doubted, "--outcome", "applied", "--reason", "it is in the ledger"];
    assert!(world.at_admin(&settled).exits(0).out.contains("SUCCEEDED"));
}

#[test]
fn digits_that_several_ids_begin_with_name_none() {
    let world = World::new();
    // Of so many ids some begin alike: with 65,536 beginnings, 1,500 have 17 pairs on average.
    let keys: Vec<_> = (0..1_500).map(key).collect();
    let mut ids: Vec<_> =
        keys.iter().map(|key| world.post("/charges", Some(key), "{}").id().to_owned()).collect();
    ids.sort_unstable();
    let alike = ids.windows(2).find(|pair| pair[0][..4] == pair[1][..4]).expect("two that begin alike");
    let told = world.at_admin(&show(&alike[0][..4], &[])).exits(2).err;
    assert!(told.contains("give more digits") && alike.iter().all(|id| told.contains(id)), "{told}");
}

#[test]
fn each_way_to_fail_has_its_exit_code() {
    let world = World::new();
    let id = world.post("/charges", Some(&key(1)), "{}");
    let nobody = "00000000-0000-8000-8000-000000000000";
    for [flag, place] in world.places() {
        let place = [flag.as_str(), place.as_str()];
        let missing = semel(&[&["records", "show", nobody], &place[..]].concat()).exits(3);
        assert!(missing.err.starts_with("error: ") && missing.out.is_empty(), "{missing:?}");
        let missing = semel(&[&["records", "show", nobody, "--json"], &place[..]].concat()).exits(3);
        assert_eq!(missing.json()["code"], "OPERATION_NOT_FOUND");
        let release = ["records", "release", id.id(), "--reason", "to see"];
        let refused = semel(&[&release, &place[..]].concat()).exits(4);
        assert!(refused.err.contains("RECORD_STATE_CONFLICT"), "{refused:?}");
        semel(&[&["records", "list", "--after", "nonsense"], &place[..]].concat()).exits(2);
        semel(&[&["records", "list", "--key", "a\nb"], &place[..]].concat()).exits(2);
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
fn a_store_is_neither_created_nor_given_tables_by_looking_for_records() {
    let scratch = Scratch::new();
    let missing = semel(&["records", "list", "--store", &scratch.store()]).exits(1);
    assert!(missing.err.contains("cannot be used"), "{missing:?}");
    assert!(!scratch.file().exists());
    let own = rusqlite::Connection::open(scratch.file()).expect("a file");
    own.execute_batch("CREATE TABLE payments (id)").expect("a table");
    drop(own);
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

    // While it is being replaced, both are needed.
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
        let asked = semel(&[&["records", "list", "--store", &scratch.store()], more].concat()).exits(1);
        assert!(asked.err.contains("no gateway has used it yet"), "{asked:?}");
    }
    assert_eq!(std::fs::read(scratch.file()).expect("read"), before);
    let settings: i64 = rusqlite::Connection::open(scratch.file())
        .and_then(|raw| raw.query_row("SELECT count(*) FROM semel_settings", [], |row| row.get(0)))
        .expect("a count");
    assert_eq!(settings, 0);
    let gateway = Gateway::start(&["--config", &config]);
    assert_eq!(post(gateway.address, "/charges", Some(&key(1)), "{}").status, 201);
}

#[test]
fn actions_on_a_store_are_logged_by_the_command() {
    let world = World::new();
    let doubted = world.post("/doubt", Some(&key(1)), "{}");
    let resolve =
        ["records", "resolve", doubted.id(), "--outcome", "applied", "--reason", "seen in the ledger"];
    let done = world.in_store(&resolve).exits(0);
    for part in ["semel::audit", "cli:ada", "resolve", doubted.id(), "seen in the ledger"] {
        assert!(done.err.contains(part), "{part} is not in {done:?}");
    }
    assert!(!done.out.contains("semel::audit"), "{done:?}");
    // A running gateway logs for itself.
    let reply = world.post("/doubt", Some(&key(2)), "{}");
    let resolve =
        ["records", "resolve", reply.id(), "--outcome", "not-applied", "--reason", "it is not there"];
    assert_eq!(world.at_admin(&resolve).exits(0).err, "");
}

#[test]
fn the_beginning_of_a_keys_hash_is_refused_with_where_the_whole_is() {
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

/// Nobody can make two hashes begin alike, so that an answer which has them is made up here.
#[test]
fn where_the_hashes_of_several_callers_begin_alike_each_is_named() {
    let (one, other) = (format!("a81b22d0{}", "1".repeat(56)), format!("a81b22d0{}", "2".repeat(56)));
    let record = |hash: &str| format!("{{\"operationId\":\"x\",\"callerHash\":\"{hash}\"}}");
    let list = |records: &[String]| {
        let body = format!("{{\"records\":[{}]}}", records.join(","));
        let (url, asked) = crate::network::once(crate::network::json("200 OK", &body));
        let ran = semel(&["records", "list", "--caller", "A81B22D0", "--admin", &url]).exits(0);
        assert!(asked.join().expect("asked").contains("callerHash=a81b22d0"));
        ran.err
    };
    assert_eq!(list(&[record(&one), record(&one)]), "");
    let told = list(&[record(&one), record(&other)]);
    assert!(told.contains("of 2 callers") && told.contains(&one) && told.contains(&other), "{told}");
}
