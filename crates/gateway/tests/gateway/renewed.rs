//! Certificates, authorities and secrets whose files change while a gateway runs.

use crate::secure::Authority;
use crate::world::{Gateway, KEY, Scratch, World, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Gate, Seen, Upstream, charged};
use std::sync::Arc;

const TAKEN: &str = "the configuration was read again, and applies";

/// Requests a reload, and waits until its result is logged.
async fn reloaded(gateway: &Gateway, scratch: &Scratch, how: &str) {
    let times = || scratch.logged().matches(how).count();
    let before = times();
    gateway.hang_up();
    until(async || (times() > before).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_rereads_certificates_for_new_connections() {
    let gate = Gate::closed();
    let held = gate.clone();
    let script = move |seen: &Seen| {
        let answer = charged(seen);
        if seen.line.contains("/slow") { Act::After(held.clone(), Box::new(answer)) } else { answer }
    };
    let (scratch, upstream) = (Scratch::new(), Upstream::start(script).await);
    let ours = Arc::new(Authority::new("ours"));
    let (dropped, kept) = (Authority::new("dropped"), Authority::new("kept"));
    let server = ours.server();
    let both = format!("{}{}", dropped.pem, kept.pem);
    let [certificate, key, authorities] =
        [("cert.pem", &server.pem), ("key.pem", &server.key_pem), ("clients.pem", &both)]
            .map(|(name, text)| scratch.write(name, text).display().to_string());
    scratch.configure(&format!(
        "[listen]\ntls_cert = '{certificate}'\ntls_key = '{key}'\nclient_ca = '{authorities}'\n\
         [identity]\nsources = [\"mtls\"]\n"
    ));
    let config = scratch.config();
    let gateway = Gateway::start(&scratch, upstream.address, &["--config", config.to_str().expect("text")]);
    let to = gateway.address;
    let charge = || TestRequest::post("/charges").key(KEY);
    let (alice, bob) = (Arc::new(dropped.client("alice")), kept.client("bob"));
    assert_eq!(ours.send(charge(), to, Some(&alice)).await.expect("an answer").status, 201);
    let begun = tokio::spawn({
        let (ours, alice) = (Arc::clone(&ours), Arc::clone(&alice));
        async move { ours.send(TestRequest::post("/slow").key("a-slow-order-00000001"), to, Some(&alice)).await }
    });
    upstream.has_seen(2).await;

    // An authority is no longer trusted.
    scratch.write("clients.pem", &kept.pem);
    reloaded(&gateway, &scratch, TAKEN).await;
    assert!(ours.send(charge(), to, Some(&alice)).await.is_err(), "a certificate of a removed authority");
    assert_eq!(ours.send(charge(), to, Some(&bob)).await.expect("an answer").status, 201);
    gate.open();
    let ended = within(begun).await.expect("no panic").expect("an answer");
    assert_eq!(ended.status, 201, "open connections continue");

    // The gateway has another certificate.
    let others = Authority::new("others");
    let renewed = others.server();
    scratch.write("cert.pem", &renewed.pem);
    // Its key is still missing: nothing is taken over.
    reloaded(&gateway, &scratch, "the old one stays in force").await;
    assert!(ours.send(charge(), to, Some(&bob)).await.expect("an answer").is_replay(), "as before");
    scratch.write("key.pem", &renewed.key_pem);
    reloaded(&gateway, &scratch, TAKEN).await;
    assert!(others.send(charge(), to, Some(&bob)).await.expect("an answer").is_replay());
    assert!(ours.send(charge(), to, Some(&bob)).await.is_err(), "the old certificate is no longer used");

    // Nothing is left for the next start, except for switching TLS on or off.
    assert!(!scratch.logged().contains("at the next start only"), "{}", scratch.logged());
    scratch.configure("");
    reloaded(&gateway, &scratch, "[listen] has changed").await;
    assert!(others.send(TestRequest::get("/"), to, Some(&bob)).await.is_ok(), "TLS as before");
    assert!(
        others.send(TestRequest::get("/"), to, None).await.is_err(),
        "a client certificate is still required"
    );
}

#[tokio::test]
async fn a_reload_rereads_the_admin_addresss_certificate() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let (server, renewed) = (old.server(), new.server());
    let [certificate, key] = [("cert.pem", &server.pem), ("key.pem", &server.key_pem)]
        .map(|(name, text)| scratch.write(name, text).display().to_string());
    scratch.configure(&format!("[admin]\ntls_cert = '{certificate}'\ntls_key = '{key}'\n"));
    let config = scratch.config();
    let mut gateway =
        Gateway::start(&scratch, upstream.address, &["--config", config.to_str().expect("text")]);
    let to = gateway.admin();
    assert_eq!(old.send(TestRequest::get("/healthz"), to, None).await.expect("an answer").status, 200);
    scratch.write("cert.pem", &renewed.pem);
    scratch.write("key.pem", &renewed.key_pem);
    reloaded(&gateway, &scratch, TAKEN).await;
    assert_eq!(new.send(TestRequest::get("/healthz"), to, None).await.expect("an answer").status, 200);
    assert!(old.send(TestRequest::get("/healthz"), to, None).await.is_err());
    assert!(!scratch.logged().contains("at the next start only"), "{}", scratch.logged());
}

#[tokio::test]
async fn a_changed_sealing_key_takes_effect_at_the_next_start() {
    let scratch = Scratch::new();
    let file = scratch.write("sealing", "5a".repeat(32));
    let terms = format!("[[sealing.key]]\nname = \"first\"\nsecret = 'file:{}'\n", file.display());
    let world = World::configured_in(scratch, &terms, charged).await;
    reloaded(&world.gateway, &world.scratch, TAKEN).await;
    assert!(!world.log().contains("at the next start only"), "{}", world.log());
    world.scratch.write("sealing", "c3".repeat(32));
    reloaded(&world.gateway, &world.scratch, "[sealing] has changed").await;
}
