//! The program under a wall clock that is set while it runs, or before it starts.
//!
//! libfaketime shifts the wall clock of a process but not its uptime, like setting a machine's clock.

use crate::tools;
use crate::world::{Gateway, Scratch, Starting, World, complete_config, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, Upstream, charged};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

/// Short durations, and no settling after the start: records that the clock considers expired are removed at once.
const HASTY: &str = "[clock]\nheartbeat = \"400ms\"\nsettle = \"0s\"\n[sweep]\nevery = \"50ms\"\n";

/// Two and a half heartbeats: for that long, nothing is judged by a changed time.
const HELD_BACK: Duration = Duration::from_secs(1);

const NOT_TRUSTED: &str = "IDEMPOTENCY_CLOCK_NOT_TRUSTED";

/// A wall clock for the processes that are started under it.
struct WallClock {
    library: String,
    file: PathBuf,
}

impl WallClock {
    /// A clock without an offset. `None` if the library is missing.
    fn new(scratch: &Scratch) -> Option<Self> {
        let faketime = tools::program("faketime")?;
        remove_stale_shared_memory();
        let wrapper =
            Command::new(faketime).args(["-m", "-f", "+0", "sh", "-c", "printf %s \"$LD_PRELOAD\""]).output();
        let library = String::from_utf8(wrapper.expect("faketime runs").stdout).expect("a path");
        assert!(library.contains("libfaketime"), "{library}");
        Some(Self { library, file: scratch.write("wall-clock", "+0") })
    }

    /// Sets the offset: `+32d`, `-400d`, `+1`.
    fn set(&self, offset: &str) {
        let next = self.file.with_extension("next");
        std::fs::write(&next, offset).expect("a file");
        // Replaces the file atomically: a process that reads half a file would use another time.
        std::fs::rename(&next, &self.file).expect("a file");
    }

    /// The program, under this clock.
    fn program(&self) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_semel"));
        program
            .env("LD_PRELOAD", &self.library)
            .env("FAKETIME_TIMESTAMP_FILE", &self.file)
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
            .env("NO_FAKE_STAT", "1");
        program
    }
}

/// Removes libfaketime's shared memory of killed processes. A new process with the same ID would not start.
fn remove_stale_shared_memory() {
    let Ok(files) = std::fs::read_dir("/dev/shm") else { return };
    for file in files.flatten() {
        let name = file.file_name();
        let Some((kind, process)) = name.to_str().and_then(|name| name.rsplit_once('_')) else { continue };
        let is_of_faketime = matches!(kind, "faketime_shm" | "sem.faketime_sem");
        if is_of_faketime && !Path::new("/proc").join(process).exists() {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

/// A gateway under its own clock.
struct Shop {
    world: World,
    clock: WallClock,
    admin: SocketAddr,
}

impl Shop {
    async fn new() -> Option<Self> {
        Self::with(HASTY, charged).await
    }

    async fn with(terms: &str, script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Option<Self> {
        let scratch = Scratch::new();
        let clock = WallClock::new(&scratch)?;
        let upstream = Upstream::start(script).await;
        scratch.configure(&complete_config(&scratch, upstream.address, terms));
        let (gateway, admin) = started(&clock, &scratch);
        Some(Self { world: World { gateway, upstream, scratch }, clock, admin })
    }

    /// Kills the gateway, runs `meanwhile`, and starts the gateway again.
    fn restart(&mut self, meanwhile: impl FnOnce(&Self)) {
        self.world.gateway.kill();
        meanwhile(self);
        (self.world.gateway, self.admin) = started(&self.clock, &self.world.scratch);
    }

    /// Pays and retries as long as the response asks for it, except for `NOT_TRUSTED`, which the tests are about. On a
    /// busy machine, a [hasty](HASTY) gateway may refuse for a moment.
    async fn pay(&self, number: u32) -> Reply {
        until(async || {
            let reply = self.world.send(payment(number)).await;
            let is_settled = reply.code().is_none_or(|code| code == NOT_TRUSTED) || !reply.is_retryable();
            is_settled.then_some(reply)
        })
        .await
    }

    /// Pays for the first time.
    async fn pay_first(&self, number: u32) -> Reply {
        let reply = self.pay(number).await;
        assert!(reply.status == 201 && !reply.is_replay() && reply.is_acknowledged(), "{reply:?}");
        reply
    }

    async fn is_replayed(&self, number: u32, first: &Reply) {
        let reply = self.pay(number).await;
        assert!(reply.is_replay() && reply.kept() == first.kept(), "{reply:?} after {first:?}");
    }

    async fn is_refused(&self, number: u32) {
        let calls = self.world.calls();
        let reply = self.pay(number).await;
        self.world.is_problem(&reply, 503, NOT_TRUSTED, true).await;
        assert!(reply.header("retry-after").is_some(), "{reply:?}");
        assert_eq!(self.world.calls(), calls, "nothing was run");
    }

    /// Waits until a refused payment succeeds.
    async fn pay_until_accepted(&self, number: u32) -> Reply {
        until(async || {
            let reply = self.pay(number).await;
            let is_refused = reply.code().as_deref() == Some(NOT_TRUSTED);
            assert!(is_refused || reply.status == 201, "{reply:?}");
            (!is_refused).then_some(reply)
        })
        .await
    }

    async fn metric(&self, name: &str) -> u64 {
        let page = TestRequest::get("/metrics").send(self.admin).await.expect("an answer");
        let found = page.text().lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let value = found.unwrap_or_else(|| panic!("no {name} in {}", page.text()));
        value.parse().expect("a whole number")
    }

    async fn is_trusted(&self, expected: bool) {
        until(async || (self.metric("idempotency_clock_trusted").await == u64::from(expected)).then_some(()))
            .await;
    }

    /// Whether it is ready, and what it reports.
    async fn readiness(&self) -> (u16, String) {
        let reply = TestRequest::get("/readyz").send(self.admin).await.expect("an answer");
        (reply.status, reply.text().to_owned())
    }

    async fn is_ready_without_degradation(&self) {
        until(async || {
            let (status, text) = self.readiness().await;
            (status == 200 && text.contains("\"degraded\":[]")).then_some(())
        })
        .await;
    }

    async fn logs(&self, line: &str) {
        until(async || self.world.log().contains(line).then_some(())).await;
    }

    /// Waits for a few more sweeps, including the time that the sweeper holds back after a clock change.
    async fn wait_for_sweeps(&self) {
        tokio::time::sleep(HELD_BACK).await;
        self.wait_for_store_calls("due").await;
    }

    /// Waits for a few more of these calls.
    async fn wait_for_store_calls(&self, call: &str) {
        let calls = format!("idempotency_store_seconds_count{{call=\"{call}\"}}");
        let before = self.metric(&calls).await;
        until(async || (self.metric(&calls).await > before + 3).then_some(())).await;
    }

    /// Waits for a few more heartbeats.
    async fn wait_for_heartbeats(&self) {
        let file = self.world.scratch.file();
        let beat = || mark(&file).expect("a mark")["beat"].as_u64().expect("a number");
        let before = beat();
        until(async || (beat() > before + 3).then_some(())).await;
    }

    fn records(&self) -> u32 {
        let file = rusqlite::Connection::open(self.world.scratch.file()).expect("the same file");
        let count = "SELECT count(*) FROM semel_records";
        file.query_row(count, [], |row| row.get(0)).expect("a number")
    }

    fn doctor(&self, flags: &[&str]) -> Output {
        let store = format!("sqlite:{}", self.world.scratch.file().display());
        let mut program = self.clock.program();
        program.args(["doctor", "--store", &store]).args(flags).output().expect("it runs")
    }

    /// Confirms a clock from a machine whose clock is right.
    fn confirm_from_elsewhere(&self, which: &[&str]) -> Output {
        let store = format!("sqlite:{}", self.world.scratch.file().display());
        let mut doctor = Command::new(env!("CARGO_BIN_EXE_semel"));
        let flags =
            [&["doctor", "--store", &store, "--confirm-clock"][..], which, &["--reason", "so"]].concat();
        doctor.args(flags).output().expect("it runs")
    }

    async fn confirm(&self, body: &str) -> Reply {
        TestRequest::post("/v1/clock/confirm").json(body).send(self.admin).await.expect("an answer")
    }
}

fn started(clock: &WallClock, scratch: &Scratch) -> (Gateway, SocketAddr) {
    let config = scratch.config();
    let flags = ["--config", config.to_str().expect("text")];
    let mut gateway = Starting::begin_as(clock.program(), scratch, &flags).listens();
    let admin = gateway.admin();
    (gateway, admin)
}

fn payment(number: u32) -> TestRequest {
    TestRequest::post("/charges").key(&format!("order-number-{number:08}")).json("{\"amount\":5}")
}

/// The time mark in the store.
fn mark(file: &Path) -> Option<serde_json::Value> {
    let file = rusqlite::Connection::open(file).expect("the same file");
    let value = "SELECT value FROM semel_settings WHERE name = 'clock'";
    let bytes: Vec<u8> = file.query_row(value, [], |row| row.get(0)).ok()?;
    Some(serde_json::from_slice(&bytes).expect("JSON"))
}

fn set_mark(file: &Path, mark: Option<&serde_json::Value>) {
    let file = rusqlite::Connection::open(file).expect("the same file");
    let changed = match mark {
        Some(mark) => file.execute(
            "UPDATE semel_settings SET value = ?1 WHERE name = 'clock'",
            [mark.to_string().into_bytes()],
        ),
        None => file.execute("DELETE FROM semel_settings WHERE name = 'clock'", []),
    };
    assert_eq!(changed.expect("it can be written"), 1);
}

fn machine_uptime_ms() -> u64 {
    let text = std::fs::read_to_string("/proc/uptime").expect("Linux");
    let seconds: f64 = text.split(' ').next().and_then(|text| text.parse().ok()).expect("seconds");
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "milliseconds of an uptime")]
    let millis = (seconds * 1_000.0) as u64;
    millis
}

#[tokio::test]
async fn a_month_ahead_while_running_forgets_nothing() {
    let Some(shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    let uptime = machine_uptime_ms();
    shop.clock.set("+32d");
    shop.logs("the clock jumped and is not trusted").await;
    shop.is_trusted(false).await;
    let (status, text) = shop.readiness().await;
    assert!(status == 200 && text.contains("\"degraded\":[\"the clock jumped ahead"), "{text}");
    shop.wait_for_sweeps().await;
    shop.wait_for_heartbeats().await;
    shop.is_replayed(1, &first).await;
    let second = shop.pay_first(2).await;
    shop.is_replayed(2, &second).await;
    assert_eq!((shop.world.calls(), shop.records()), (2, 2));
    for never in ["idempotency_purged_total", "idempotency_lease_losses_total"] {
        assert_eq!(shop.metric(never).await, 0, "{never}");
    }
    // Only the wall clock was changed.
    let marked_uptime =
        mark(&shop.world.scratch.file()).expect("a mark")["uptime_ms"].as_u64().expect("a number");
    assert!((uptime..=machine_uptime_ms() + 10).contains(&marked_uptime), "{marked_uptime} since {uptime}");
    shop.clock.set("+0");
    shop.logs("the clock is right again, and is trusted").await;
    shop.is_trusted(true).await;
    shop.is_ready_without_degradation().await;
    shop.is_replayed(1, &first).await;
}

#[tokio::test]
async fn a_request_that_runs_while_the_clock_jumps_ends_as_usual() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| Act::After(held.clone(), Box::new(charged(seen)));
    let Some(shop) = Shop::with(&format!("{HASTY}[defaults]\nlease = \"3s\"\n"), script).await else {
        return;
    };
    let (paying, turning) = (shop.pay(1), async {
        shop.world.upstream.has_seen(1).await;
        for offset in ["+32d", "-400d", "+0"] {
            shop.clock.set(offset);
            shop.wait_for_sweeps().await;
            shop.wait_for_heartbeats().await;
        }
        gate.open();
    });
    let (first, ()) = tokio::join!(paying, turning);
    assert!(first.status == 201 && first.is_acknowledged(), "{first:?}");
    shop.is_replayed(1, &first).await;
    assert_eq!(shop.world.calls(), 1);
}

#[tokio::test]
async fn forty_days_ahead_at_start_runs_nothing_twice() {
    let Some(mut shop) = Shop::new().await else { return };
    let mut first = Vec::new();
    for number in 0..50 {
        first.push(shop.pay_first(number).await);
    }
    shop.restart(|shop| shop.clock.set("+40d"));
    shop.logs("the clock is not trusted: new keys are refused").await;
    assert_eq!(shop.metric("idempotency_clock_trusted").await, 0);
    for number in 0..50 {
        let reply = shop.pay(number).await;
        let is_refused = reply.code().as_deref() == Some(NOT_TRUSTED);
        assert!(is_refused || reply.is_replay(), "{reply:?}");
    }
    shop.is_refused(50).await;
    // Waits for as long as the sweeper would have needed.
    shop.wait_for_store_calls("beat").await;
    assert_eq!((shop.world.calls(), shop.records()), (50, 50));
    shop.restart(|shop| shop.clock.set("+0"));
    for (number, first) in (0..).zip(&first) {
        shop.is_replayed(number, first).await;
    }
    shop.pay_first(50).await;
    assert_eq!((shop.world.calls(), shop.records()), (51, 51));
}

#[tokio::test]
async fn a_clock_behind_at_start_refuses_new_keys() {
    let Some(mut shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.restart(|shop| shop.clock.set("-2d"));
    shop.is_refused(2).await;
    shop.is_replayed(1, &first).await;
    let (status, text) = shop.readiness().await;
    assert!(status == 503 && text.contains("the clock is not trusted"), "{status} {text}");
    shop.clock.set("+0");
    let second = shop.pay_until_accepted(2).await;
    shop.is_ready_without_degradation().await;
    shop.logs("the clock is plausible again").await;
    shop.is_trusted(true).await;
    shop.restart(|_| ());
    shop.is_replayed(1, &first).await;
    shop.is_replayed(2, &second).await;
    assert_eq!(shop.world.calls(), 2);
}

#[tokio::test]
async fn outcomes_stored_while_the_clock_was_back_are_replayed() {
    let Some(mut shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.clock.set("-400d");
    shop.is_trusted(false).await;
    let second = shop.pay_first(2).await;
    shop.wait_for_sweeps().await;
    shop.clock.set("+0");
    shop.is_trusted(true).await;
    shop.restart(|_| ());
    shop.wait_for_sweeps().await;
    shop.is_replayed(1, &first).await;
    shop.is_replayed(2, &second).await;
    assert_eq!(shop.world.calls(), 2);
}

#[tokio::test]
async fn the_doctor_finds_a_wrong_clock_and_confirms_a_right_one() {
    let Some(mut shop) = Shop::new().await else { return };
    shop.pay_first(1).await;
    shop.restart(|shop| shop.clock.set("+40d"));
    shop.is_refused(2).await;
    let found = shop.doctor(&["--json"]);
    let report = String::from_utf8(found.stdout).expect("text");
    assert_eq!(found.status.code(), Some(1), "{report}");
    assert!(report.contains("\"clock-not-trusted\""), "{report}");
    let reason = "the machine lay in a drawer for forty days";
    for flags in [
        &["--confirm-clock"][..],
        &["--confirm-clock", "--reason", " "],
        &["--reason", "so"],
        // It does not say which clock: this one, or the one of forty days ago.
        &["--confirm-clock", "--reason", reason],
    ] {
        let refused = shop.doctor(flags);
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    }
    shop.is_refused(2).await;
    let done = shop.doctor(&["--confirm-clock", "this-machine", "--reason", reason]);
    assert!(done.status.success() && done.stdout.starts_with(b"confirmed: it is "), "{done:?}");
    let second = shop.pay_until_accepted(2).await;
    shop.is_trusted(true).await;
    shop.logs("an operator confirmed the clock; it is trusted").await;
    let kept = mark(&shop.world.scratch.file()).expect("a mark");
    assert_eq!(kept["confirmed"]["why"], "the machine lay in a drawer for forty days");
    let clean = shop.doctor(&["--json"]);
    assert!(!String::from_utf8_lossy(&clean.stdout).contains("clock-not-trusted"), "{clean:?}");
    shop.restart(|_| ());
    shop.is_replayed(2, &second).await;
}

#[tokio::test]
async fn a_confirmation_from_another_clock_asks_which_one_is_meant() {
    let Some(shop) = Shop::new().await else { return };
    shop.pay_first(1).await;
    shop.clock.set("+40d");
    shop.is_trusted(false).await;
    shop.wait_for_heartbeats().await;
    let asked = shop.confirm_from_elsewhere(&[]);
    let text = String::from_utf8(asked.stderr).expect("text");
    assert_eq!(asked.status.code(), Some(2), "{text}");
    for part in
        ["this machine's clock shows", "gateways on this store use", "but their machine's clock shows"]
    {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Nothing has changed.
    shop.pay_first(2).await;
    let confirmed = shop.confirm_from_elsewhere(&["gateway"]);
    assert!(confirmed.status.success(), "{confirmed:?}");
    shop.is_trusted(true).await;
    shop.pay_first(3).await;
    assert!(!shop.world.log().contains("the clock is not trusted: new keys"), "{}", shop.world.log());
}

#[tokio::test]
async fn a_gateway_that_loses_its_trust_while_it_runs_stays_ready() {
    let Some(shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.clock.set("+3h");
    shop.is_trusted(false).await;
    shop.wait_for_heartbeats().await;
    let confirmed = shop.confirm_from_elsewhere(&["this-machine"]);
    assert!(confirmed.status.success(), "{confirmed:?}");
    shop.logs("the clock is not trusted: new keys are refused").await;
    shop.is_refused(2).await;
    shop.is_replayed(1, &first).await;
    let (status, text) = shop.readiness().await;
    assert!(status == 200 && text.contains("\"degraded\":[\"the clock is not trusted"), "{status} {text}");
}

#[tokio::test]
async fn an_operator_confirms_the_clock_over_the_admin_address() {
    let Some(mut shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.restart(|shop| shop.clock.set("-2d"));
    shop.is_refused(2).await;
    for unreasoned in ["{}", "{\"reason\":\"\"}", "{\"reason\":\" \"}"] {
        let refused = shop.confirm(unreasoned).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
    shop.is_refused(2).await;
    let unclear = shop.confirm("{\"reason\":\"it was two days fast until now\"}").await;
    assert_eq!((unclear.status, unclear.code().as_deref()), (409, Some("CLOCKS_DIFFER")), "{unclear:?}");
    shop.is_refused(2).await;
    let chosen = "{\"reason\":\"it was two days fast until now\",\"clock\":\"this-gateway\"}";
    let confirmed = shop.confirm(chosen).await;
    assert_eq!(confirmed.status, 200, "{confirmed:?}");
    assert!(confirmed.json()["confirmedAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{confirmed:?}");
    let second = shop.pay_until_accepted(2).await;
    let log = shop.world.log();
    let audited = log
        .lines()
        .find(|line| line.contains("an operator confirmed the clock") && line.contains("semel::audit"))
        .expect("a line");
    for part in ["semel::audit", "loopback", "confirm-clock", "it was two days fast until now"] {
        assert!(audited.contains(part), "{part} in {audited}");
    }
    shop.is_trusted(true).await;
    shop.is_replayed(1, &first).await;
    shop.is_replayed(2, &second).await;
}

#[tokio::test]
async fn a_clock_step_of_a_second_is_ignored() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| match seen.number {
        1 => Act::After(held.clone(), Box::new(charged(seen))),
        _ => charged(seen),
    };
    let Some(mut shop) = Shop::with(&format!("{HASTY}[defaults]\nlease = \"3s\"\n"), script).await else {
        return;
    };
    let (paying, turning) = (shop.pay(1), async {
        shop.world.upstream.has_seen(1).await;
        for (number, offset) in [(2, "+1"), (3, "+0"), (4, "-1"), (5, "+0")] {
            shop.clock.set(offset);
            shop.wait_for_heartbeats().await;
            shop.wait_for_sweeps().await;
            shop.pay_first(number).await;
        }
        gate.open();
    });
    let (first, ()) = tokio::join!(paying, turning);
    assert!(first.status == 201 && first.is_acknowledged(), "{first:?}");
    shop.restart(|shop| shop.clock.set("+1"));
    shop.is_replayed(1, &first).await;
    shop.pay_first(6).await;
    assert_eq!(shop.metric("idempotency_clock_trusted").await, 1);
    assert!(!shop.world.log().contains("the clock"), "{}", shop.world.log());
    assert_eq!(shop.world.calls(), 6);
}

#[tokio::test]
async fn a_start_after_six_days_and_a_reboot_needs_no_operator() {
    let Some(mut shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.restart(|shop| {
        let file = shop.world.scratch.file();
        let mut mark = mark(&file).expect("a mark");
        for moment in ["at_ms", "now_ms"] {
            let six_days = 6 * 24 * 3_600_000;
            mark[moment] = (mark[moment].as_u64().expect("a number") - six_days).into();
        }
        mark["boot"] = "another boot".into();
        set_mark(&file, Some(&mark));
    });
    shop.pay_first(2).await;
    shop.is_replayed(1, &first).await;
    assert_eq!(shop.metric("idempotency_clock_trusted").await, 1);
    assert!(!shop.world.log().contains("the clock"), "{}", shop.world.log());
}

#[tokio::test]
async fn a_store_from_before_the_mark_is_served_and_gets_one() {
    let Some(mut shop) = Shop::new().await else { return };
    let first = shop.pay_first(1).await;
    shop.restart(|shop| {
        let file = shop.world.scratch.file();
        set_mark(&file, None);
        assert!(mark(&file).is_none());
    });
    shop.is_replayed(1, &first).await;
    shop.pay_first(2).await;
    assert!(mark(&shop.world.scratch.file()).is_some());
    assert_eq!(shop.metric("idempotency_clock_trusted").await, 1);
    assert_eq!(shop.world.calls(), 2);
}
