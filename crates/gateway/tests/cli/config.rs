//! `semel config`, and the mistakes that it finds.

use crate::world::{Scratch, command, run, semel};

fn mistakes(text: &str) -> String {
    let scratch = Scratch::new();
    let file = scratch.write("semel.toml", text);
    semel(&["config", "check", &file]).exits(1).err.replace(&file, "semel.toml")
}

#[test]
fn a_new_file_is_checked_and_shown_and_never_overwritten() {
    let scratch = Scratch::new();
    let file = scratch.path("new.toml");
    let file = file.to_str().expect("text");
    let told = semel(&["config", "init", file, "--upstream", "http://127.0.0.1:4000"]).exits(0).out;
    assert!(told.contains(&format!("semel serve --config {file}")), "{told}");
    let checked = semel(&["config", "check", file]).exits(0).out;
    assert!(checked.contains("no mistakes") && checked.contains("http://127.0.0.1:4000"), "{checked}");
    std::fs::write(file, "[upstream]\nurl = \"http://127.0.0.1:5000\"\n").expect("written");
    semel(&["config", "init", file]).exits(4);
    assert!(std::fs::read_to_string(file).expect("text").contains("5000"), "it was overwritten");
}

#[test]
fn settings_are_shown_with_where_they_come_from() {
    let scratch = Scratch::new();
    let text = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n\n[store]\nurl = \"postgres://app@db/semel?password=env:DATABASE\"\n\n\
                [[operation]]\nname = \"charge\"\npath = \"/charges\"\nttl = \"7d\"\n";
    let file = scratch.write("semel.toml", text);
    let mut shown = command(&["config", "show", &file]);
    shown.env("SEMEL_LISTEN", ":8081");
    let out = run(shown).exits(0).out;
    let line = |parts: &[&str]| out.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(line(&["url", "http://127.0.0.1:3000", "line 2"]), "{out}");
    assert!(line(&["address", "\":8081\"", "SEMEL_LISTEN"]), "{out}");
    assert!(line(&["lease", "\"30s\"", "default"]) && line(&["ttl", "\"7d\"", "line 10"]), "{out}");
    assert!(line(&["url", "password=env:DATABASE", "line 5"]), "{out}");
    let changed = semel(&["config", "show", &file, "--changed", "--json"]).exits(0).json();
    assert_eq!(changed["settings"].as_array().map(Vec::len), Some(5), "{changed}");
}

#[test]
fn settings_of_a_file_with_mistakes_are_not_shown() {
    let scratch = Scratch::new();
    let file = scratch.write("semel.toml", "[defaults]\ntll = \"7d\"\n");
    let refused = semel(&["config", "show", &file]).exits(1);
    assert!(refused.out.is_empty() && refused.err.contains("unknown key `tll`"), "{refused:?}");
}

#[test]
fn a_check_finds_a_missing_upstream_and_conflicting_addresses() {
    let none = mistakes("[defaults]\nttl = \"7d\"\n");
    assert!(none.contains("no upstream is set") && none.contains("write `url` under [upstream]"), "{none}");
    let own = mistakes("[upstream]\nurl = \"http://localhost:8080\"\n");
    assert!(
        own.contains("semel.toml:2:1: the upstream http://localhost:8080 is the address that this gateway"),
        "{own}"
    );
    let admin =
        mistakes("[upstream]\nurl = \"http://127.0.0.1:3000\"\n[admin]\naddress = \"127.0.0.1:8080\"\n");
    assert!(
        admin.contains("semel.toml:4:1: the admin address 127.0.0.1:8080 is the address that clients use"),
        "{admin}"
    );
    let scratch = Scratch::new();
    let file = scratch.write("semel.toml", "");
    semel(&["config", "check", &file, "--upstream", "http://127.0.0.1:3000"]).exits(0);
    let json = semel(&["config", "check", &file, "--json"]).exits(1).json();
    assert_eq!(json["mistakes"].as_array().map(Vec::len), Some(1), "{json}");
}

#[test]
fn a_value_of_another_type_is_named_with_what_to_write() {
    let text = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n[defaults]\nkey = true\nttl = 30\nrequest_max = 10\n\
                [quotas]\nnew_in_total = 100\n";
    let told = mistakes(text);
    for part in [
        "semel.toml:4:7: `key`: expected \"required\" or \"optional\" or \"off\", found `true`",
        "semel.toml:5:7: `ttl`: expected a duration, found `30`",
        "write \"30s\"",
        "`request_max`: expected a size, found `10`",
        "`new_in_total`: expected a rate, found `100`",
        "write \"100/1m\"",
    ] {
        assert!(told.contains(part), "{part} is not in {told}");
    }
    let twice = mistakes("[defaults]\nttl = \"7d\"\nlease = \"30s\"\nttl = \"8d\"\n");
    assert!(twice.contains("semel.toml:4:1: `ttl` is set twice: here and on line 2"), "{twice}");
}
