//! The default file, and every kind of mistake with its place and its words.

mod admin;
mod callers;
mod hidden;
mod matching;
pub(crate) mod pem;
mod storage;

use super::overrides::GivenLines;
use super::table::{Document, Table};
use super::*;
use semel::core::policy::Class;
use semel_http::{KeyRule, KeySource, Mode, StoreDown};
use std::collections::BTreeSet;
use toml::de::DeValue;

fn nothing(_: &str) -> Option<OsString> {
    None
}

pub(super) fn parsed(text: &str) -> Config {
    read(text, &Overrides::default(), &nothing).unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

/// Every mistake as `line:column: what / fix`.
pub(super) fn mistakes(text: &str) -> Vec<String> {
    let found = read(text, &Overrides::default(), &nothing).expect_err("a mistake");
    let position =
        |mistake: &ConfigError| mistake.at.map(|Position { line, column }| format!("{line}:{column}: "));
    found
        .iter()
        .map(|found| format!("{}{} / {}", position(found).unwrap_or_default(), found.problem, found.fix))
        .collect()
}

/// Expects exactly one mistake, at `position`, whose text contains `words`.
#[track_caller]
pub(super) fn one_mistake(text: &str, position: &str, words: &[&str]) {
    let found = mistakes(text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(&format!("{position}: ")), "{found:#?}");
    for words in words {
        assert!(found[0].contains(words), "{words} is not in {found:#?}");
    }
}

/// The default file with its examples uncommented.
fn uncommented() -> String {
    let on = |line: &str| match line.strip_prefix('#') {
        Some(rest) if rest.starts_with(|letter: char| letter == '[' || letter.is_ascii_lowercase()) => {
            rest.to_owned()
        }
        _ => line.to_owned(),
    };
    DEFAULT.lines().map(on).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_default_file_means_what_no_file_means() {
    let (mut unwritten, written) = (parsed(""), parsed(DEFAULT));
    // The only differences: the value is written in the file, and has a position.
    unwritten.storage.skew_is_chosen = true;
    unwritten.start_positions = written.start_positions.clone();
    assert_eq!(format!("{written:#?}"), format!("{unwritten:#?}"));
}

#[test]
fn without_a_file_the_defaults_are_those_of_each_part() {
    let target = Target::parse("http://127.0.0.1:1").expect("a target");
    let over = Overrides::default().with("upstream", &target.to_string());
    let plan = read("", &over, &nothing).expect("no mistake").plan().expect("a plan");
    let mut usual = Plan::new(target);
    // Derived values: how long an attempt may take, how far clocks differ, and how long a duplicate waits.
    let following = |policy: &mut semel::core::policy::PolicySettings| {
        policy.work_deadline = Duration::from_secs(66);
        policy.skew = Duration::from_secs(5);
    };
    usual.route_settings.policy = usual.route_settings.policy.with(following).expect("fit for use");
    usual.route_settings.wait = Some(Duration::from_secs(2));
    assert_eq!(format!("{plan:#?}"), format!("{usual:#?}"));
}

#[test]
fn the_default_file_has_exactly_the_known_keys() {
    let text = uncommented();
    let environment: &Environment<'_> = &nothing;
    let (given, given_tables) = (GivenLines::default(), DeTable::new());
    let document = Document::new(&text, (&given, &given_tables), environment);
    let (entries, malformed) = DeTable::parse_recoverable(&text);
    assert!(malformed.is_empty(), "{malformed:#?}");
    let top = Table::top(&document, entries.get_ref());
    read_config(&top);
    top.end();
    let known = document.known();
    let unknown: Vec<_> =
        document.end().into_iter().filter(|found| found.problem.contains("unknown key")).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");

    let written = |label: &str| -> BTreeSet<String> {
        let path = label.trim_matches(['[', ']']);
        let mut tables = vec![entries.get_ref()];
        for part in path.split('.').filter(|_| label != table::TOP) {
            let below =
                tables.iter().filter_map(|table| table.get(part)).flat_map(|value| match value.get_ref() {
                    DeValue::Array(list) => {
                        list.iter().filter_map(|value| value.get_ref().as_table()).collect()
                    }
                    other => other.as_table().into_iter().collect::<Vec<_>>(),
                });
            tables = below.collect();
        }
        tables.iter().flat_map(|table| table.keys().map(|key| key.get_ref().to_string())).collect()
    };
    assert_eq!(known.len(), 24, "tables that are not read: {known:#?}");
    for (label, keys) in known {
        let mut default_keys = written(label);
        if label == "[[operation]]" {
            default_keys.extend(written("[defaults]"));
        }
        if label == "[sweep]" {
            // The older keys for `[clock]`; files that have them are still read.
            default_keys.extend(
                written("[clock]").into_iter().filter(|key| ["skew", "steady_for"].contains(&&**key)),
            );
        }
        for key in keys {
            assert!(default_keys.contains(key), "`{key}` of {label} is not in the default file");
        }
    }
}

#[test]
fn the_form_of_log_lines_may_be_called_format() {
    assert_eq!(parsed("[log]\nformat = \"json\"\n").log, Form::Json);
    one_mistake(
        "[log]\nform = \"json\"\nformat = \"text\"\n",
        "3:1",
        &["another name of `form`", "remove one"],
    );
    one_mistake("[log]\nformat = \"xml\"\n", "2:10", &["`format` cannot be \"xml\""]);
}

#[test]
fn an_unknown_key_is_reported_with_a_suggestion() {
    one_mistake("[defaults]\n tll = \"1h\"\n", "2:2", &["unknown key `tll` in [defaults]", "write `ttl`"]);
    one_mistake(
        "[defalts]\n",
        "1:2",
        &["unknown key `defalts` in the top level of the file", "write `defaults`"],
    );
    one_mistake("ttl = \"1h\"\n", "1:1", &["unknown key `ttl` in", "put it under [defaults]"]);
    one_mistake(
        "[listen]\nadmin = \"127.0.0.1:9090\"\n",
        "2:1",
        &["unknown key `admin` in [listen]", "[admin] is a section of its own"],
    );
    one_mistake("[store]\ncolour = 1\n", "2:1", &["`colour`", "remove it"]);
    one_mistake("[clock]\nsettel = \"1s\"\n", "2:1", &["unknown key `settel` in [clock]", "write `settle`"]);
    one_mistake(
        "[[operation]]\npath = \"/x\"\nkey-from = \"fingerprint\"\n",
        "3:1",
        &["unknown key `key-from` in [[operation]]", "write `key_from`"],
    );
}

#[test]
fn a_wrong_type_is_reported_with_the_expected_one() {
    one_mistake(
        "[defaults]\nttl = 24\n",
        "2:7",
        &["`ttl`: expected a duration, found `24`", "write \"24s\""],
    );
    one_mistake(
        "[defaults]\nrerun = \"yes\"\n",
        "2:9",
        &["`rerun`: expected true or false, found a string", "write true or false"],
    );
    one_mistake(
        "[defaults]\nmethods = \"POST\"\n",
        "2:11",
        &["`methods`: expected a list", "found a string"],
    );
    one_mistake("[listen]\nconnections_max = -1\n", "2:19", &["out of range", "of 1 or more"]);
    one_mistake("operation = 3\n", "1:13", &["`operation`: expected a list", "found a whole number"]);
    one_mistake(
        "listen = \"127.0.0.1:80\"\n",
        "1:10",
        &["`listen`: expected a table, [listen], found a string"],
    );
}

#[test]
fn an_ambiguous_duration_or_size_is_a_mistake() {
    one_mistake(
        "[defaults]\nttl = \"24\"\n",
        "2:7",
        &["`24` is not a duration", "write a whole number with ms"],
    );
    one_mistake("[defaults]\nkept_max = \"10MB\"\n", "2:12", &["`10MB` is not a size", "KiB"]);
    one_mistake("[upstream]\nresponse_timeout = \"0s\"\n", "2:1", &["must not be zero", "longer"]);
}

#[test]
fn an_outcome_gone_before_clients_stop_retrying_is_reported() {
    one_mistake(
        "[[operation]]\npath = \"/charges\"\nttl = \"1h\"\nretry_horizon = \"12h\"\n",
        "3:1",
        &["the ttl of 1h is shorter than the retry_horizon", "make ttl 12h or longer"],
    );
    // Reported once, where it was written, and not for each operation that inherits it.
    let inherited =
        "[defaults]\nretry_horizon = \"2d\"\n[[operation]]\npath = \"/a\"\n[[operation]]\npath = \"/b\"\n";
    one_mistake(inherited, "2:1", &["the ttl of 1d", "make ttl 2d"]);
    parsed("[defaults]\nttl = \"3d\"\nretry_horizon = \"2d\"\n");
}

#[test]
fn a_route_that_no_request_reaches_is_a_mistake() {
    let one = "[[operation]]\npath = \"/a/{id}\"\n";
    one_mistake(
        &format!("{one}[[operation]]\npath = \"/a/7\"\n"),
        "4:8",
        &[
            "POST and PATCH /a/7 never matches this operation: `/a/{id}` above matches it first",
            "put this operation before the other",
        ],
    );
    let open = "[[operation]]\npath = \"/{*rest}\"\nmethods = [\"POST\"]\n";
    one_mistake(
        &format!("{open}[[operation]]\npath = \"/b\"\n"),
        "5:8",
        &["POST /b never matches this operation", "name only the methods that are left"],
    );
    parsed(&format!("{open}[[operation]]\npath = \"/b\"\nmethods = [\"DELETE\"]\n"));
    parsed(&format!("[[operation]]\npath = \"/a/7\"\n{one}"));
    one_mistake("[[operation]]\nname = \"x\"\n", "1:1", &["an operation has no path"]);
}

#[test]
fn two_operations_of_one_name_are_a_mistake() {
    let text = "[[operation]]\nname = \"pay\"\npath = \"/a\"\n[[operation]]\nname = \"pay\"\npath = \"/b\"\n";
    one_mistake(text, "5:8", &["already named `pay`", "its own name"]);
    for (path, name) in [("/a", "POST /b"), ("/a/{id}", "POST /a/{id}"), ("/a", "DELETE /a")] {
        let text = format!("[[operation]]\npath = \"{path}\"\nname = \"{name}\"\n");
        let parts = [name, "is the name of the records of that route", "not a method and a path"];
        one_mistake(&text, "3:1", &parts);
    }
    let named_like_its_route = parsed("[[operation]]\npath = \"/a\"\nname = \"POST /a\"\n");
    assert_eq!(named_like_its_route.operations[0].route_settings.name.as_deref(), Some("POST /a"));
    let text = "[[operation]]\npath = \"/a\"\nname = \"(shadow) POST /a\"\n";
    one_mistake(text, "3:8", &["shadow mode's records", "another name"]);
}

#[test]
fn a_missing_secret_is_reported_and_none_is_repeated() {
    let sealing = |secret: &str| format!("[[sealing.key]]\nname = \"k\"\nsecret = \"{secret}\"\n");
    one_mistake(
        &sealing("env:SEMEL_NOWHERE"),
        "3:10",
        &["the environment variable SEMEL_NOWHERE, named by `secret`, is not set", "set SEMEL_NOWHERE"],
    );
    one_mistake(
        &sealing("file:/nowhere/at/all"),
        "3:10",
        &["/nowhere/at/all", "cannot be read", "create the file, readable for this process"],
    );
    let folder = semel_test_support::ScratchDir::new("large-secret");
    let large = folder.write("secret", vec![b'a'; (64 << 10) + 1]);
    let large = sealing(&format!("file:{}", large.display()));
    one_mistake(&large, "3:10", &["it is larger than 64KiB", " / name a file of at most 64KiB"]);
    let inline = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    one_mistake(&sealing(inline), "3:10", &["must not contain the secret itself", "env:NAME or file:PATH"]);
    assert!(!mistakes(&sealing(inline))[0].contains("0011"));
    one_mistake("[upstream]\nca = \"/nowhere/ca.pem\"\n", "2:6", &["/nowhere/ca.pem", "cannot be read"]);
    one_mistake(
        "[listen]\ntls_cert = \"/nowhere/c.pem\"\ntls_key = \"Cargo.toml\"\n",
        "2:12",
        &["cannot be read"],
    );
}

#[test]
fn a_file_that_is_named_wrongly_is_one_mistake() {
    one_mistake("[listen]\ntls_cert = \"Cargo.toml\"\n", "2:1", &["only `tls_cert` is set", "or neither"]);
    one_mistake(
        "[listen]\ntls_cert = 3\ntls_key = \"Cargo.toml\"\n",
        "2:12",
        &["`tls_cert`: expected a string in quotation marks, found a whole number"],
    );
}

#[test]
fn a_sealing_key_is_read_from_the_environment() {
    let short = |name: &str| (name == "SHORT").then(|| OsString::from("00ff"));
    let good = |name: &str| (name == "GOOD").then(|| OsString::from(format!("{}\n", "5a".repeat(32))));
    let text = |name: &str| format!("[[sealing.key]]\nname = \"2026\"\nsecret = \"env:{name}\"\n");
    let config = read(&text("GOOD"), &Overrides::default(), &good).expect("no mistake");
    assert!(format!("{:?}", config.sealing).contains("2026"));
    let found = read(&text("SHORT"), &Overrides::default(), &short).expect_err("too short");
    assert!(found[0].problem.contains("has 2 bytes"), "{found:?}");
    let twice = format!("{}{}", text("GOOD"), text("GOOD"));
    let found = read(&twice, &Overrides::default(), &good).expect_err("one name for two");
    assert!(found[0].problem.contains("two sealing keys are called `2026`"), "{found:?}");
    assert_eq!(found[0].at.map(|at| at.line), Some(5));
}

#[test]
fn settings_that_trust_the_wrong_callers_are_mistakes() {
    one_mistake(
        "[identity]\nsources = [\"header:x-user\"]\n",
        "2:1",
        &["`x-user` identifies callers, but no address is trusted", "Name the addresses of the proxy"],
    );
    one_mistake(
        "[identity]\nsources = [\"header:x-user\"]\ntrusted = [\"0.0.0.0/0\"]\n",
        "3:1",
        &["wider than any"],
    );
    one_mistake(
        "[identity]\nsources = [\"magic\"]\n",
        "2:12",
        &["unknown source of callers `magic`", "\"jwt\""],
    );
    one_mistake("[identity]\nsources = [\"jwt\"]\n", "2:1", &["no issuer is set"]);
    one_mistake("[identity]\ntenant = \"claim:org\"\n", "2:1", &["no tokens are verified"]);
    let issuer = "[[identity.issuer]]\nname = \"https://id.example\"\naudience = \"pay\"\n";
    one_mistake(
        &format!("[identity]\nsources = [\"jwt\"]\n{issuer}jwks_url = \"http://id.example/k\"\n"),
        "4:1",
        &["can be replaced on the network", "Use https://"],
    );
    one_mistake(
        &format!("{issuer}jwks_url = \"https://id.example/k\"\n"),
        "2:1",
        &["`jwt` is not among the sources"],
    );
    one_mistake(&format!("[identity]\nsources = [\"jwt\"]\n{issuer}"), "4:1", &["an issuer has no keys"]);
}

#[test]
fn class_local_is_a_mistake_in_a_gateway() {
    one_mistake(
        "[defaults]\nclass = \"local\"\n",
        "2:9",
        &["class local is for effects", "write \"external\""],
    );
    one_mistake("[defaults]\nttl = \"10s\"\n", "2:1", &["the ttl must be longer than the lease"]);
    one_mistake("[[operation]]\npath = \"/x\"\nlease = \"10m\"\n", "3:1", &["the denied ttl must be longer"]);
    // An attempt takes 66 s at most, and clocks differ by 5 s.
    for window in ["30s", "71s"] {
        let text = format!("[defaults]\nclass = \"downstream\"\ndedup_window = \"{window}\"\n");
        one_mistake(&text, "3:1", &["dedup_window must be"]);
    }
    parsed("[clock]\nskew = \"1s\"\n[defaults]\nclass = \"downstream\"\ndedup_window = \"71s\"\n");
    one_mistake("[defaults]\nkey_min = 300\n", "2:1", &["the minimum key length (300) is above"]);
    one_mistake(
        "[defaults]\nkey_from = \"header:Operation-Id\"\n",
        "2:1",
        &["a header that Semel itself sets"],
    );
    one_mistake("[defaults]\nkey_from = [\"fingerprint\"]\n", "2:1", &["2 to 16 parts"]);
    one_mistake("[defaults]\nfingerprint_headers = [\"Date\"]\n", "2:24", &["cannot be fingerprinted"]);
    one_mistake("[defaults]\nfingerprint_exclude = [\"a\"]\n", "2:24", &["is not a JSON pointer"]);
    one_mistake("[defaults]\nstatuses = { 99 = \"applied\" }\n", "2:14", &["`99` is not a status"]);
    one_mistake("[defaults]\nstatuses = { 500 = \"fine\" }\n", "2:20", &["\"not-applied\""]);
    one_mistake("[defaults]\nmismatch_status = 400\n", "2:1", &["write 422 or 409"]);
    one_mistake("[quotas]\nnew_per_caller = \"100\"\n", "2:18", &["`100` is not a rate", "\"100/1m\""]);
    one_mistake("[quotas]\naddress_window = \"1s\"\n", "2:1", &["at least one minute"]);
    one_mistake("[store]\nurl = \"semel.db\"\n", "2:7", &["begins with its kind and a colon", "sqlite:PATH"]);
    one_mistake(
        "[upstream]\nurl = \"localhost:3000\"\n",
        "2:7",
        &["cannot be used", "http://127.0.0.1:3000"],
    );
}

#[test]
fn all_mistakes_are_reported_at_once_and_in_order() {
    let text = "[defaults]\nttl = 24\nclass = \"local\"\ncolour = \"red\"\n\n[[operation]]\npath = \"/x\"\nkey = \"maybe\"\n";
    let found = mistakes(text);
    let lines: Vec<_> = found.iter().map(|found| found.split(':').next().unwrap_or_default()).collect();
    assert_eq!(lines, ["2", "3", "4", "8"], "{found:#?}");
    let broken = mistakes("[defaults\nttl = \n");
    assert!(broken[0].starts_with("1:") && broken[0].contains("this is not TOML"), "{broken:#?}");
}

#[test]
fn an_operation_inherits_the_settings_that_it_does_not_set() {
    let config = parsed(
        "[defaults]\nttl = \"2d\"\nkey = \"required\"\n\
         [[operation]]\nname = \"charge\"\npath = \"/charges\"\nttl = \"7d\"\nmode = \"shadow\"\n\
         not_applied_statuses = [429]\nstatuses = { 500 = \"not-applied\" }\n\
         [[operation]]\npath = \"/hook\"\nkey_from = [\"header:X-Account\", \"json:/event/id\"]\nstore_down = \"pass\"\n\
         class = \"downstream\"\nattempts_max = 3\nkept = \"minimal\"\n",
    );
    let [charge, hook] = &config.operations[..] else { panic!("{config:?}") };
    assert_eq!(config.route_settings.policy.ttl, Duration::from_hours(48));
    assert_eq!((charge.route_settings.key, charge.route_settings.mode), (KeyRule::Required, Mode::Shadow));
    assert_eq!(
        (charge.route_settings.policy.ttl, charge.route_settings.name.as_deref()),
        (Duration::from_hours(168), Some("charge"))
    );
    assert_eq!(
        (charge.route_settings.rules.not_applied.len(), charge.route_settings.rules.overrides.len()),
        (1, 1)
    );
    assert_eq!(hook.route_settings.policy.ttl, Duration::from_hours(48));
    assert_eq!(
        (hook.route_settings.policy.class, hook.route_settings.policy.attempts_max),
        (Class::Downstream, Some(3))
    );
    assert_eq!(hook.route_settings.store_down, StoreDown::PassUnprotected);
    assert!(matches!(&hook.route_settings.key_source, KeySource::Composite(parts) if parts.len() == 2));
    assert_eq!(hook.template, "/hook");
}

#[test]
fn flags_override_defaults_but_not_operations() {
    let text = "[defaults]\nttl = \"2d\"\n[[operation]]\npath = \"/a\"\n[[operation]]\npath = \"/b\"\nttl = \"7d\"\n";
    let over = Overrides::default().with("ttl", "1h");
    let config = read(text, &over, &nothing).expect("no mistake");
    let kept: Vec<_> =
        config.operations.iter().map(|operation| operation.route_settings.policy.ttl).collect();
    assert_eq!(config.route_settings.policy.ttl, Duration::from_hours(1));
    assert_eq!(kept, [Duration::from_hours(1), Duration::from_hours(168)]);
    // A flag that does not fit is reported as a flag, without a line of the file.
    let found = read(text, &Overrides::default().with("ttl", "1s"), &nothing).expect_err("within the lease");
    assert_eq!((found.len(), found[0].at), (1, None), "{found:?}");
    assert_eq!(found[0].given_by.as_deref(), Some("--ttl"), "{found:?}");
    // So is one that does not fit to a line of the file.
    let found = read(text, &Overrides::default().with("lease", "3d"), &nothing).expect_err("longer than ttl");
    assert!(found.iter().all(|error| error.given_by.as_deref() == Some("--lease")), "{found:?}");
}
