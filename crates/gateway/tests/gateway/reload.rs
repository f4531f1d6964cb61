//! A new configuration for a running gateway.

use crate::world::{Scratch, Starting, World, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, charged};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::net::TcpListener;

const STRICT: &str = "[[operation]]\npath = \"/strict\"\nkey = \"required\"\n";

async fn is_strict(world: &World) -> bool {
    world.send(TestRequest::post("/strict")).await.code().as_deref() == Some("MISSING_IDEMPOTENCY_KEY")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_under_load_fails_no_request() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| {
        let answer = charged(seen);
        if seen.line.contains("/slow") { Act::After(held.clone(), Box::new(answer)) } else { answer }
    };
    let world = Arc::new(World::configured("", script).await);
    assert!(!is_strict(&world).await);

    let is_over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (world, is_over) = (Arc::clone(&world), Arc::clone(&is_over));
            tokio::spawn(async move {
                let mut count = 0_u32;
                while !is_over.load(Ordering::Relaxed) {
                    let ask = TestRequest::post("/charges").key(&format!("client-{client}-order-{count:08}"));
                    let first = world.send(ask.clone()).await;
                    let again = world.send(ask).await;
                    assert_eq!(
                        (first.status, again.status, again.is_replay()),
                        (201, 201, true),
                        "{again:?}"
                    );
                    count += 1;
                }
                count
            })
        })
        .collect();
    let slow = {
        let world = Arc::clone(&world);
        tokio::spawn(async move { world.send(TestRequest::post("/slow").key("a-slow-order-00000001")).await })
    };
    until(async || world.upstream.seen().iter().any(|seen| seen.line.contains("/slow")).then_some(())).await;

    for _ in 0..5 {
        world.reconfigure(STRICT);
        until(async || is_strict(&world).await.then_some(())).await;
        world.reconfigure("");
        until(async || (!is_strict(&world).await).then_some(())).await;
    }
    gate.open();
    assert_eq!(
        within(slow).await.expect("no panic").status,
        201,
        "a running request ends under its old configuration"
    );
    is_over.store(true, Ordering::Relaxed);
    for client in clients {
        assert!(within(client).await.expect("no request failed") > 0);
    }
}

#[tokio::test]
async fn a_bad_file_is_logged_and_changes_nothing() {
    let world = World::configured(STRICT, charged).await;
    world.reconfigure("[defaults]\ntll = \"1h\"\nclass = \"local\"\n");
    until(async || world.log().contains("the configuration has mistakes").then_some(())).await;
    let log = world.log();
    assert!(log.contains("unknown key `tll` in [defaults]") && log.contains("class local is for"), "{log}");
    assert!(is_strict(&world).await, "the old configuration stays in force");

    world.reconfigure("[quotas]\nnew_per_caller = \"1/1h\"\n");
    until(async || world.log().contains("[quotas] has changed").then_some(())).await;
    assert!(!is_strict(&world).await, "the other settings apply at once");
}

#[tokio::test]
async fn a_reload_during_start_up_is_done_afterwards() {
    // The start waits for an issuer's keys, so the test controls how far it gets.
    let keys = TcpListener::bind("127.0.0.1:0").await.expect("an address");
    let at = keys.local_addr().expect("an address");
    let scratch = Scratch::new();
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://127.0.0.1:1\"\n[store]\nurl = \"memory:\"\n[identity]\nsources = [\"jwt\"]\n\
         [[identity.issuer]]\nname = \"i\"\naudience = [\"a\"]\njwks_url = \"http://{at}/keys\"\n"
    ));
    let config = scratch.config();
    let starting = Starting::begin(&scratch, &["--config", config.to_str().expect("text")]);
    let (key_request, _) = within(keys.accept()).await.expect("it asks for keys");
    starting.hang_up();
    drop((key_request, keys));
    let gateway = tokio::task::spawn_blocking(|| starting.listens());
    let _gateway = within(gateway).await.expect("it starts");
    until(async || scratch.logged().contains("the configuration was read again, and applies").then_some(()))
        .await;
}
