//! What the command line reads and accepts: files of any size and kind, names, reasons, and text with misleading
//! characters.

use crate::network::{json, once};
use crate::world::{RunResult, Scratch, World, command, key, run, semel};
use std::process::{Command, Stdio};

/// How long a command that does not wait may take, in steps of 20 ms.
const STEPS_MAX: u32 = 1_500;

/// Runs a command that must not wait for input; kills it if it does.
pub(crate) fn ended(arguments: &[&str]) -> RunResult {
    let mut child =
        command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("semel starts");
    for _ in 0..STEPS_MAX {
        if child.try_wait().expect("the exit status").is_some() {
            let output = child.wait_with_output().expect("it has ended");
            let text = |bytes| String::from_utf8(bytes).expect("text");
            let code = output.status.code().expect("it exits");
            return RunResult { code, out: text(output.stdout), err: text(output.stderr) };
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.kill().expect("killed");
    panic!("{arguments:?} did not end");
}

/// The commands that read a file, with the limit of each.
fn commands_that_read<'a>(file: &'a str, config: &'a str) -> Vec<(Vec<&'a str>, &'a str)> {
    let admin = "http://127.0.0.1:1";
    let secure = "https://127.0.0.1:1";
    let resolve =
        ["records", "resolve", "0190c1de", "--outcome", "applied", "--reason", "r", "--admin", admin];
    let with = |more: &[&'a str]| [&resolve[..], more].concat();
    vec![
        (vec!["config", "check", file], "1MiB"),
        (vec!["config", "show", file], "1MiB"),
        (vec!["serve", "--config", file], "1MiB"),
        (vec!["doctor", "--config", file], "1MiB"),
        (vec!["config", "check", config], "64KiB"),
        (vec!["records", "list", "--token-file", file, "--admin", admin], "4KiB"),
        (vec!["records", "list", "--ca", file, "--admin", secure], "4MiB"),
        (vec!["serve", "--upstream", secure, "--upstream-ca", file, "--store", "memory:"], "4MiB"),
        (with(&["--response", file]), "64MiB"),
        (with(&["--status", "201", "--body", file]), "64MiB"),
        (vec!["fingerprint", file], "10MiB"),
    ]
}

fn config_with_secret(scratch: &Scratch, file: &str) -> String {
    let text = format!(
        "[upstream]\nurl = \"http://127.0.0.1:3000\"\n[[sealing.key]]\nname = \"a\"\nsecret = 'file:{file}'\n"
    );
    scratch.write("secret.toml", text)
}

#[test]
fn a_file_without_an_end_is_read_up_to_its_limit() {
    let scratch = Scratch::new();
    let config = config_with_secret(&scratch, "/dev/zero");
    for (arguments, limit) in commands_that_read("/dev/zero", &config) {
        let refused = ended(&arguments);
        assert!(refused.code == 1 || refused.code == 2, "{arguments:?}: {refused:?}");
        let message = format!("larger than {limit}");
        assert!(
            refused.err.contains("/dev/zero") && refused.err.contains(&message),
            "{arguments:?}: {refused:?}"
        );
    }
}

#[test]
fn a_directory_or_a_pipe_without_a_writer_is_refused() {
    let scratch = Scratch::new();
    let folder = scratch.path("folder").display().to_string();
    std::fs::create_dir(&folder).expect("a folder");
    let pipe = scratch.path("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for (file, problem) in [(&folder, "it is a directory"), (&pipe, "it is a named pipe")] {
        let config = config_with_secret(&scratch, file);
        for (arguments, _) in commands_that_read(file, &config) {
            let refused = ended(&arguments);
            assert!(refused.code == 1 || refused.code == 2, "{arguments:?}: {refused:?}");
            assert!(
                refused.err.contains(file.as_str()) && refused.err.contains(problem),
                "{arguments:?}: {refused:?}"
            );
        }
    }
    // A shell's <(…) is a pipe with a writer.
    let mut piped = Command::new("bash");
    piped.args(["-c", "\"$0\" fingerprint <(printf '{\"a\": 1}')", env!("CARGO_BIN_EXE_semel")]);
    assert!(run(piped).exits(0).out.starts_with("{\"a\":1}"));
}

#[test]
fn standard_input_is_bounded_too() {
    let mut read = command(&["fingerprint", "-"]);
    read.stdin(std::fs::File::open("/dev/zero").expect("it is there"));
    let refused = run(read).exits(2);
    assert!(refused.err.contains("standard input") && refused.err.contains("10MiB"), "{refused:?}");
}

#[test]
fn a_token_needs_a_name_that_the_file_accepts() {
    let scratch = Scratch::new();
    let long = "a".repeat(65);
    for name in ["", "loopback", &long, "two\nlines", "cli:root", "o\u{202e}sp", "op\u{200b}s"] {
        let refused = semel(&["key", "token", name]).exits(2);
        assert!(refused.err.contains("cannot be a token's name") && refused.out.is_empty(), "{refused:?}");
        let text = format!(
            "[upstream]\nurl = \"http://127.0.0.1:3000\"\n[[admin.token]]\nname = {}\nroles = [\"read\"]\nhash = \"sha256:{}\"\n",
            serde_json::Value::from(name),
            "ab".repeat(32)
        );
        let file = scratch.write("semel.toml", text);
        let checked = semel(&["config", "check", &file]).exits(1);
        assert!(checked.err.contains("cannot be a token's name"), "{checked:?}");
    }
    semel(&["key", "token", "ops é"]).exits(0);
}

#[test]
fn a_name_with_format_characters_is_refused_for_operations() {
    let scratch = Scratch::new();
    let text =
        "[upstream]\nurl = \"http://127.0.0.1:3000\"\n[[operation]]\nname = \"a\\u202eb\"\npath = \"/a\"\n";
    let file = scratch.write("semel.toml", text);
    let refused = semel(&["config", "check", &file]).exits(1);
    assert!(
        refused.err.contains("control or format characters") && !refused.err.contains('\u{202e}'),
        "{refused:?}"
    );
    let world = World::new();
    let admin = world.gateway.admin.expect("it has an admin address");
    let claim = r#"{"operation": "a\u202eb", "key": "8e03978e-40d5-43dd-bc93", "payload": {}}"#;
    let reply = crate::world::post(admin, "/v1/claims", None, claim);
    assert!(reply.status == 400 && reply.body.contains("control or format characters"), "{reply:?}");
}

#[test]
fn format_characters_in_a_record_are_replaced_where_it_is_printed() {
    let world = World::new();
    let doubted = world.post("/doubt", Some(&key(1)), "{}");
    let reason = "paid\u{202e}gnihton\u{2066}";
    let resolve = ["records", "resolve", doubted.id(), "--outcome", "applied", "--reason", reason];
    world.at_admin(&resolve).exits(0);
    let shown = world.at_admin(&["records", "show", doubted.id()]).exits(0).out;
    assert!(shown.contains("paid\u{fffd}gnihton\u{fffd}"), "{shown:?}");
    let document = world.at_admin(&["records", "show", doubted.id(), "--json"]).exits(0);
    assert!(!document.out.contains('\u{202e}'), "{document:?}");
    let history = document.json()["history"].to_string();
    assert!(history.contains(reason), "the record stores it unchanged: {history}");

    let record = r#"{"operationId":"x","state":"UNKNOWN","operation":"a\u202eb","doubt":{"how":"owner","reason":"c\u2029d"}}"#;
    let (url, server) = once(json("200 OK", &format!("{{\"records\":[{record}]}}")));
    let listed = semel(&["records", "list", "--admin", &url]).exits(0).out;
    server.join().expect("a request");
    assert!(listed.contains("a\u{fffd}b") && listed.contains("c\u{fffd}d"), "{listed:?}");
}

#[test]
fn a_missing_reason_is_a_mistake_of_the_command_line() {
    let id = "0190c1de-5a4e-8d2b-b1c5-3a7d5e6f7a8b";
    let other = "0190c1de-5a4e-8d2b-b1c5-3a7d5e6f7a8c";
    let resolve = ["records", "resolve", "--outcome", "applied", "--yes"];
    let long = "a".repeat(257);
    // Nothing listens there: the command fails before it connects.
    let target = ["--admin", "http://127.0.0.1:1"];
    for reason in ["", " ", "two\nlines", &long, "\u{200b}", "\u{3164}\u{a0}"] {
        let reason = ["--reason", reason];
        for arguments in [
            [&resolve[..], &[id], &reason, &target].concat(),
            [&resolve[..], &[id, other], &reason, &target].concat(),
            [&resolve[..], &["--operation", "POST /charges"], &reason, &target].concat(),
            [&["records", "release", id], &reason[..], &target].concat(),
            [&["records", "erase", id, "--yes"], &reason[..], &target].concat(),
            [&["doctor", "--confirm-clock", "--store", "sqlite:not-there.db"], &reason[..]].concat(),
        ] {
            let refused = semel(&arguments).exits(2);
            assert!(refused.err.contains("A reason"), "{refused:?}");
        }
    }
}

#[test]
fn a_password_in_the_admin_address_is_refused_and_not_repeated() {
    let mut by_variable = command(&["records", "list"]);
    by_variable.env("SEMEL_ADMIN_URL", "http://ops:hunter2@127.0.0.1:9090");
    for refused in
        [run(by_variable), semel(&["records", "list", "--admin", "http://ops:hunter2@127.0.0.1:9090"])]
    {
        let refused = refused.exits(2);
        assert!(refused.err.contains("the admin address contains credentials"), "{refused:?}");
        assert!(!refused.err.contains("hunter2") && !refused.err.contains("upstream"), "{refused:?}");
    }
}
