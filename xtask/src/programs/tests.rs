use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Shell scripts that act as test programs.
struct Scripts(PathBuf);

impl Scripts {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("semel-programs-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn program(&self, name: &str, script: &str) -> Program {
        let file = self.0.join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        Program {
            package: "crates/a".to_owned(),
            name: name.to_owned(),
            file,
            folder: self.0.clone(),
            arguments: Vec::new(),
        }
    }
}

impl Drop for Scripts {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

const PASSED: &str = "echo 'test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured'";
const FAILED: &str = "echo 'test result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured'; exit 101";

#[test]
fn every_program_is_counted_and_every_failed_one_named() {
    let scripts = Scripts::new("counted");
    let missing =
        Program { file: Path::new("/semel-no-such-program").into(), ..scripts.program("missing", "") };
    let programs = [("good", PASSED), ("bad", FAILED), ("dead", "kill -KILL $$")]
        .map(|(name, script)| scripts.program(name, script));
    let mut results = run([&programs[..], &[missing]].concat(), |_| {});
    assert_eq!(results.tally, Tally { passed: 5, failed: 1, ignored: 1 });
    results.failed.sort();
    let named: Vec<_> = results.failed.iter().filter_map(|line| line.split_once(" of crates/a: ")).collect();
    assert_eq!(named[..2], [("bad", "3 passed, 1 failed"), ("dead", "it died")]);
    assert_eq!((named.len(), named[2].0), (3, "missing"));
}

#[test]
fn waiting_programs_run_at_the_same_time() {
    let scripts = Scripts::new("together");
    // Each one waits for the other, for a minute at most.
    let meet = |own: &str, other: &str| {
        let wait =
            format!("for i in $(seq 600); do [ -e {other}.here ] && {PASSED} && exit 0; sleep 0.1; done");
        scripts.program(own, &format!("touch {own}.here; {wait}; exit 1"))
    };
    let results = run(vec![meet("one", "two"), meet("two", "one")], |_| {});
    assert_eq!(results.failed, Vec::<String>::new());
}

#[test]
fn programs_get_the_environment_that_was_prepared() {
    let scripts = Scripts::new("environment");
    let program = scripts.program("env", &format!("[ \"$SEMEL_TEST_A\" = b ] && {PASSED}"));
    let results = run(vec![program], |command| {
        command.env("SEMEL_TEST_A", "b");
    });
    assert_eq!((results.failed.len(), results.tally.passed), (0, 2));
}

#[test]
fn a_limited_program_runs_only_the_tests_that_it_is_told() {
    let scripts = Scripts::new("limited");
    let mut program = scripts.program("limited", &format!("[ \"$*\" = '--skip postgres' ] && {PASSED}"));
    program.limit(|name| if name == "limited" { &["--skip", "postgres"] } else { &[] });
    assert_eq!(run(vec![program], |_| {}).failed, Vec::<String>::new());
}
