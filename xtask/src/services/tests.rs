//! The private servers from their first start to their stop, in a separate folder.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use super::home::Home;
use super::*;
use semel_test_support::launcher::Account;
use semel_test_support::launcher::postgres::ask as try_ask;

const SERVER: &dyn Server = &postgres::Postgres;
const STANDBY: &dyn Server = &postgres::Standby;
const PGBOUNCER: &dyn Server = &pgbouncer::PgBouncer;

/// Servers in a separate folder. Dropping it stops them.
struct Sandbox {
    services: Services,
}

impl Sandbox {
    /// `None` if a server is not installed, which `cargo xtask test` does not allow.
    fn new(name: &str) -> Option<Self> {
        if let Some(server) = SERVERS.iter().find(|server| !server.missing_packages().is_empty()) {
            let required = std::env::var_os("SEMEL_TEST_TOOLS").is_some_and(|value| value == "required");
            let advice = format!("{} is missing; `cargo xtask services up` installs it", server.name());
            assert!(!required, "{advice}");
            // Directly, because the test harness hides the output of passed tests.
            let _ = writeln!(io::stderr(), "skipped: {advice}");
            return None;
        }
        let folder = std::env::temp_dir().join(format!("semel services {name} {}", std::process::id()));
        Some(Self { services: Services { folder, environment: |_| None } })
    }

    fn home(&self) -> Home {
        self.home_of(SERVER)
    }

    fn home_of(&self, server: &dyn Server) -> Home {
        Home::locate(&self.services.folder, server.name(), Account::of(server.user())).unwrap()
    }

    fn pid_file(&self) -> PathBuf {
        self.home().data().join(SERVER.pid_file())
    }

    /// The URL, the process, and whether it was started.
    fn up(&self) -> (String, u32, bool) {
        self.up_of(SERVER)
    }

    fn up_of(&self, server: &dyn Server) -> (String, u32, bool) {
        let ready = self.services.up(server).unwrap();
        assert_eq!(ready.variable, server.variable());
        let Source::Private { pid, is_new, .. } = ready.source else { panic!("{ready:?}") };
        (ready.url, pid, is_new)
    }

    fn kill(&self, pid: u32) {
        let mut kill = self.home().command(&PathBuf::from("/bin/sh"));
        kill.args(["-c", &format!("kill -9 {pid}")]);
        cargo::capture(kill).unwrap();
    }
}

/// A process of the server's user that is not the server.
struct OtherProcess<'a> {
    sandbox: &'a Sandbox,
    child: Child,
    pid: u32,
}

impl<'a> OtherProcess<'a> {
    fn start(sandbox: &'a Sandbox, folder: &Path, seconds: u32) -> Self {
        let mut shell = sandbox.home().command(&PathBuf::from("/bin/sh"));
        // The child itself may be `runuser`, which runs as root.
        shell
            .current_dir(folder)
            .args(["-c", &format!("echo $$; exec sleep {seconds}")])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = shell.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { sandbox, child, pid: line.trim().parse().unwrap() }
    }

    fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for OtherProcess<'_> {
    fn drop(&mut self) {
        if self.is_running() {
            self.sandbox.kill(self.pid);
            self.child.wait().unwrap();
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        let stopped: Result<Vec<_>, _> =
            SERVERS.iter().rev().map(|server| self.services.down(*server)).collect();
        let removed = fs::remove_dir_all(&self.services.folder);
        if !std::thread::panicking() {
            stopped.unwrap();
            removed.unwrap();
        }
    }
}

fn ask(url: &str, sql: &str) -> String {
    try_ask(url, sql).unwrap()
}

#[test]
fn a_running_server_is_reused_and_a_stopped_one_resumes() {
    let Some(sandbox) = Sandbox::new("reuse") else { return };
    assert_eq!(sandbox.services.state(SERVER), Ok(State::Stopped));
    assert_eq!(sandbox.services.down(SERVER), Ok(None));

    let (url, pid, is_new) = sandbox.up();
    assert!(is_new);
    assert_eq!(ask(&url, "SELECT current_user || ' ' || current_database()"), "semel semel");
    assert_eq!(
        ask(&url, "CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)"),
        "CREATE TABLE\nINSERT 0 1"
    );
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("max_connections", "200"),
        ("listen_addresses", "127.0.0.1"),
    ] {
        assert_eq!(ask(&url, &format!("SHOW {setting}")), value, "{setting}");
    }

    assert_eq!(sandbox.up(), (url.clone(), pid, false));
    let Ok(State::Running { version, .. }) = sandbox.services.state(SERVER) else { panic!("not running") };
    assert!(ask(&url, "SHOW server_version").starts_with(&version.unwrap()));

    assert_eq!(sandbox.services.down(SERVER), Ok(Some(pid)));
    assert_eq!(sandbox.services.state(SERVER), Ok(State::Stopped));
    assert!(SERVER.version(&url).is_err(), "it still answers");
    let (again, _, is_new) = sandbox.up();
    assert_eq!((&again, is_new), (&url, true));
    assert_eq!(ask(&url, "SELECT n FROM kept"), "7");
}

#[test]
fn a_stale_pid_file_affects_neither_server_nor_other_processes() {
    let Some(sandbox) = Sandbox::new("stale") else { return };
    let (url, killed, _) = sandbox.up();
    ask(&url, "CREATE TABLE kept AS SELECT 7 AS n");
    sandbox.kill(killed);
    let (_, pid, is_new) = sandbox.up();
    assert!(is_new && pid != killed, "the killed server counted as running");

    let pid_text = fs::read_to_string(sandbox.pid_file()).unwrap();
    let write_pid = |other_process: u32| {
        fs::write(sandbox.pid_file(), pid_text.replacen(&pid.to_string(), &other_process.to_string(), 1))
            .unwrap();
    };
    assert_eq!(sandbox.services.down(SERVER), Ok(Some(pid)));
    let mut other_process = OtherProcess::start(&sandbox, &std::env::temp_dir(), 60);
    write_pid(other_process.pid);
    assert_eq!(sandbox.services.state(SERVER), Ok(State::Stopped));
    assert_eq!(sandbox.services.down(SERVER), Ok(None));
    // On its old port, unless another program has taken it meanwhile.
    let (again, _, is_new) = sandbox.up();
    assert!(is_new, "the other process counted as the server");
    assert_eq!(ask(&again, "SELECT n FROM kept"), "7");
    assert!(other_process.is_running(), "the other process was stopped");

    // Between `kill -9` and its end, a process still looks like a running server.
    assert!(sandbox.services.down(SERVER).unwrap().is_some());
    let dying = OtherProcess::start(&sandbox, &sandbox.home().data(), 1);
    write_pid(dying.pid);
    assert!(sandbox.up().2, "it was not started again");
}

#[test]
fn incomplete_data_and_a_used_port_are_replaced() {
    let Some(sandbox) = Sandbox::new("half") else { return };
    let home = sandbox.home();
    for half in [home.data(), home.path("data.new")] {
        fs::create_dir_all(half.join("base")).unwrap();
    }
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| sandbox.up());
        let other = sandbox.up();
        (one.join().unwrap(), other)
    });
    assert_eq!((&one.0, one.1), (&other.0, other.1));
    assert!(one.2 != other.2, "exactly one of them starts it");
    assert_eq!(ask(&one.0, "SELECT 1"), "1");

    assert_eq!(sandbox.services.down(SERVER), Ok(Some(one.1)));
    let _taken = TcpListener::bind(("127.0.0.1", port(&one.0))).unwrap();
    assert_ne!(port(&sandbox.up().0), port(&one.0), "another program has the old port");
}

fn port(url: &str) -> u16 {
    url.rsplit_once(':').and_then(|(_, end)| end.strip_suffix("/semel")?.parse().ok()).unwrap()
}

#[test]
fn servers_from_the_environment_are_used_and_left_alone() {
    let folder = std::env::temp_dir().join(format!("semel services external {}", std::process::id()));
    let elsewhere = "postgres://127.0.0.1:1/semel";
    let services =
        Services { folder: folder.clone(), environment: |_| Some("postgres://127.0.0.1:1/semel".to_owned()) };
    let ready = services.up(SERVER).unwrap();
    assert_eq!((ready.url.as_str(), &ready.source), (elsewhere, &Source::External));
    assert!(ready.describe().contains("never started or stopped"));
    assert!(
        matches!(services.state(SERVER), Ok(State::External { url, version: Err(_) }) if url == elsewhere)
    );
    assert_eq!(services.down(SERVER), Ok(None));
    assert!(!folder.join("postgres").exists(), "a private instance was made");

    // A shell that evaluated the output of `up --export` names the private instance.
    let home = Home::locate(&folder, SERVER.name(), Account::of(SERVER.user())).unwrap();
    home.create().unwrap();
    fs::write(home.path("port"), "1").unwrap();
    let external =
        Services { environment: |_| Some("postgres://semel@127.0.0.1:1/semel".to_owned()), ..services };
    let state = external.state(SERVER);
    fs::remove_dir_all(&folder).unwrap();
    assert_eq!(state, Ok(State::Stopped));
}

#[test]
fn a_standby_replicates_and_is_recreated_after_a_promotion() {
    let Some(sandbox) = Sandbox::new("standby") else { return };
    let (standby, pid, is_new) = sandbox.up_of(STANDBY);
    assert!(is_new);
    let (primary, _, primary_is_new) = sandbox.up();
    assert!(!primary_is_new && primary != standby, "the standby needs the primary");
    ask(&primary, "CREATE TABLE copied (n int)");
    let seen = || try_ask(&standby, "SELECT count(*) FROM copied").is_ok_and(|count| count == "0");
    assert!(becomes_true(seen), "the table was not copied");
    let refused = try_ask(&standby, "INSERT INTO copied VALUES (1)").unwrap_err();
    assert!(refused.contains("read-only transaction"), "{refused}");
    assert_eq!(sandbox.up_of(STANDBY), (standby.clone(), pid, false));

    // After a restart it continues from its slot.
    assert_eq!(sandbox.services.down(STANDBY), Ok(Some(pid)));
    ask(&primary, "INSERT INTO copied VALUES (1)");
    let (_, pid, is_new) = sandbox.up_of(STANDBY);
    let old = sandbox.home_of(STANDBY).data().join("old");
    fs::write(&old, "").unwrap();
    assert!(is_new && becomes_true(|| ask(&standby, "SELECT count(*) FROM copied") == "1"));

    let administrator = standby.replacen("semel@", "postgres@", 1);
    assert_eq!(ask(&administrator, "SELECT pg_promote()"), "t");
    assert!(STANDBY.verify(&standby, None).unwrap_err().contains("takes writes"));
    let (_, again, is_new) = sandbox.up_of(STANDBY);
    assert!(is_new && again != pid, "a promoted server was taken for a standby");
    assert!(!old.exists(), "it was not copied again");
    assert_eq!(STANDBY.verify(&standby, Some(&primary)), Ok(()));
}

#[test]
fn pgbouncer_shares_few_connections_and_follows_the_server_behind_it() {
    let Some(sandbox) = Sandbox::new("pgbouncer") else { return };
    let (url, pid, is_new) = sandbox.up_of(PGBOUNCER);
    assert!(is_new);
    assert_eq!(ask(&url, "SELECT current_user || ' ' || current_database()"), "semel semel");
    let pools = ask(&format!("{}/pgbouncer", url.strip_suffix("/semel").unwrap()), "SHOW POOLS");
    assert!(pools.contains("|transaction"), "{pools}");
    let Ok(State::Running { version: Ok(version), .. }) = sandbox.services.state(PGBOUNCER) else {
        panic!("not running")
    };
    assert!(version.starts_with("1."), "{version}");
    assert_eq!(sandbox.up_of(PGBOUNCER), (url.clone(), pid, false));

    // PostgreSQL returns on another port.
    let (primary, primary_pid, _) = sandbox.up();
    assert_eq!(sandbox.services.down(SERVER), Ok(Some(primary_pid)));
    let _taken = TcpListener::bind(("127.0.0.1", port(&primary))).unwrap();
    let (again, new_pid, is_new) = sandbox.up_of(PGBOUNCER);
    assert!(is_new && new_pid != pid && again == url, "it still points at the old port");
    assert_eq!(ask(&url, "SELECT 1"), "1");

    assert_eq!(sandbox.services.down(PGBOUNCER), Ok(Some(new_pid)));
    assert_eq!(sandbox.services.state(PGBOUNCER), Ok(State::Stopped));
    assert!(PGBOUNCER.version(&url).is_err(), "it still answers");
}

#[test]
fn redis_keeps_acknowledged_writes_and_a_cluster_starts() {
    let Some(sandbox) = Sandbox::new("redis") else { return };
    let server: &dyn Server = &redis::Redis;
    let (url, pid, is_new) = sandbox.up_of(server);
    assert!(is_new);
    let mut set = cargo::program("redis-cli");
    set.args(["-u", &url, "SET", "kept", "7"]);
    assert_eq!(cargo::capture(set).unwrap().trim(), "OK");
    let mut kill = sandbox.home_of(server).command(&PathBuf::from("/bin/sh"));
    kill.args(["-c", &format!("kill -9 {pid}")]);
    cargo::capture(kill).unwrap();
    let (again, _, is_new) = sandbox.up_of(server);
    assert_eq!((&again, is_new), (&url, true));
    let mut get = cargo::program("redis-cli");
    get.args(["-u", &url, "GET", "kept"]);
    assert_eq!(cargo::capture(get).unwrap().trim(), "7");

    let cluster: &dyn Server = &redis::Cluster;
    let (url, pid, is_new) = sandbox.up_of(cluster);
    assert!(is_new);
    assert_eq!(cluster.verify(&url, None), Ok(()));
    assert_eq!(sandbox.up_of(cluster), (url.clone(), pid, false));
    assert_eq!(sandbox.services.down(cluster), Ok(Some(pid)));
    assert!(cluster.version(&url).is_err(), "it still answers");
    assert!(sandbox.up_of(cluster).2, "it is created again");
}

/// Checks for ten seconds.
fn becomes_true(mut condition: impl FnMut() -> bool) -> bool {
    for _ in 0..100 {
        if condition() {
            return true;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    false
}
