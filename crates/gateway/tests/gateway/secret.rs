//! A configured hashing secret.

use crate::world::{Gateway, KEY, Scratch, Starting, does_not_start, until};
use semel::secrets::RefreshSettings;
use semel_gateway::config::{self, Overrides};
use semel_gateway::serve;
use semel_telemetry::logging;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use std::process::{Command, ExitCode};
use std::time::Duration;

/// Expired records are removed at once, not only two minutes after the start.
const CLOCK: &str = "[clock]\nsettle = \"0s\"\n";

struct World {
    scratch: Scratch,
    upstream: Upstream,
}

impl World {
    async fn new() -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
        for (name, digits) in [("first", "5a"), ("second", "c3")] {
            scratch.write(name, format!("{}\n", digits.repeat(32)));
        }
        Self { scratch, upstream }
    }

    /// The `[store]` settings for these secrets.
    fn secrets(&self, secret: Option<&str>, next: Option<&str>) -> String {
        let at = |key: &str, name: Option<&str>| match name {
            None => String::new(),
            Some("withdraw") => format!("{key} = \"withdraw\"\n"),
            Some(name) => {
                format!("{key} = 'file:{}'\n", self.scratch.config().with_file_name(name).display())
            }
        };
        let (secret, next) = (at("hashing_secret", secret), at("hashing_secret_next", next));
        format!("[store]\n{secret}{next}")
    }

    /// Writes a configuration with these secrets, and returns the flags to start with it.
    fn configured(&self, secret: Option<&str>, next: Option<&str>) -> [String; 6] {
        self.scratch.configure(&format!("{CLOCK}{}", self.secrets(secret, next)));
        let store = format!("sqlite:{}", self.scratch.file().display());
        let upstream = format!("http://{}", self.upstream.address);
        let config = self.scratch.config().display().to_string();
        ["--config".to_owned(), config, "--store".to_owned(), store, "--upstream".to_owned(), upstream]
    }

    /// Starts it, charges, waits until it has logged `says`, and stops it.
    async fn charge(&self, secret: Option<&str>, next: Option<&str>, says: Option<&str>) -> String {
        // Every start appends to the same log.
        let times = |line: &str| self.scratch.logged().matches(line).count();
        let before = says.map_or(0, times);
        let flags = self.configured(secret, next);
        let mut gateway = Gateway::run(&self.scratch, &flags.each_ref().map(String::as_str));
        let reply = TestRequest::post("/charges").key(KEY).send(gateway.address).await.expect("an answer");
        if let Some(line) = says {
            until(async || (times(line) > before).then_some(())).await;
        }
        gateway.terminate();
        assert!(gateway.ended().await.success());
        reply.text().to_owned()
    }

    /// Starts a node of [`serve_with_short_terms`] with both secrets, with outcomes that expire soon.
    fn start_with_both_secrets(&self) -> Gateway {
        let secrets = self.secrets(Some("first"), Some("second"));
        let (store, upstream) = (self.scratch.file(), self.upstream.address);
        self.scratch.configure(&format!(
            "{CLOCK}skew = \"1s\"\n{secrets}url = 'sqlite:{}'\ntimeout = \"1s\"\n[listen]\naddress = \"127.0.0.1:0\"\n\
             [admin]\naddress = \"off\"\n[upstream]\nurl = \"http://{upstream}\"\n\
             [defaults]\nlease = \"3s\"\nttl = \"10s\"\ntombstone = \"1s\"\n",
            store.display()
        ));
        let mut program = Command::new(std::env::current_exe().expect("this program"));
        program
            .args(["--exact", "secret::serve_with_short_terms", "--ignored", "--nocapture"])
            .env(CONFIG, self.scratch.config());
        Starting::spawn(program, &self.scratch).listens()
    }

    /// What `semel doctor` reports about the secret.
    fn secret_status(&self) -> serde_json::Value {
        let store = format!("sqlite:{}", self.scratch.file().display());
        let secret_status =
            Command::new(env!("CARGO_BIN_EXE_semel")).args(["doctor", "--json", "--store", &store]).output();
        let secret_status = secret_status.expect("semel runs").stdout;
        serde_json::from_slice::<serde_json::Value>(&secret_status).expect("JSON")["secret"].clone()
    }

    /// Waits until `semel doctor` reports this.
    async fn wait_for_status(&self, is_so: impl Fn(&serde_json::Value) -> bool) {
        let looking = async {
            while !is_so(&self.secret_status()) {
                // Each check is a process; it should not slow down the gateways that it checks.
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_mins(1), looking).await;
        waited.unwrap_or_else(|_| panic!("it never came: {}", self.secret_status()));
    }

    fn refused(&self, secret: Option<&str>, next: Option<&str>) -> String {
        does_not_start(&self.configured(secret, next).each_ref().map(String::as_str))
    }
}

#[tokio::test]
async fn a_wrong_or_missing_hashing_secret_is_refused() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let other = world.refused(Some("second"), None);
    assert!(other.contains("is not this store's") && other.contains("rotate to the other one"), "{other}");
    let none = world.refused(None, None);
    assert!(none.contains("which is not configured on this node; configure it"), "{none}");
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1", "replayed");
    assert_eq!(world.upstream.seen_count(), 1);
    let held = std::fs::read(world.scratch.file()).expect("the store's file");
    assert!(
        !held.windows(8).any(|window| window == [0x5a; 8] || window == b"5a5a5a5a"),
        "the store must not contain the secret either"
    );
}

#[tokio::test]
async fn an_announced_secret_is_needed_by_every_node() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(announced)).await, "charge 1", "replayed");
    let behind = world.refused(Some("first"), None);
    assert!(behind.contains("which is not configured on this node; configure it"), "{behind}");
    let too_early = world.refused(Some("second"), None);
    assert!(too_early.contains("configure it"), "{too_early}");
    // Whether or not every node has confirmed it by now.
    let goes_on = "the hashing secret is being replaced: ";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(goes_on)).await, "charge 1", "replayed");
    assert_eq!(world.upstream.seen_count(), 1);
}

#[tokio::test]
async fn an_announced_secret_can_be_withdrawn() {
    let world = World::new().await;
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(Some("first"), Some("second"), Some(announced)).await, "charge 1", "replayed");
    let behind = world.refused(Some("first"), None);
    assert!(behind.contains("hashing_secret_next = \"withdraw\" under [store]"), "{behind}");
    let taken = "announced hashing secret was withdrawn";
    assert_eq!(world.charge(Some("first"), Some("withdraw"), Some(taken)).await, "charge 1", "replayed");
    let again = world.charge(Some("first"), Some("withdraw"), None).await;
    assert_eq!(again, "charge 1", "nothing is left to withdraw");
    assert_eq!(world.scratch.logged().matches(taken).count(), 1);
    assert_eq!(world.charge(Some("first"), None, None).await, "charge 1", "nothing is logged about it");
    assert_eq!(world.upstream.seen_count(), 1);
}

#[tokio::test]
async fn a_generated_secret_can_be_replaced_by_a_configured_one() {
    let world = World::new().await;
    assert_eq!(world.charge(None, None, None).await, "charge 1");
    let announced = "the hashing secret is being replaced: announced";
    assert_eq!(world.charge(None, Some("second"), Some(announced)).await, "charge 1", "replayed");
}

/// The response to a charge with `key`.
async fn charged_at(gateway: &Gateway, key: &str) -> (String, bool) {
    let reply = TestRequest::post("/charges").key(key).send(gateway.address).await.expect("an answer");
    assert_eq!(reply.status, 201, "{reply:?}");
    (reply.text().to_owned(), reply.is_replay())
}

async fn end(mut gateway: Gateway) {
    gateway.terminate();
    assert!(gateway.ended().await.success());
}

/// Passes the configuration file to [`serve_with_short_terms`].
const CONFIG: &str = "SEMEL_TEST_CONFIG";

/// How nodes refresh the secret, in seconds instead of minutes. Long enough that no view expires on a busy machine, and
/// that a node keeps its first view for as long as the test needs it.
fn short_terms() -> RefreshSettings {
    let seconds = Duration::from_secs;
    RefreshSettings { refresh_every: seconds(3), good_for: seconds(6), in_flight: seconds(2) }
}

/// Not a test: `semel serve` in its own process. The terms cannot be configured, so the program itself cannot be
/// started with others.
#[test]
#[ignore = "started as a process by the test of a whole replacement"]
fn serve_with_short_terms() {
    let file = std::env::var_os(CONFIG).expect("started by another test");
    let text = std::fs::read_to_string(file).expect("a configuration");
    let config = config::read(&text, &Overrides::default(), &config::environment).expect("no mistake");
    logging::begin(config.log, config.log_level, None);
    let mut plan = config.plan().expect("an upstream");
    plan.storage.secret_refresh = short_terms();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("threads");
    assert_eq!(runtime.block_on(serve::run(plan, None)).expect("it serves"), ExitCode::SUCCESS);
}

/// Two gateways on one file, one of which is killed. Until [`short_terms`] have passed since its last sign of life, the
/// killed node might still write. By then, the records under the old secret have expired.
#[tokio::test]
async fn a_secret_is_replaced_although_a_node_is_killed() {
    let world = World::new().await;
    let replayed = |text: &str| (text.to_owned(), true);
    let phase = |secret_status: &serde_json::Value| secret_status["phase"].as_str().map(str::to_owned);
    let is = |expected: &str| assert_eq!(phase(&world.secret_status()).as_deref(), Some(expected));
    let logged =
        async |words: &str| until(async || world.scratch.logged().contains(words).then_some(())).await;

    // The first node with the next secret announces it; each node that starts later knows it from its start.
    let one = world.start_with_both_secrets();
    assert_eq!(charged_at(&one, "claimed-under-the-old").await, ("charge 1".to_owned(), false));
    logged("the hashing secret is being replaced: announced").await;
    is("announced");
    end(one).await;
    let two = world.start_with_both_secrets();
    logged("the hashing secret is being replaced: moving").await;
    is("moving");
    let mut one = world.start_with_both_secrets();
    for gateway in [&one, &two] {
        assert_eq!(charged_at(gateway, "claimed-under-the-old").await, replayed("charge 1"));
    }
    assert_eq!(charged_at(&one, "claimed-by-the-killed").await, ("charge 2".to_owned(), false));
    one.kill();
    for key in ["claimed-under-the-old", "claimed-by-the-killed"] {
        assert!(charged_at(&two, key).await.1, "{key} is replayed by the remaining gateway");
    }

    // One node still uses its view from before the move, the other the next secret.
    let one = world.start_with_both_secrets();
    for number in 0..8 {
        let key = format!("claimed-by-two-at-once-{number}");
        let ((at_one, _), (at_two, _)) = tokio::join!(charged_at(&one, &key), charged_at(&two, &key));
        assert_eq!(at_one, at_two, "one effect and one response");
    }
    assert_eq!(world.upstream.seen_count(), 10);
    assert!(world.secret_status()["behind"].as_array().is_some_and(|behind| !behind.is_empty()));
    world
        .wait_for_status(|secret_status| {
            secret_status["behind"] == serde_json::json!([]) && secret_status["recordsLeft"] == 0
        })
        .await;
    is("moving");
    assert_eq!(charged_at(&two, "claimed-late-in-it").await, ("charge 11".to_owned(), false));

    // Both are restarted, one by one, which triggers the pending checks.
    end(one).await;
    let one = world.start_with_both_secrets();
    logged("the hashing secret is being replaced: settled").await;
    is("settled");
    end(two).await;
    let two = world.start_with_both_secrets();
    assert_eq!(charged_at(&two, "claimed-late-in-it").await, replayed("charge 11"));
    end(one).await;
    let one = world.start_with_both_secrets();
    logged("the hashing secret was replaced").await;
    let secret_status = world.secret_status();
    assert_eq!((phase(&secret_status).as_deref(), &secret_status["generation"]), (Some("steady"), &1.into()));
    assert_eq!((&secret_status["markers"], &secret_status["recordsLeft"]), (&0.into(), &0.into()));
    for gateway in [&one, &two] {
        assert_eq!(charged_at(gateway, "claimed-late-in-it").await, replayed("charge 11"));
    }
    end(one).await;
    end(two).await;

    let flags = world.configured(Some("second"), None);
    let alone = Gateway::run(&world.scratch, &flags.each_ref().map(String::as_str));
    assert_eq!(charged_at(&alone, "claimed-late-in-it").await, replayed("charge 11"));
    end(alone).await;
    assert!(world.refused(Some("first"), None).contains("is not this store's"));
    assert_eq!(world.upstream.seen_count(), 11);
}
