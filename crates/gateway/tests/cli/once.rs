//! `semel once`, with real programs.

use crate::database::Database;
use crate::world::{RunResult, Scratch, command, run, semel, until};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The files of a test: a store, and what programs write.
struct World {
    scratch: Scratch,
    /// Short spans, for tests that wait for a lease.
    config: String,
}

impl World {
    fn new() -> Self {
        let scratch = Scratch::new();
        let config = scratch.write("semel.toml", "[clock]\nskew = \"100ms\"\nheartbeat = \"200ms\"\n");
        Self { scratch, config }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Programs end after two minutes at the latest, so that a broken test does not leave one behind.
    fn command(&self, key: &str, flags: &[&str], script: &str) -> Command {
        let store = self.scratch.store();
        let mut command = command(&["once", key, "--store", &store]);
        if !flags.contains(&"--timeout") {
            command.args(["--timeout", "2m"]);
        }
        command.args(flags).args(["--", "sh", "-c", script]).current_dir(self.path("."));
        command
    }

    /// Runs a shell script in the folder of the test.
    fn once(&self, key: &str, flags: &[&str], script: &str) -> RunResult {
        run(self.command(key, flags, script))
    }

    /// Starts a script, and waits until it has written its process ID.
    fn start(&self, key: &str, flags: &[&str], script: &str) -> (Running, String) {
        let _ = fs::remove_file(self.path("pid"));
        let script = format!("echo $$ >pid.new; mv pid.new pid; {script}");
        let mut command = self.command(key, flags, &script);
        let child = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts"));
        until(|| self.path("pid").exists());
        let id = fs::read_to_string(self.path("pid")).expect("an ID");
        (child, id.trim().to_owned())
    }

    /// The command line of [`start`](Self::start), again.
    fn again(&self, key: &str, flags: &[&str], script: &str) -> RunResult {
        self.once(key, flags, &format!("echo $$ >pid.new; mv pid.new pid; {script}"))
    }

    /// How often scripts have written a line to `ran`.
    fn runs(&self) -> usize {
        fs::read_to_string(self.path("ran")).map_or(0, |text| text.lines().count())
    }

    fn records(&self, arguments: &[&str]) -> RunResult {
        semel(&[&["records"], arguments, &["--store", &self.scratch.store()]].concat())
    }

    /// The records with this state, as the command line lists them.
    fn listed(&self, state: &str) -> Vec<Value> {
        let listed = self.records(&["list", "--state", state, "--json"]).exits(0).json();
        listed["records"].as_array().expect("a list").clone()
    }

    /// Makes the last use of the store one on another machine, or before a restart, `days` ago.
    fn age_store(&self, days: u64) {
        let database = rusqlite::Connection::open(self.scratch.file()).expect("the store");
        let read = "SELECT value FROM semel_settings WHERE name = 'clock'";
        let mark: Vec<u8> = database.query_row(read, [], |row| row.get(0)).expect("a mark");
        let mut mark: Value = serde_json::from_slice(&mark).expect("JSON");
        for name in ["at_ms", "now_ms", "shown_ms"] {
            mark[name] = (mark[name].as_u64().expect("a moment") - days * 86_400_000).into();
        }
        mark["boot"] = "another".into();
        let write = "UPDATE semel_settings SET value = ? WHERE name = 'clock'";
        database.execute(write, [mark.to_string().into_bytes()]).expect("written");
    }

    fn report(&self) -> Value {
        let text = fs::read_to_string(self.path("report.json")).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn signal(name: &str, id: impl std::fmt::Display) {
    let sent =
        Command::new("kill").args([&format!("-{name}"), &id.to_string()]).stderr(Stdio::null()).status();
    sent.expect("it runs");
}

/// Whether a process runs: not one that has ended and that nobody has waited for.
fn is_running(id: &str) -> bool {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    status.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// A process `semel once`. Killed when it is dropped, and its program with it.
struct Running(Child);

impl Running {
    fn id(&self) -> u32 {
        self.0.id()
    }

    /// Waits for its end; returns its exit code.
    fn code(mut self) -> Option<i32> {
        self.0.wait().expect("it ends").code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[test]
fn a_success_is_replayed_with_its_output() {
    let world = World::new();
    let script = "echo x >>ran; echo out; echo err >&2; read line || echo no input";
    let first = world.once("report-7", &[], script).exits(0);
    assert_eq!((first.out.as_str(), first.err.as_str()), ("out\nno input\n", "err\n"));
    let again = world.once("report-7", &[], script).exits(0);
    assert_eq!(again.out, first.out);
    let (line, rest) = again.err.split_once('\n').expect("a line");
    assert!(line.starts_with("semel once: replay: ") && line.contains("exit code 0"), "{again:?}");
    assert_eq!(rest, first.err);
    let quiet = world.once("report-7", &["--quiet"], script).exits(0);
    assert_eq!((quiet.out, quiet.err), (first.out, first.err));
    assert_eq!(world.runs(), 1);
}

#[test]
fn a_program_knows_its_operation() {
    let world = World::new();
    let flags = ["--report", "report.json"];
    let ran = world.once("{{k}}-{date}", &flags, "env | grep ^SEMEL_").exits(0);
    let report = world.report();
    let key = report["key"].as_str().expect("a key");
    assert!(key.starts_with("{k}-2") && key.len() == "{k}-2026-11-19".len(), "{key}");
    let id = report["operationId"].as_str().expect("an ID");
    for line in [format!("SEMEL_KEY={key}"), format!("SEMEL_OPERATION_ID={id}"), "SEMEL_ATTEMPT=1".to_owned()]
    {
        assert!(ran.out.lines().any(|known| known == line), "{line} is not in {ran:?}");
    }
    assert!(ran.out.contains("SEMEL_FENCE="), "{ran:?}");
    let record = &world.listed("SUCCEEDED")[0];
    assert_eq!((record["operation"].as_str(), record["operationId"].as_str()), (Some("(once)"), Some(id)));
}

#[test]
fn a_failure_is_replayed_unless_its_code_says_that_nothing_took_effect() {
    let world = World::new();
    let failing = "echo x >>ran; echo no; exit 3";
    for _ in 0..2 {
        assert_eq!(world.once("final", &["--report", "report.json"], failing).exits(3).out, "no\n");
    }
    assert_eq!(world.runs(), 1);
    let report = world.report();
    assert_eq!((&report["happened"], &report["exitCode"]), (&"replayed".into(), &3.into()));
    assert_eq!(report["state"], "FAILED_REPLAYABLE");
    for attempt in 1..=3 {
        let flags = ["--again-on", "1,3", "--report", "report.json"];
        assert_eq!(world.once("again", &flags, failing).exits(3).out, "no\n");
        let report = world.report();
        assert_eq!((&report["happened"], &report["attempt"]), (&"ran".into(), &attempt.into()));
        assert_eq!(report["state"], "FAILED_NOT_REPLAYABLE");
    }
    assert_eq!(world.runs(), 4);
    world.once("again", &["--again-on", "0"], failing).exits(2);
}

#[test]
fn a_killed_program_is_unknown_until_somebody_settles_it() {
    let world = World::new();
    let script = "echo x >>ran; test -e healed || kill -9 $$";
    let flags = ["--report", "report.json"];
    let settle = |key: &str, more: &[&str]| {
        let killed = world.once(key, &flags, script).exits(76);
        assert!(!killed.err.contains("The next call"), "{killed:?}");
        let report = world.report();
        let id = report["operationId"].as_str().expect("an ID").to_owned();
        assert!(killed.err.contains("signal 9") && killed.err.contains(&id), "{killed:?}");
        assert_eq!((&report["happened"], &report["state"]), (&"unknown".into(), &"UNKNOWN".into()));
        let refused = world.once(key, &flags, script).exits(76);
        assert!(refused.err.contains("records resolve"), "{refused:?}");
        world.records(&[&["resolve", &id, "--reason", "looked"], more].concat()).exits(0);
    };
    settle("applied", &["--outcome", "applied"]);
    assert_eq!(world.runs(), 1);
    let replay = world.once("applied", &flags, script).exits(0);
    assert!(replay.err.contains("its output is not stored"), "{replay:?}");
    let failed = ["--outcome", "failed", "--status", "500", "--header", "exit-code: 4", "--unsealed"];
    settle("failed", &failed);
    world.once("failed", &flags, script).exits(4);
    settle("failed-somehow", &["--outcome", "failed", "--status", "500", "--unsealed"]);
    world.once("failed-somehow", &flags, script).exits(1);
    settle("not-applied", &["--outcome", "not-applied"]);
    assert_eq!(world.runs(), 4);
    fs::write(world.path("healed"), "").expect("written");
    world.once("not-applied", &flags, script).exits(0);
    assert_eq!(world.runs(), 5);
}

#[test]
fn a_killed_program_that_recognises_repeats_runs_again() {
    let world = World::new();
    let script = "echo $SEMEL_ATTEMPT; test $SEMEL_ATTEMPT = 2 || kill -9 $$";
    let flags = ["--class", "downstream"];
    let killed = world.once("k", &flags, script).exits(76);
    assert!(killed.err.contains("The next call runs it again"), "{killed:?}");
    assert_eq!(world.once("k", &flags, script).exits(0).out, "2\n");
}

#[test]
fn a_program_that_takes_too_long_is_unknown_whatever_its_exit_code() {
    let world = World::new();
    let polite = "trap 'echo stopped; exit 0' TERM; echo x >>ran; while :; do sleep 0.1; done";
    let flags = ["--timeout", "1s"];
    let stopped = world.once("polite", &flags, polite).exits(76);
    assert!(stopped.out == "stopped\n" && stopped.err.contains("--timeout"), "{stopped:?}");
    world.once("polite", &flags, polite).exits(76);
    let stubborn = "trap '' TERM; echo x >>ran; while :; do sleep 0.1; done";
    world.once("stubborn", &flags, stubborn).exits(76);
    assert_eq!(world.runs(), 2);
}

#[test]
fn another_command_line_is_refused() {
    let world = World::new();
    world.once("k", &[], "exit 0").exits(0);
    let refused = world.once("k", &["--report", "report.json"], "echo x >>ran").exits(77);
    assert!(refused.err.contains("another command line"), "{refused:?}");
    assert_eq!((world.report()["happened"].as_str(), world.runs()), (Some("refused"), 0));
    // Not even bytes that look the same as text.
    let store = world.scratch.store();
    let echo = |byte: u8| {
        let mut command = command(&["once", "bytes", "--store", &store, "--", "true"]);
        run({
            command.arg(OsString::from_vec(vec![byte]));
            command
        })
    };
    echo(0xff).exits(0);
    echo(0xfe).exits(77);
    echo(0xff).exits(0);
}

#[test]
fn a_bad_key_is_refused() {
    let world = World::new();
    for bad in ["", "a{day}", "a\nb", "{sha256:missing}", "{date", &"k".repeat(256)] {
        world.once(bad, &[], "echo x >>ran").exits(77);
    }
    assert_eq!(world.runs(), 0);
}

#[test]
fn a_program_that_cannot_be_started_leaves_its_key_free() {
    let world = World::new();
    let store = world.scratch.store();
    let plain = world.scratch.write("plain.txt", "no program");
    let start = |program: &str| {
        let mut command =
            command(&["once", "k", "--store", &store, "--report", "report.json", "--", program]);
        command.current_dir(world.path("."));
        run(command)
    };
    for (program, expected) in [("no-such-program", 127), (plain.as_str(), 126)] {
        let failed = start(program).exits(expected);
        assert!(failed.err.contains("cannot be started"), "{failed:?}");
        let report = world.report();
        assert_eq!((&report["happened"], &report["exitCode"]), (&"not_started".into(), &Value::Null));
    }
    start("true").exits(0);
    assert_eq!(world.report()["happened"], "ran");
    // The program's own exit code is not taken for that.
    world.once("own", &["--report", "report.json"], "exit 127").exits(127);
    assert_eq!((&world.report()["happened"], &world.report()["exitCode"]), (&"ran".into(), &127.into()));
    world.once("own", &[], "exit 127").exits(127);
}

#[test]
fn twenty_calls_at_once_run_the_program_once() {
    let world = World::new();
    let script = "echo x >>ran; while ! test -e go; do sleep 0.05; done; echo done";
    let start = |flags: &[&str]| {
        let mut command = world.command("k", flags, script);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let output = |child: Child| {
        let output = child.wait_with_output().expect("it ends");
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let waiting: Vec<_> = (0..10).map(|_| start(&["--wait", "5m"])).collect();
    until(|| world.runs() > 0);
    let hasty: Vec<_> = (0..10).map(|_| start(&[])).collect();
    for (code, out, err) in hasty.into_iter().map(output) {
        assert_eq!((code, out.as_str()), (Some(75), ""), "{err}");
        assert!(err.contains("still running since 2") && err.contains("operation ID"), "{err}");
    }
    fs::write(world.path("go"), "").expect("written");
    for (code, out, err) in waiting.into_iter().map(output) {
        assert_eq!((code, out.as_str()), (Some(0), "done\n"), "{err}");
    }
    assert_eq!(world.runs(), 1);
}

/// Flags for a record whose owner counts as gone after a second.
fn short_lease(world: &World) -> [&str; 4] {
    ["--lease", "1s", "--config", &world.config]
}

#[test]
fn a_program_dies_with_its_killed_wrapper_and_is_unknown() {
    let world = World::new();
    let flags = short_lease(&world);
    let script = "echo x >>ran; while :; do sleep 0.1; done";
    let (wrapper, id) = world.start("k", &flags, script);
    assert!(is_running(&id));
    world.again("k", &flags, script).exits(75);
    drop(wrapper);
    until(|| !is_running(&id));
    until(|| {
        let called = world.again("k", &flags, script);
        assert!([75, 76].contains(&called.code), "{called:?}");
        called.code == 76
    });
    assert_eq!(world.listed("UNKNOWN").len(), 1);
    assert_eq!(world.runs(), 1);
}

/// Each call is a new node, which judges no lease before it has watched the store.
#[test]
fn a_run_that_a_restart_of_the_machine_ended_is_unknown() {
    let world = World::new();
    let flags = short_lease(&world);
    let script = "echo x >>ran; while :; do sleep 0.1; done";
    drop(world.start("k", &flags, script));
    world.age_store(30);
    until(|| world.again("k", &flags, script).code == 76);
    assert_eq!((world.runs(), world.listed("UNKNOWN").len()), (1, 1));
}

#[test]
fn a_yearly_job_runs_and_a_clock_that_is_wrong_by_years_stops_it() {
    let world = World::new();
    world.once("2025", &[], "echo x >>ran").exits(0);
    world.age_store(366);
    world.once("2026", &[], "echo x >>ran").exits(0);
    world.age_store(366 + 401);
    let refused = world.once("2027", &[], "echo x >>ran").exits(75);
    assert!(refused.err.contains("the clock is not trusted"), "{refused:?}");
    assert_eq!(world.runs(), 2);
}

#[test]
fn a_program_that_recognises_repeats_is_taken_over() {
    let world = World::new();
    let flags = [&short_lease(&world)[..], &["--class", "downstream"]].concat();
    let script = "echo $SEMEL_ATTEMPT $SEMEL_OPERATION_ID >>ran; while ! test -e go; do sleep 0.1; done";
    let (wrapper, id) = world.start("k", &flags, script);
    world.again("k", &flags, script).exits(75);
    drop(wrapper);
    until(|| !is_running(&id));
    fs::write(world.path("go"), "").expect("written");
    // The waiting call becomes the next attempt as soon as the lease has expired.
    let flags = [&flags[..], &["--wait", "5m", "--report", "report.json"]].concat();
    world.again("k", &flags, script).exits(0);
    assert_eq!((&world.report()["happened"], &world.report()["attempt"]), (&"ran".into(), &2.into()));
    let ran = fs::read_to_string(world.path("ran")).expect("two lines");
    let lines: Vec<_> = ran.lines().filter_map(|line| line.split_once(' ')).collect();
    assert!(matches!(lines[..], [("1", one), ("2", two)] if one == two), "{ran}");
}

#[test]
fn a_program_without_a_lease_is_stopped_if_another_may_run() {
    let world = World::new();
    let flags = [&short_lease(&world)[..], &["--class", "downstream"]].concat();
    let script = "trap 'echo x >>stopped; exit 0' TERM; test -e go || while :; do sleep 0.1; done";
    let (wrapper, _) = world.start("k", &flags, script);
    signal("STOP", wrapper.id());
    fs::write(world.path("go"), "").expect("written");
    let waiting = [&flags[..], &["--wait", "5m"]].concat();
    world.again("k", &waiting, script).exits(0);
    assert!(!world.path("stopped").exists());
    signal("CONT", wrapper.id());
    until(|| world.path("stopped").exists());
    // The record is the other call's.
    assert_eq!(wrapper.code(), Some(0));
}

#[test]
fn all_output_is_passed_on_and_its_end_is_kept() {
    let world = World::new();
    let script = "seq 1 100000; seq 1 50000 >&2; echo end >&2";
    let first = world.once("k", &[], script).exits(0);
    assert_eq!((first.out.lines().count(), first.err.lines().count()), (100_000, 50_001));
    let again = world.once("k", &[], script).exits(0);
    assert_eq!(again.out.len(), 64 << 10);
    assert!(first.out.ends_with(&again.out));
    let cut = first.out.len() - again.out.len();
    assert!(again.err.contains(&format!("the first {cut} bytes of its standard output are not stored")));
    assert!(again.err.ends_with("\n50000\nend\n"), "{}", &again.err[again.err.len() - 100..]);
    world.once("none", &["--keep", "0"], script).exits(0);
    let none = world.once("none", &["--keep", "0", "--quiet"], script).exits(0);
    assert_eq!((none.out.as_str(), none.err.as_str()), ("", ""));
    world.once("much", &["--keep", "6MiB"], script).exits(2);
}

#[test]
fn a_daemon_that_holds_the_output_is_not_waited_for() {
    let world = World::new();
    let script = "(sleep 3000 & echo $! >daemon); echo done";
    let ran = world.once("k", &[], script).exits(0);
    let daemon = fs::read_to_string(world.path("daemon")).expect("an ID");
    let is_left = is_running(daemon.trim());
    signal("KILL", daemon.trim());
    assert!(is_left && ran.out == "done\n", "{ran:?}");
}

#[test]
fn signals_are_passed_on() {
    let world = World::new();
    for (name, expected) in [("TERM", 3), ("INT", 4), ("HUP", 5)] {
        let script = format!("trap 'exit {expected}' {name}; while :; do sleep 0.1; done");
        let (wrapper, _) = world.start(name, &[], &script);
        signal(name, wrapper.id());
        assert_eq!(wrapper.code(), Some(expected), "{name}");
    }
    // A waiting call ends without waiting for the other one.
    let script = "while ! test -e go; do sleep 0.1; done";
    let (running, _) = world.start("k", &[], script);
    let script = format!("echo $$ >pid.new; mv pid.new pid; {script}");
    let mut waiting = world.command("k", &["--wait", "5m"], &script);
    let waiting = Running(waiting.stderr(Stdio::null()).spawn().expect("it starts"));
    // As soon as it receives signals itself.
    until(|| {
        let status = fs::read_to_string(format!("/proc/{}/status", waiting.id())).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).is_some_and(|set| set >> 14 & 1 == 1)
    });
    signal("TERM", waiting.id());
    assert_eq!(waiting.code(), Some(75));
    fs::write(world.path("go"), "").expect("written");
    assert_eq!(running.code(), Some(0));
}

#[test]
fn nothing_runs_without_a_store() {
    let world = World::new();
    for store in ["sqlite:/no/such/folder/once.db", "postgres://semel@127.0.0.1:1/semel", "memory:"] {
        let mut command =
            command(&["once", "k", "--store", store, "--report", "report.json", "--", "touch", "ran"]);
        command.current_dir(world.path("."));
        let refused = run(command).exits(75);
        assert!(refused.err.contains("nothing was run"), "{refused:?}");
        assert_eq!(world.report()["happened"], "not_started");
    }
    let mut command = command(&["once", "k", "--", "touch", "ran"]);
    command.current_dir(world.path(".")).env("SEMEL_STORE", world.scratch.store());
    run(command).exits(2);
    assert!(!world.path("ran").exists());
}

#[test]
fn output_is_sealed_if_there_are_keys() {
    let world = World::new();
    let secret = world.scratch.write("key", hex::encode([7; 32]));
    let config = format!("[[sealing.key]]\nname = \"a\"\nsecret = 'file:{secret}'\n");
    let config = world.scratch.write("sealed.toml", config);
    let script = "echo confidential; exit 3";
    world.once("k", &["--config", &config], script).exits(3);
    assert_eq!(world.once("k", &["--config", &config], script).exits(3).out, "confidential\n");
    let without = world.once("k", &[], script).exits(1);
    assert!(without.out.is_empty() && without.err.contains("its output is not stored"), "{without:?}");
    for file in ["semel.db", "semel.db-wal"] {
        let bytes = fs::read(world.path(file)).unwrap_or_default();
        assert!(!bytes.windows(12).any(|window| window == b"confidential"), "{file}");
    }
}

#[test]
fn a_record_on_postgres_serves_two_machines() {
    let Some(database) = Database::start("once") else { return };
    let (world, store) = (World::new(), database.store());
    let once = |script: &str| {
        let mut command =
            command(&["once", "k", "--store", &store, "--wait", "1m", "--", "sh", "-c", script]);
        command.current_dir(world.path("."));
        run(command)
    };
    let script = "echo x >>ran; echo out";
    let calls: Vec<_> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..3).map(|_| scope.spawn(|| once(script))).collect();
        calls.into_iter().map(|call| call.join().expect("it ends")).collect()
    });
    for call in calls {
        assert_eq!(call.exits(0).out, "out\n");
    }
    assert_eq!(world.runs(), 1);
    once("exit 0").exits(77);
}
