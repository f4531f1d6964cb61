//! Completions, manual pages and help.

use crate::world::{Scratch, command, semel};
use std::process::{Command, Stdio};

fn is_installed(tool: &str) -> bool {
    let found = Command::new("sh").arg("-c").arg(format!("command -v {tool}")).stdout(Stdio::null()).status();
    found.expect("a shell").success()
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let ended = command(&["key", "new"]).stdout(full).output().expect("it runs");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), errors.contains("could not be written")), (Some(1), true), "{errors}");
}

#[test]
fn a_limit_of_zero_is_refused_as_in_the_file() {
    for [flag, value] in
        [["--response-timeout", "0s"], ["--connect-timeout", "0s"], ["--connections-max", "0"]]
    {
        // If the limit were accepted, the command would exit with 1, because the folder does not exist.
        let elsewhere = ["--listen", "127.0.0.1:0", "--store", "sqlite:/no/such/folder/semel.db"];
        let upstream = ["serve", "--upstream", "http://127.0.0.1:1", flag, value];
        let refused = semel(&[&upstream[..], &elsewhere].concat()).exits(2);
        assert!(refused.err.contains(flag), "{refused:?}");
    }
}

#[test]
fn bash_completes_commands_and_flags() {
    let scratch = Scratch::new();
    let script = scratch.write("semel.bash", semel(&["completions", "bash"]).exits(0).out);
    let complete = |words: &str, last: usize| {
        let bash_script = format!(
            "source '{script}' && COMP_WORDS=({words}) && COMP_CWORD={last} && \
             _semel semel \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\" && printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["--norc", "-c", &bash_script]).output().expect("bash");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    let syntax = Command::new("bash").args(["-n", &script]).status().expect("bash");
    assert!(syntax.success());
    assert_eq!(complete("semel rec", 1), "records\n");
    assert!(complete("semel records re", 2).lines().eq(["resolve", "release"]));
    assert!(complete("semel records list --st", 3).contains("--state"));
}

#[test]
fn every_shell_has_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(semel(&["completions", shell]).exits(0).out.contains("records"), "{shell}");
    }
    semel(&["completions", "tcsh"]).exits(2);
}

#[test]
fn every_command_has_a_manual_page_that_can_be_typeset() {
    let scratch = Scratch::new();
    let pages = scratch.path("man1");
    semel(&["man", pages.to_str().expect("text")]).exits(0);
    let names = std::fs::read_dir(&pages).expect("pages").map(|page| page.expect("a page").file_name());
    let names: Vec<_> = names.map(|name| name.into_string().expect("text")).collect();
    for name in ["semel.1", "semel-serve.1", "semel-records.1", "semel-records-resolve.1", "semel-doctor.1"] {
        assert!(names.iter().any(|known| known == name), "{name} is not in {names:?}");
    }
    assert!(semel(&["man"]).exits(0).out.contains("semel"));
    if is_installed("groff") {
        for name in &names {
            let page = pages.join(name);
            let set = Command::new("groff")
                .args(["-man", "-Tutf8", "-ww", "-z"])
                .arg(&page)
                .output()
                .expect("groff");
            assert!(
                set.status.success() && set.stderr.is_empty(),
                "{name}: {}",
                String::from_utf8_lossy(&set.stderr)
            );
        }
    }
}

#[test]
fn the_program_prints_its_version() {
    let version = semel(&["--version"]).exits(0).out;
    assert!(version.starts_with(concat!("semel ", env!("CARGO_PKG_VERSION"), "\n")), "{version}");
    assert!(version.contains("SQLite 3."), "{version}");
    let help = semel(&["--help"]).exits(0).out;
    for command in [
        "serve",
        "config",
        "records",
        "doctor",
        "shadow",
        "schema",
        "fingerprint",
        "key",
        "completions",
        "man",
    ] {
        assert!(help.lines().any(|line| line.trim().starts_with(command)), "{command} is not in {help}");
    }
    assert!(help.contains("semel serve --demo"), "{help}");
    for command in [&["records", "--help"][..], &["records", "list", "--help"], &["shadow", "--help"]] {
        assert!(semel(command).exits(0).out.contains("4 refused"), "{command:?}");
    }
}

#[test]
fn a_new_key_has_the_form_that_was_asked_for() {
    let made = |form: &str| semel(&["key", "new", "--form", form]).exits(0).out.trim().to_owned();
    assert_eq!(made("ulid").len(), 26);
    assert_eq!(made("uuid7").as_bytes()[14], b'7');
    assert_eq!(made("uuid4").as_bytes()[14], b'4');
}

#[test]
fn a_fingerprint_equals_the_gateways_in_any_spelling() {
    let hash = |method: &str, path: &str| {
        let arguments = ["--content-type", "text/plain", "--method", method, "--path", path];
        semel(&[&["fingerprint", "Cargo.toml"][..], &arguments].concat()).exits(0).out
    };
    let usual = hash("POST", "/charges?x=%41");
    assert_eq!(hash("post", "//x/../%63harges?x=%41"), usual);
    for (method, path) in [("PUT", "/charges?x=%41"), ("POST", "/charges?x=A"), ("POST", "/Charges?x=%41")] {
        assert_ne!(hash(method, path), usual, "{method} {path}");
    }
}

/// The value of every key of the configuration that `semel config default` prints, as (section, key, value).
fn defaults() -> Vec<(String, String, String)> {
    let printed = semel(&["config", "default"]).exits(0).out;
    let mut section = String::new();
    let mut found = Vec::new();
    for line in printed.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            name.clone_into(&mut section);
        } else if let Some((key, rest)) = line.split_once(" = ")
            && !line.starts_with('#')
        {
            let value = rest.split(" #").next().unwrap_or_default().trim().trim_matches('"');
            found.push((section.clone(), key.to_owned(), value.to_owned()));
        }
    }
    found
}

#[test]
fn the_page_about_security_names_every_limit_with_its_default() {
    let page = include_str!("../../../../docs/security.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
    let others = [
        ("upstream", "connections_max"),
        ("upstream", "connect_timeout"),
        ("upstream", "response_timeout"),
        ("store", "cache_max"),
        ("store", "timeout"),
        ("store", "request_timeout"),
        ("defaults", "request_max"),
        ("defaults", "kept_max"),
        ("defaults", "wait"),
        ("otlp", "queue_max"),
        ("quotas", "tracked_max"),
    ];
    let mut checked = 0;
    for (section, key, value) in defaults() {
        let is_limit = ["listen", "limits", "admin"].contains(&&*section)
            && (key.ends_with("_max") || key.ends_with("_timeout"));
        if !is_limit && !others.contains(&(&section, &key)) {
            continue;
        }
        let is_named = |row: &&&str| row.contains(&format!("`{key}`")) && row.contains(&value);
        assert!(rows.iter().any(|row| is_named(&row)), "no row with `{key}` and {value} of [{section}]");
        checked += 1;
    }
    assert!(checked > 20, "only {checked} limits were found");
}
