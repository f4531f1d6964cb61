//! A started `semel serve`, with an upstream behind it and a store under it.

use crate::store::{StoreKind, TestStore};
pub(crate) use semel_test_support::KEY;
use semel_test_support::Reply;
use semel_test_support::ScratchDir;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream};
pub(crate) use semel_test_support::wait::{until, within};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

const STORE_FILE: &str = "semel.db";

/// The files of a test (log, configuration) and its store. Prints the end of the log if the test fails.
pub(crate) struct Scratch(ScratchDir, TestStore);

impl Scratch {
    /// With a file as its store.
    pub(crate) fn new() -> Self {
        Self::on(StoreKind::File)
    }

    pub(crate) fn on(kind: StoreKind) -> Self {
        let files = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "gateway");
        let store = TestStore::new(kind, &files.join(STORE_FILE));
        Self(files, store)
    }

    /// The store's file, for tests that look into it.
    pub(crate) fn file(&self) -> PathBuf {
        self.0.join(STORE_FILE)
    }

    pub(crate) fn store(&self) -> &TestStore {
        &self.1
    }

    fn log(&self) -> PathBuf {
        self.0.join("semel.log")
    }

    /// Writes another file beside them.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        self.0.write(name, text)
    }

    /// What was logged so far.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// The configuration file, if there is one.
    pub(crate) fn config(&self) -> PathBuf {
        self.0.join("semel.toml")
    }

    /// Writes the configuration file.
    pub(crate) fn configure(&self, text: &str) {
        self.write("semel.toml", text);
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let last = &lines[lines.len().saturating_sub(40)..];
            eprintln!("what semel logged last:\n{}", last.join("\n"));
        }
    }
}

/// A process `semel serve` that has not printed its address yet. Killed on drop.
pub(crate) struct Starting(Option<Child>);

impl Starting {
    pub(crate) fn begin(scratch: &Scratch, flags: &[&str]) -> Self {
        Self::begin_as(Command::new(env!("CARGO_BIN_EXE_semel")), scratch, flags)
    }

    /// The same, with the environment of `program`.
    pub(crate) fn begin_as(mut program: Command, scratch: &Scratch, flags: &[&str]) -> Self {
        program
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(flags)
            // A default that flags override.
            .env("SEMEL_ADMIN", "127.0.0.1:0");
        Self::spawn(program, scratch)
    }

    /// Starts a program that behaves like `semel serve`, unchanged.
    pub(crate) fn spawn(mut program: Command, scratch: &Scratch) -> Self {
        let log = std::fs::File::options().create(true).append(true).open(scratch.log()).expect("a log");
        let process =
            program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).spawn().expect("semel starts");
        Self(Some(process))
    }

    /// Requests a reload of its configuration.
    pub(crate) fn hang_up(&self) {
        signal(self.0.as_ref().expect("it runs").id(), "HUP");
    }

    /// Waits until it prints its address.
    pub(crate) fn listens(mut self) -> Gateway {
        let process = self.0.as_mut().expect("it runs");
        let mut stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
        let id = process.id();
        let mut output = String::new();
        let address = loop {
            let from = output.len();
            let read = stdout.read_line(&mut output).expect("text");
            assert!(read > 0, "semel did not start: {:?}, {output}", process.wait());
            if let Some(address) = output[from..].trim().strip_prefix("listening") {
                let (_, address) = address.trim().split_once("://").expect("a URL");
                break address.parse().expect("an address");
            }
        };
        Gateway { process: self.0.take(), id, address, stdout }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(mut process) = self.0.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn signal(id: u32, name: &str) {
    let status = Command::new("sh").arg("-c").arg(format!("kill -{name} {id}")).status();
    assert!(status.expect("a shell").success(), "semel has already exited");
}

/// A process `semel serve`. Killed on drop.
pub(crate) struct Gateway {
    process: Option<Child>,
    pub(crate) id: u32,
    pub(crate) address: SocketAddr,
    /// Kept open, so that the process can print.
    stdout: BufReader<ChildStdout>,
}

impl Gateway {
    /// Starts it on the store in `scratch`, in front of `upstream`, and reads its address.
    pub(crate) fn start(scratch: &Scratch, upstream: SocketAddr, flags: &[&str]) -> Self {
        Self::start_on(&scratch.store().url(), scratch, upstream, flags)
    }

    pub(crate) fn start_on(store: &str, scratch: &Scratch, upstream: SocketAddr, flags: &[&str]) -> Self {
        let upstream = format!("http://{upstream}");
        let usual = ["--store", store, "--upstream", &upstream];
        if flags.contains(&"--config") {
            return Self::run(scratch, &[&usual, flags].concat());
        }
        let patient = scratch.write("patient.toml", format!("[store]\n{}", patience("")));
        let patient = ["--config", patient.to_str().expect("text")];
        Self::run(scratch, &[&usual[..], &patient, flags].concat())
    }

    /// The same, in front of `url`.
    pub(crate) fn start_before(url: &str, scratch: &Scratch, flags: &[&str]) -> Self {
        let store = scratch.store().url();
        Self::run(scratch, &[&["--store", &store, "--upstream", url], flags].concat())
    }

    /// Starts it on the configuration file in `scratch`.
    pub(crate) fn configured(scratch: &Scratch, flags: &[&str]) -> Self {
        let config = scratch.config();
        Self::run(scratch, &[&["--config", config.to_str().expect("text")], flags].concat())
    }

    /// Starts it with these flags, and reads its address.
    pub(crate) fn run(scratch: &Scratch, flags: &[&str]) -> Self {
        Starting::begin(scratch, flags).listens()
    }

    /// The admin address, which it prints next.
    pub(crate) fn admin(&mut self) -> SocketAddr {
        loop {
            let mut line = String::new();
            assert!(self.stdout.read_line(&mut line).expect("text") > 0, "no admin address was printed");
            if let Some(after_label) = line.trim().strip_prefix("admin") {
                let address =
                    after_label.trim().split_once("://").and_then(|(_, rest)| rest.split(' ').next());
                return address.expect("a URL").parse().expect("an address");
            }
        }
    }

    /// The output after the address, once it has exited.
    pub(crate) fn rest_of_output(&mut self) -> String {
        assert!(self.process.is_none(), "it still runs");
        let mut output = String::new();
        self.stdout.read_to_string(&mut output).expect("text");
        output
    }

    /// Kills the process, like a power failure.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("the process can be killed");
            process.wait().expect("it has exited");
        }
    }

    /// Requests a shutdown.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Requests a reload of its configuration.
    pub(crate) fn hang_up(&self) {
        self.signal("HUP");
    }

    /// Stops it, like a suspended machine.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
    }

    /// Continues it.
    pub(crate) fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        signal(self.id, name);
    }

    /// The peak memory use so far, in KiB.
    pub(crate) fn peak_rss_kib(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id)).expect("it runs");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        peak.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// Waits until it exits.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("it runs");
        let waited = tokio::task::spawn_blocking(move || process.wait());
        within(waited).await.expect("no panic").expect("it ends")
    }

    /// Waits until connections are refused.
    pub(crate) async fn refuses(&self) {
        until(async || tokio::net::TcpStream::connect(self.address).await.is_err().then_some(())).await;
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The error output of `semel serve` with flags that prevent its start.
pub(crate) fn does_not_start(flags: &[&str]) -> String {
    let mut process = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", "127.0.0.1:0"])
        .args(flags)
        .env("SEMEL_ADMIN", "127.0.0.1:0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("semel runs");
    // The first line is the address; a program that does not start prints none.
    let mut output = String::new();
    let mut stdout = BufReader::new(process.stdout.take().expect("it was asked for"));
    let printed = stdout.read_line(&mut output).expect("text");
    if printed > 0 {
        process.kill().expect("the process can be killed");
    }
    let ended = process.wait_with_output().expect("it ends");
    assert_eq!((printed, ended.status.code()), (0, Some(1)), "it started: {output}, {ended:?}");
    String::from_utf8(ended.stderr).expect("text")
}

/// A gateway, the service behind it, and the store under it, which is a file unless a [`StoreKind`] is given.
pub(crate) struct World {
    pub(crate) gateway: Gateway,
    pub(crate) upstream: Upstream,
    pub(crate) scratch: Scratch,
}

impl World {
    /// With an upstream that handles each request with `script`.
    pub(crate) async fn new(flags: &[&str], script: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Self {
        Self::on(StoreKind::File, flags, script).await
    }

    /// The same, on a store of this kind.
    pub(crate) async fn on(
        kind: StoreKind,
        flags: &[&str],
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (scratch, upstream) = (Scratch::on(kind), Upstream::start(script).await);
        let gateway = Gateway::start(&scratch, upstream.address, flags);
        Self { gateway, upstream, scratch }
    }

    /// With a complete configuration file: `terms`, plus upstream and store.
    pub(crate) async fn configured(
        terms: &str,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::with_file(Scratch::new(), terms, &[], script).await
    }

    /// The same, with more upstream settings.
    pub(crate) async fn configured_before(
        upstream_terms: &str,
        terms: &str,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(script).await);
        let text = complete_config(&scratch, upstream.address, terms);
        scratch.configure(&text.replacen("[store]", &format!("{upstream_terms}\n[store]"), 1));
        let gateway = Gateway::configured(&scratch, &[]);
        Self { gateway, upstream, scratch }
    }

    /// The same, with files that `terms` refers to.
    pub(crate) async fn configured_in(
        scratch: Scratch,
        terms: &str,
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::with_file(scratch, terms, &[], script).await
    }

    /// The same, with additional flags.
    pub(crate) async fn configured_with(
        terms: &str,
        flags: &[&str],
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::configured_on(StoreKind::File, terms, flags, script).await
    }

    /// The same, on a store of this kind.
    pub(crate) async fn configured_on(
        kind: StoreKind,
        terms: &str,
        flags: &[&str],
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        Self::with_file(Scratch::on(kind), terms, flags, script).await
    }

    async fn with_file(
        scratch: Scratch,
        terms: &str,
        flags: &[&str],
        script: impl Fn(&Seen) -> Act + Send + Sync + 'static,
    ) -> Self {
        let upstream = Upstream::start(script).await;
        scratch.configure(&complete_config(&scratch, upstream.address, terms));
        let gateway = Gateway::configured(&scratch, flags);
        Self { gateway, upstream, scratch }
    }

    /// Writes another configuration file, and requests a reload.
    pub(crate) fn reconfigure(&self, terms: &str) {
        self.scratch.configure(&complete_config(&self.scratch, self.upstream.address, terms));
        self.gateway.hang_up();
    }

    /// Kills the gateway, and starts it again on the same store.
    pub(crate) fn kill_and_restart(&mut self, flags: &[&str]) {
        self.gateway.kill();
        self.gateway = Gateway::start(&self.scratch, self.upstream.address, flags);
    }

    pub(crate) async fn send(&self, ask: TestRequest) -> Reply {
        within(ask.send(self.gateway.address)).await.expect("an answer")
    }

    /// A JSON charge with the usual key.
    pub(crate) async fn charge(&self, amount: u32) -> Reply {
        self.send(charge(amount)).await
    }

    /// Charges until the response is neither "still in progress" nor "the store is unavailable", as it may be for a moment.
    pub(crate) async fn charge_settled(&self, amount: u32) -> Reply {
        until(async || {
            let reply = self.charge(amount).await;
            let transient = ["IDEMPOTENCY_REQUEST_IN_PROGRESS", "IDEMPOTENCY_STORE_UNAVAILABLE"];
            (!reply.code().is_some_and(|code| transient.contains(&&*code))).then_some(reply)
        })
        .await
    }

    /// How many requests the upstream got.
    pub(crate) fn calls(&self) -> usize {
        self.upstream.seen().len()
    }

    /// Checks everything that a problem must and must not contain, and follows its links.
    pub(crate) async fn is_problem(&self, reply: &Reply, status: u16, code: &str, retryable: bool) {
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{reply:?}");
        assert_eq!(reply.header("cache-control"), Some("no-store"), "{reply:?}");
        let problem = reply.json();
        let text = |name: &str| problem[name].as_str().unwrap_or_else(|| panic!("{name} in {problem}"));
        assert_eq!(
            (reply.status, text("code"), problem["retryable"].as_bool()),
            (status, code, Some(retryable))
        );
        assert_eq!(problem["status"], status);
        assert!(!text("title").is_empty() && !text("detail").is_empty(), "{problem}");
        assert!(!format!("{reply:?}").contains(KEY), "the key is in {reply:?}");
        assert_eq!(problem["operationId"].as_str(), reply.header("operation-id"), "{reply:?}");
        for never in
            ["idempotency-expires", "idempotency-attempt", "idempotency-fence", "idempotency-outcome"]
        {
            let is_kept = never == "idempotency-expires" && code == "IDEMPOTENCY_RESPONSE_NOT_RETAINED";
            assert!(is_kept || reply.header(never).is_none(), "{never} in {reply:?}");
        }
        // Its type is the URL of its explanation.
        let (page, fragment) = text("type").split_once('#').expect("a fragment");
        let page = self.send(TestRequest::get(page).with("accept", "text/html")).await;
        assert_eq!((page.status, fragment), (200, code));
        assert!(page.text().contains(&format!("id=\"{code}\"")), "{}", page.text());
    }

    /// The operation that `reply` links to.
    pub(crate) async fn linked(&self, reply: &Reply) -> serde_json::Value {
        let link = reply.header("link").unwrap_or_else(|| panic!("a link in {reply:?}"));
        let path =
            link.strip_prefix('<').and_then(|link| link.strip_suffix(">; rel=\"status\"")).expect(link);
        assert_eq!(path, format!("/operations/{}", reply.header("operation-id").expect("an id")));
        self.send(TestRequest::get(path)).await.json()
    }

    /// What was logged so far.
    pub(crate) fn log(&self) -> String {
        self.scratch.logged()
    }
}

/// Settings of the store that `terms` does not have: the disk of a busy machine may stand still for seconds, and requests
/// must not be refused for that.
fn patience(terms: &str) -> String {
    let of_store = terms.split("\n[").next().unwrap_or_default();
    let lines =
        [("request_timeout", "request_timeout = \"5s\"\n"), ("finish_wait", "finish_wait = \"20s\"\n")];
    lines.into_iter().filter(|(key, _)| !of_store.contains(key)).map(|(_, line)| line).collect()
}

/// A configuration file: `terms`, plus upstream and store.
pub(crate) fn complete_config(scratch: &Scratch, upstream: SocketAddr, terms: &str) -> String {
    let store = scratch.store().url();
    let patience = patience(terms);
    format!("[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n{patience}{terms}")
}

pub(crate) fn charge(amount: u32) -> TestRequest {
    TestRequest::post("/charges").key(KEY).json(&format!("{{\"amount\":{amount}}}"))
}
