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
    let output = semel(&["config", "init", file, "--upstream", "http://127.0.0.1:4000"]).exits(0).out;
    assert!(output.contains(&format!("semel serve --config {file}")), "{output}");
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
    shown.env("SEMEL_LISTEN", ":8081").env("DATABASE", "hunter2");
    let out = run(shown).exits(0).out;
    assert!(!out.contains("hunter2"), "{out}");
    let line = |parts: &[&str]| out.lines().any(|line| parts.iter().all(|part| line.contains(part)));
    assert!(line(&["url", "http://127.0.0.1:3000", "line 2"]), "{out}");
    assert!(line(&["address", "\":8081\"", "SEMEL_LISTEN"]), "{out}");
    assert!(line(&["lease", "\"30s\"", "default"]) && line(&["ttl", "\"7d\"", "line 10"]), "{out}");
    assert!(line(&["url", "password=env:DATABASE", "line 5"]), "{out}");
    let mut changed = command(&["config", "show", &file, "--changed", "--json"]);
    changed.env("DATABASE", "hunter2");
    let changed = run(changed).exits(0).json();
    assert_eq!(changed["settings"].as_array().map(Vec::len), Some(5), "{changed}");
}

#[test]
fn what_serve_refuses_is_not_shown() {
    let scratch = Scratch::new();
    let file = scratch.write("semel.toml", "[upstream]\nurl = \"http://127.0.0.1:3000\"\n");
    for (name, value) in [
        ("SEMEL_LISTEN", "bad"),
        ("SEMEL_ADMIN", "bad"),
        ("SEMEL_LOG", "xml"),
        ("SEMEL_LOG_LEVEL", "loud"),
        ("SEMEL_STORE", "nowhere"),
        ("SEMEL_TTL", "24"),
        ("SEMEL_TTL", "1s"),
        ("SEMEL_KEY", "perhaps"),
        ("SEMEL_CONNECTIONS_MAX", "0"),
        ("SEMEL_UPSTREAM", "ftp://x"),
        ("SEMEL_LISTEN", "127.0.0.1:9090"),
        ("SEMEL_UPSTREAM_CA", "/not/there"),
    ] {
        for arguments in [&["config", "show", &file][..], &["config", "show"], &["config", "show", "--json"]]
        {
            let mut shown = command(arguments);
            shown.env(name, value);
            let refused = run(shown).exits(1);
            assert!(refused.out.is_empty() && !refused.err.is_empty(), "{name}={value}: {refused:?}");
        }
    }
    let mut shown = command(&["config", "show", &file]);
    shown.env("SEMEL_LISTEN", "bad");
    let errors = run(shown).exits(1).err;
    assert!(
        errors.contains("the environment has a mistake") && errors.contains("set SEMEL_LISTEN"),
        "{errors}"
    );
    assert!(errors.contains("--listen") && errors.contains("bad"), "{errors}");
}

#[test]
fn a_new_file_is_refused_that_the_check_would_refuse() {
    let scratch = Scratch::new();
    let file = scratch.path("new.toml").display().to_string();
    for upstream in ["http://127.0.0.1:8080", "http://localhost:9090"] {
        let refused = semel(&["config", "init", &file, "--upstream", upstream]).exits(1);
        assert!(
            refused.err.contains("nothing was written") && refused.err.contains("the gateway itself"),
            "{refused:?}"
        );
        assert!(refused.out.is_empty() && !scratch.path("new.toml").exists(), "{refused:?}");
    }
}

#[test]
fn a_new_file_can_be_printed_instead() {
    let scratch = Scratch::new();
    let mut init = command(&["config", "init", "-", "--upstream", "http://127.0.0.1:4000/a\"b"]);
    init.current_dir(scratch.path(""));
    let printed = run(init).exits(0).out;
    assert!(!scratch.path("-").exists(), "a file was written");
    let file = scratch.write("printed.toml", printed);
    let checked = semel(&["config", "check", &file]).exits(0).out;
    assert!(checked.contains("http://127.0.0.1:4000/a\"b"), "{checked}");
}

/// The limit on the size of files makes the write fail.
#[test]
fn a_file_that_cannot_be_written_is_not_left_behind() {
    let scratch = Scratch::new();
    let file = scratch.path("new.toml");
    let mut init = std::process::Command::new("bash");
    init.args([
        "-c",
        "trap '' XFSZ; ulimit -f 0; exec \"$0\" config init \"$1\"",
        env!("CARGO_BIN_EXE_semel"),
    ]);
    let refused = run({
        init.arg(&file);
        init
    });
    let refused = refused.exits(1);
    assert!(refused.err.contains("cannot be written") && !file.exists(), "{refused:?}");
}

#[test]
fn secrets_in_urls_are_not_shown() {
    let scratch = Scratch::new();
    let text = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n[defaults.probe]\n\
                url = \"https://ledger.example/effects/{operation_id}?api_key=hunter2\"\nanswer = \"nothing\"\n";
    let file = scratch.write("semel.toml", text);
    for more in [&[][..], &["--json"]] {
        let shown = semel(&[&["config", "show", &file], more].concat()).exits(0).out;
        assert!(!shown.contains("hunter2") && shown.contains("api_key=(masked)"), "{shown}");
    }
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
    let loop_report = mistakes("[upstream]\nurl = \"http://localhost:8080\"\n");
    assert!(
        loop_report
            .contains("semel.toml:2:1: the upstream http://localhost:8080 is the address that this gateway"),
        "{loop_report}"
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
    let report = mistakes(text);
    for part in [
        "semel.toml:4:7: `key`: expected \"required\" or \"optional\" or \"off\", found `true`",
        "semel.toml:5:7: `ttl`: expected a duration, found `30`",
        "write \"30s\"",
        "`request_max`: expected a size, found `10`",
        "`new_in_total`: expected a rate, found `100`",
        "write \"100/1m\"",
    ] {
        assert!(report.contains(part), "{part} is not in {report}");
    }
    let twice = mistakes("[defaults]\nttl = \"7d\"\nlease = \"30s\"\nttl = \"8d\"\n");
    assert!(twice.contains("semel.toml:4:1: `ttl` is set twice: here and on line 2"), "{twice}");
}
