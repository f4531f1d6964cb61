//! Operations' own quotas and sealing, through the program itself.

use crate::world::{Gateway, Scratch, World, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, charged, response};
use std::net::SocketAddr;

/// Exports are limited to two keys per caller, and to five in total.
const SHOP: &str = "[quotas]\nnew_per_caller = \"5/1h\"\n\
    [[operation]]\nname = \"export\"\npath = \"/exports\"\n\
    [operation.quotas]\nnew_per_caller = \"2/1h\"\n";

fn order(path: &str, number: u32) -> TestRequest {
    TestRequest::post(path).key(&format!("order-number-{number:08}")).with("authorization", "Bearer flooder")
}

fn is_held(reply: &Reply) -> bool {
    let is_held = reply.code().as_deref() == Some("IDEMPOTENCY_KEY_QUOTA_EXCEEDED");
    assert!(!is_held || (reply.status == 429 && reply.header("retry-after").is_some()), "{reply:?}");
    is_held
}

#[tokio::test]
async fn a_flood_on_one_operation_limits_only_its_new_keys() {
    let mut world = World::configured(SHOP, charged).await;
    let admin = world.gateway.admin();
    for number in 0..2 {
        assert_eq!(world.send(order("/exports", number)).await.status, 201);
    }
    for number in 2..30 {
        assert!(is_held(&world.send(order("/exports", number)).await), "{number}");
        assert!(world.send(order("/exports", number % 2)).await.is_replay(), "a retry during the flood");
    }
    for number in 0..3 {
        assert_eq!(
            world.send(order("/charges", number)).await.status,
            201,
            "refused requests do not use the total quota"
        );
    }
    assert!(is_held(&world.send(order("/charges", 3)).await), "the total quota still applies");
    assert_eq!(world.calls(), 5);
    let metrics = TestRequest::get("/metrics").send(admin).await.expect("an answer");
    let refused = "idempotency_quota_refusals_total{operation=\"export\",caller=";
    assert!(metrics.text().contains(refused), "{}", metrics.text());
}

#[tokio::test]
async fn a_reload_resets_only_changed_limits() {
    let world = World::configured(SHOP, charged).await;
    for number in 0..2 {
        assert_eq!(world.send(order("/exports", number)).await.status, 201);
    }
    // A section that shows that the file was read.
    let strict = "[[operation]]\npath = \"/strict\"\nkey = \"required\"\n";
    for is_strict in [true, false, true] {
        world.reconfigure(&format!("{SHOP}{}", if is_strict { strict } else { "" }));
        until(async || {
            let code = world.send(TestRequest::post("/strict")).await.code();
            ((code.as_deref() == Some("MISSING_IDEMPOTENCY_KEY")) == is_strict).then_some(())
        })
        .await;
        assert!(is_held(&world.send(order("/exports", 2)).await), "a used quota stays used");
        assert!(world.send(order("/exports", 0)).await.is_replay());
    }
    world.reconfigure(&SHOP.replace("2/1h", "3/1h"));
    until(async || (!is_held(&world.send(order("/exports", 3)).await)).then_some(())).await;
    assert!(!world.log().contains("[quotas] has changed"), "an operation's own quota applies at once");
}

/// A response that can be found in the store, different for each path.
fn card(seen: &Seen) -> Act {
    let digits = if seen.line.contains("/cards") { "4000-0012-3456" } else { "5555-0099-7777" };
    Act::Say(response("201 Created", &[], digits))
}

/// Which of the two is readable in the store's files.
fn readable(scratch: &Scratch) -> (bool, bool) {
    let files = [scratch.file(), scratch.file().with_extension("db-wal")];
    let held = files.map(|file| std::fs::read(file).unwrap_or_default()).concat();
    let holds = |digits: &[u8]| held.windows(digits.len()).any(|window| window == digits);
    (holds(b"4000-0012-3456"), holds(b"5555-0099-7777"))
}

const CARDS: &str = "[[operation]]\npath = \"/cards\"\nkept = \"sealed\"\n\
    [[operation]]\npath = \"/logs\"\nkept = \"whole\"\n";

/// `[sealing]` with these keys, the first of which seals.
fn sealing(scratch: &Scratch, seals: &str, keys: &[&str]) -> String {
    let keys = keys.iter().map(|key| {
        let file = scratch.write(key, if *key == "first" { "5a" } else { "c3" }.repeat(32));
        format!("[[sealing.key]]\nname = \"{key}\"\nsecret = 'file:{}'\n", file.display())
    });
    format!("[sealing]\nseals = \"{seals}\"\n{}", keys.collect::<Vec<_>>().concat())
}

/// A worker claims a job and reports the digits of a card. Returns the job's operation ID.
async fn report_card(admin: SocketAddr) -> String {
    let claim =
        TestRequest::post("/v1/claims").json("{\"operation\":\"job\",\"key\":\"job-1\",\"payload\":1}");
    let claimed = claim.send(admin).await.expect("an answer").json();
    let (id, token) = (claimed["operationId"].as_str(), claimed["token"].as_str());
    let (id, token) = (id.expect("an id").to_owned(), token.expect("a token"));
    let outcome = format!(
        "{{\"token\":\"{token}\",\"outcome\":\"succeeded\",\"response\":{{\"status\":200,\"body\":\"4000-0012-3456\"}}}}"
    );
    let reported = TestRequest::post(&format!("/v1/claims/{id}/outcome")).json(&outcome).send(admin).await;
    assert_eq!(reported.expect("an answer").status, 200);
    id
}

async fn ask(gateway: &Gateway) -> [Reply; 2] {
    let mut replies = Vec::new();
    for path in ["/cards", "/logs"] {
        replies.push(order(path, 1).send(gateway.address).await.expect("an answer"));
    }
    replies.try_into().expect("two")
}

#[tokio::test]
async fn chosen_responses_are_sealed_and_replayed_after_a_key_change() {
    let scratch = Scratch::new();
    let terms = format!("{CARDS}{}", sealing(&scratch, "chosen", &["first"]));
    let mut world = World::configured_in(scratch, &terms, card).await;
    let first = ask(&world.gateway).await;
    assert!(first.iter().all(|reply| reply.status == 201 && reply.is_acknowledged()), "{first:?}");
    assert_eq!(readable(&world.scratch), (false, true));
    world.gateway.kill();
    assert_eq!(readable(&world.scratch), (false, true));
    // Stored responses stay readable after the sealing key or the choice of sealed operations changes.
    for (operations, seals, keys) in [
        (CARDS, "chosen", &["second", "first"][..]),
        (CARDS, "all", &["second", "first"]),
        ("", "chosen", &["first"]),
    ] {
        let terms = format!("{operations}{}", sealing(&world.scratch, seals, keys));
        world.scratch.configure(&terms);
        let config = world.scratch.config();
        let flags = ["--config", config.to_str().expect("text")];
        let mut gateway = Gateway::start(&world.scratch, world.upstream.address, &flags);
        for (again, first) in ask(&gateway).await.iter().zip(&first) {
            assert!(again.is_replay() && again.body == first.body, "{seals}: {again:?}");
        }
        gateway.kill();
    }
    assert_eq!((world.calls(), readable(&world.scratch)), (2, (false, true)));
}

#[tokio::test]
async fn with_a_key_everything_is_sealed_by_default() {
    let scratch = Scratch::new();
    let terms = format!("{CARDS}{}", sealing(&scratch, "all", &["first"]));
    let world = World::configured_in(scratch, &terms, card).await;
    ask(&world.gateway).await;
    assert_eq!(readable(&world.scratch), (false, false));
}

#[tokio::test]
async fn what_a_worker_reports_is_sealed_although_nobody_chose_it() {
    let scratch = Scratch::new();
    let terms = sealing(&scratch, "chosen", &["first"]);
    let mut world = World::configured_in(scratch, &terms, card).await;
    let admin = world.gateway.admin();
    report_card(admin).await;
    assert_eq!(order("/logs", 1).send(world.gateway.address).await.expect("an answer").status, 201);
    assert_eq!(
        readable(&world.scratch),
        (false, true),
        "the worker's outcome is sealed, the request's is not"
    );
}

#[tokio::test]
async fn a_reload_that_cannot_seal_changes_nothing() {
    let world = World::configured("", card).await;
    let strict = "[defaults]\nkey = \"required\"\n";
    world.reconfigure(&format!("{strict}{CARDS}{}", sealing(&world.scratch, "chosen", &["first"])));
    until(async || world.log().contains("cannot be used; the old one stays in force").then_some(())).await;
    let log = world.log();
    assert!(log.contains("`/cards` must be sealed") && log.contains("read only at start"), "{log}");
    assert_eq!(world.send(TestRequest::post("/x")).await.status, 201, "the old configuration stays in force");
    // The choice takes effect at once if the process has a key.
    let scratch = Scratch::new();
    let sealing = sealing(&scratch, "chosen", &["first"]);
    let world = World::configured_in(scratch, &sealing, card).await;
    world.reconfigure(&format!("{strict}{CARDS}{sealing}"));
    until(async || (world.send(TestRequest::post("/x")).await.status == 400).then_some(())).await;
    ask(&world.gateway).await;
    assert_eq!(readable(&world.scratch), (false, true));
}

#[tokio::test]
async fn a_gateway_without_keys_warns_about_sealed_responses() {
    let warning = "the store contains sealed responses, but this gateway has no key";
    let scratch = Scratch::new();
    let terms = sealing(&scratch, "all", &["first"]);
    let world = World::configured_in(scratch, &terms, card).await;
    ask(&world.gateway).await;
    let start = |flags: &[&str]| drop(Gateway::start(&world.scratch, world.upstream.address, flags));
    let config = world.scratch.config();
    start(&["--config", config.to_str().expect("text")]);
    assert!(!world.log().contains(warning), "a gateway with the keys logs no warning");
    start(&[]);
    assert!(world.log().contains(warning), "{}", world.log());
    // What a worker reports there is stored unsealed; the doctor reports that when it has the keys.
    let mut keyless = Gateway::start(&world.scratch, world.upstream.address, &[]);
    let admin = keyless.admin();
    let id = report_card(admin).await;
    let doctor = std::process::Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["doctor", "--json", "--config"])
        .arg(&config)
        .output()
        .expect("semel runs");
    let found = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(found.contains("answers-unsealed") && found.contains(&id), "{found}");
}
