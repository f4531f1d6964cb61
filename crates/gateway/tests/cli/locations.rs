//! What URLs, paths and variables name: refused before it is opened, and never printed with a password.

use crate::inputs::ended;
use crate::world::{Scratch, World, command, key, run, semel};
use std::process::Command;

/// The commands that open a store.
fn commands_on(store: &str) -> Vec<Vec<&str>> {
    let mut commands = vec![
        vec!["doctor", "--json"],
        vec!["records", "list"],
        vec!["schema", "apply"],
        vec!["inbox", "stats"],
    ];
    for command in &mut commands {
        command.extend(["--store", store]);
    }
    commands
}

fn pipe(scratch: &Scratch) -> String {
    let pipe = scratch.path("pipe").display().to_string();
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    pipe
}

#[test]
fn a_store_that_is_no_file_is_refused_at_once() {
    let scratch = Scratch::new();
    let folder = scratch.path("folder").display().to_string();
    std::fs::create_dir(&folder).expect("a folder");
    for (path, kind) in
        [(&*pipe(&scratch), "a named pipe"), ("/dev/zero", "a device"), (&folder, "a directory")]
    {
        let url = format!("sqlite:{path}");
        for arguments in commands_on(&url) {
            let refused = ended(&arguments);
            assert_eq!(refused.code, 1, "{refused:?}");
            let said = format!("{}{}", refused.out, refused.err);
            assert!(said.contains("not a regular file") && said.contains(kind), "{arguments:?}: {refused:?}");
            assert!(!said.contains("chmod") && !said.contains("backup"), "{arguments:?}: {refused:?}");
        }
    }
}

#[test]
fn a_store_url_with_a_login_or_parameters_is_refused_and_not_repeated() {
    let scratch = Scratch::new();
    for url in
        ["sqlite://u:hunter2@h/d", "sqlite:u:hunter2@h", "sqlite:hunter2.db?mode=ro", "sqlite::memory:"]
    {
        for arguments in commands_on(url) {
            let mut refused = command(&arguments);
            refused.current_dir(scratch.path(""));
            let refused = run(refused).exits(2);
            assert!(!refused.err.contains("hunter2") && refused.err.contains("sqlite:"), "{refused:?}");
        }
    }
    assert_eq!(std::fs::read_dir(scratch.path("")).expect("a folder").count(), 0, "a file was created");
}

#[test]
fn the_check_finds_what_a_start_would() {
    let scratch = Scratch::new();
    let pipe = pipe(&scratch);
    let folder = scratch.path("folder").display().to_string();
    std::fs::create_dir(&folder).expect("a folder");
    let here = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n";
    for (text, at, why) in [
        ("[store]\nurl = \"sqlite::memory:\"\n".to_owned(), "4:7", "outlive its process"),
        (format!("[store]\nurl = 'sqlite:{pipe}'\n"), "4:1", "not a regular file"),
        (
            "[store]\nurl = 'postgres://u@h/d?password=file:/no/such/file'\n".to_owned(),
            "4:1",
            "/no/such/file",
        ),
        ("[store]\nurl = 'postgres://u@h/d?password=env:NO_SUCH'\n".to_owned(), "4:1", "NO_SUCH"),
        ("[store]\nurl = 'redis://h?password=file:/no/such/file'\n".to_owned(), "4:1", "/no/such/file"),
        (format!("[sweep]\narchive = '{folder}'\n"), "4:1", "is a directory"),
        (format!("[sweep]\narchive = '{pipe}'\n"), "4:1", "is a named pipe"),
        (
            format!("[sweep]\narchive = '{folder}/../s.db-wal'\n[store]\nurl = 'sqlite:{folder}/../s.db'\n"),
            "4:1",
            "is a file of the store",
        ),
    ] {
        let file = scratch.write("semel.toml", format!("{here}{text}"));
        for command in ["check", "show"] {
            let refused = ended(&["config", command, &file]);
            assert_eq!(refused.code, 1, "{text}: {refused:?}");
            assert!(
                refused.err.contains(&format!("{file}:{at}: ")) && refused.err.contains(why),
                "{text}: {refused:?}"
            );
        }
    }
    let good =
        format!("{here}[store]\nurl = 'sqlite:{folder}/a.db'\n[sweep]\narchive = '{folder}/a.jsonl'\n");
    semel(&["config", "check", &scratch.write("semel.toml", good)]).exits(0);
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0, "a file was created");
}

#[test]
fn an_archive_is_never_a_file_of_the_store() {
    let scratch = Scratch::new();
    let (store, link) = (scratch.path("s.db").display().to_string(), scratch.path("link.db"));
    scratch.write("s.db", "");
    std::os::unix::fs::symlink(&store, &link).expect("a link");
    let link = link.display().to_string();
    // An address that is in use: a gateway that accepts the archive ends all the same.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("an address").to_string();
    for (named, archive) in [
        (&store, store.clone()),
        (&store, format!("{store}-wal")),
        (&store, link.clone()),
        (&link, format!("{store}-wal")),
        (&link, store.clone()),
    ] {
        let text = format!("[upstream]\nurl = \"http://127.0.0.1:3000\"\n[sweep]\narchive = '{archive}'\n");
        let file = scratch.write("semel.toml", text);
        let store = format!("sqlite:{named}");
        let refused = semel(&["serve", "--config", &file, "--listen", &listen, "--store", &store]).exits(1);
        assert!(refused.err.contains("is a file of the store"), "{named} {archive}: {refused:?}");
    }
    assert_eq!(std::fs::metadata(&store).expect("a file").len(), 0, "it was changed");
}

/// A file is often checked on another machine than the one it is for.
#[test]
fn a_directory_that_only_another_machine_has_is_a_warning_of_the_check_and_refused_at_start() {
    let scratch = Scratch::new();
    let none = scratch.path("none").display().to_string();
    let here = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n";
    let start = scratch.path("a.db").display().to_string();
    for (what, text) in [
        ("store", format!("[store]\nurl = 'sqlite:{none}/a.db'\n")),
        ("archive", format!("[store]\nurl = 'sqlite:{start}'\n[sweep]\narchive = '{none}/a.jsonl'\n")),
    ] {
        let file = scratch.write("semel.toml", format!("{here}{text}"));
        let checked = semel(&["config", "check", &file]).exits(0);
        let warning = format!("warning: the directory of the {what}, {none}, does not exist");
        assert_eq!(checked.out.matches("warning").count(), 1, "{checked:?}");
        assert!(checked.out.contains(&warning), "{checked:?}");
        let warnings = &semel(&["config", "check", "--json", &file]).exits(0).json()["warnings"];
        assert!(warnings[0].as_str().is_some_and(|text| text.contains(&none)), "{warnings}");
        let refused = semel(&["serve", "--config", &file, "--listen", "127.0.0.1:0"]).exits(1);
        assert!(refused.err.contains(&none), "{refused:?}");
        assert!(!scratch.path("none").exists(), "it was created");
    }
}

#[test]
fn a_mistake_in_a_variable_names_the_variable() {
    let scratch = Scratch::new();
    let file = scratch.write("semel.toml", "[upstream]\nurl = \"http://127.0.0.1:3000\"\n");
    for (variable, value, why) in [
        ("SEMEL_TTL", "1s", "lease"),
        ("SEMEL_LISTEN", "127.0.0.1:9090", "the admin address"),
        ("SEMEL_STORE", "postgres://u@h/d?password=file:/no/such/file", "/no/such/file"),
    ] {
        let mut shown = command(&["config", "show", &file]);
        shown.env(variable, value);
        let refused = run(shown).exits(1);
        assert!(refused.err.contains(&format!("{variable} has a mistake")), "{refused:?}");
        assert!(!refused.err.contains(&file) && !refused.err.contains("--"), "{refused:?}");
        assert!(refused.err.contains(why), "{refused:?}");
    }
    let mut served = command(&["serve", "--config", &file, "--store", "memory:"]);
    served.env("SEMEL_TTL", "1s");
    let refused = run(served).exits(1);
    assert!(refused.err.contains("SEMEL_TTL has a mistake"), "{refused:?}");
    let served = |more: &[&str]| semel(&[&["serve", "--config", &file, "--store", "memory:"], more].concat());
    let flagged = served(&["--ttl", "1s"]).exits(1);
    assert!(flagged.err.contains("--ttl has a mistake"), "{flagged:?}");
    let flagged = served(&["--admin", "0.0.0.0:9090"]).exits(1);
    assert!(
        flagged.err.contains("--admin has a mistake") && flagged.err.contains("semel key token"),
        "{flagged:?}"
    );
}

#[test]
fn a_list_is_found_in_any_spelling_and_never_restarts_by_mistake() {
    let world = World::new();
    world.post("/charges", Some(&key(1)), "{}");
    for [flag, target] in world.targets() {
        let list = |more: &[&str]| semel(&[&["records", "list", "--json", &flag, &target], more].concat());
        for operation in ["POST /charges", "post //%63harges", "POST /./charges"] {
            let listed = list(&["--operation", operation]).exits(0).json();
            assert_eq!(listed["records"].as_array().map(Vec::len), Some(1), "{operation}: {listed}");
        }
        let listed = list(&["--operation", "POST /other"]).exits(0).json();
        assert_eq!(listed["records"].as_array().map(Vec::len), Some(0), "{listed}");
        list(&["--after", ""]).exits(2);
    }
}
