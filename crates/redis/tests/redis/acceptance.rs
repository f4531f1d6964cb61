//! An operator accepts a loss: the store is used again, by everybody and in one way only, even if the command was killed.

use crate::loss::{KEYS, OWN, Seen, charge, delete_bucket, folder, store_with_records};
use semel::{Engine, Settings};
use semel_core::store::{AcceptedLoss, Backend as _, Error, Kind, SECRET_LOST_SETTING, Store as _};
use semel_redis::{Backend, Store};
use semel_test_support::RedisServer;
use semel_testkit::proxy::{Fault, FaultProxy, Protocol, Request};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const SECRET: [u8; 32] = [7; 32];
/// The store's own keys that can be lost together, with the hashing secret.
const LOST: [&[&str]; 3] = [&[OWN[1]], &[OWN[1], OWN[2]], &OWN];

/// A node that starts, with a configured secret or the store's own.
async fn start(url: &str, secret: Option<[u8; 32]>) -> Result<Engine, String> {
    let store = Store::open(url).await.map_err(|error| error.to_string())?;
    let settings = Settings { cache_bytes_max: 0, ..Settings::default() };
    let mut builder = Engine::builder(Arc::new(store)).settings(settings).observer(Seen::default());
    if let Some(secret) = secret {
        builder = builder.secret(secret);
    }
    builder.build().await.map_err(|error| error.to_string())
}

async fn accept(server: &RedisServer, why: &str) -> Result<AcceptedLoss, Error> {
    Backend.accept_loss(&format!("//{}", server.address()), why).await
}

fn delete(server: &RedisServer, keys: &[&str]) {
    server.ask(&format!("DEL {}", keys.join(" ")));
}

async fn all_goes_on_after_the_secret_was_lost(
    server: &RedisServer,
    lost: &[&str],
    secret: Option<[u8; 32]>,
) {
    server.ask("FLUSHALL");
    let charges = Arc::default();
    let running = start(&server.url(), secret).await.expect("it starts");
    for number in 0..KEYS {
        assert_eq!(charge(&running, number, &charges).await, Ok(false));
    }
    delete(server, lost);
    let refused = start(&server.url(), secret).await.map(drop).expect_err("the secret is lost");
    assert!(refused.contains("settings") && refused.contains("--accept-loss"), "{lost:?}: {refused}");
    let accepted = accept(server, "tested").await.expect("accepted");
    assert_eq!((accepted.parts, accepted.settings, accepted.secret), (0, true, true), "{lost:?}");
    let refused = charge(&running, KEYS, &charges).await.expect_err("its secret may be another one");
    assert!(refused.contains("restart this node"), "{refused}");
    let url = server.url();
    let (first, second) = tokio::join!(start(&url, secret), start(&url, secret));
    let nodes = [first.expect("it starts"), second.expect("it starts")];
    let is_found = secret.is_some();
    for number in 0..=KEYS {
        let is_replay = charge(&nodes[0], number, &charges).await;
        assert_eq!(is_replay, Ok(is_found && number < KEYS), "{lost:?}");
        assert_eq!(charge(&nodes[1], number, &charges).await, Ok(true), "both have the same secret");
    }
    assert_eq!(server.ask(&format!("HEXISTS {{semel}}settings {SECRET_LOST_SETTING}")).number(), 0);
    charge(&running, KEYS + 1, &charges).await.expect_err("it has not been restarted");
    let again = accept(server, "again").await.expect("an answer");
    assert_eq!((again.parts, again.settings), (0, false), "there is nothing left to accept");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_lost_its_secret_is_used_again_after_acceptance() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("secret-lost");
    let server = RedisServer::start(folder.join("server"), &[]);
    for lost in LOST {
        all_goes_on_after_the_secret_was_lost(&server, lost, None).await;
        all_goes_on_after_the_secret_was_lost(&server, lost, Some(SECRET)).await;
    }
}

/// Accepts a loss, and is killed at a script: before the server has it, or when it has run.
async fn accept_and_die(server: &RedisServer, at: u32, is_answer_lost: bool) -> Result<AcceptedLoss, Error> {
    let (scripts, address) = (AtomicU32::new(0), server.address().parse().expect("an address"));
    let plan = move |request: &Request<'_>| {
        let is_script = request.contains(b"EVAL");
        let before = scripts.fetch_add(u32::from(is_script), Ordering::SeqCst);
        match before.cmp(&at) {
            std::cmp::Ordering::Equal if is_script && is_answer_lost => Fault::CutAfter,
            std::cmp::Ordering::Equal if is_script => Fault::CutBefore,
            std::cmp::Ordering::Greater => Fault::CutBefore,
            _ => Fault::Pass,
        }
    };
    let proxy = FaultProxy::start(address, Protocol::Redis, plan).await.expect("a port");
    Backend.accept_loss(&format!("//{}?timeout=2", proxy.address()), &format!("try {at}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_that_is_killed_can_be_repeated() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("killed-acceptance");
    let server = RedisServer::start(folder.join("server"), &[]);
    let (mut killed, url) = (0, format!("{}?buckets=3", server.url()));
    for (lost, is_answer_lost) in
        [LOST[0], LOST[2]].into_iter().flat_map(|lost| [(lost, false), (lost, true)])
    {
        for at in 0.. {
            server.ask("FLUSHALL");
            let charges = Arc::default();
            let first = start(&url, None).await.expect("it starts");
            for number in 0..8 {
                assert_eq!(charge(&first, number, &charges).await, Ok(false));
            }
            drop(first);
            delete_bucket(&server, 1);
            delete(&server, lost);
            let root = server.ask("GET {semel:0}identity").text();
            let is_done = accept_and_die(&server, at, is_answer_lost).await.is_ok();
            killed += u32::from(!is_done);
            if let Err(refused) = start(&url, None).await {
                assert!(!is_done && refused.contains("--accept-loss"), "{lost:?} at {at}: {refused}");
                assert!(accept(&server, "repeated").await.expect("accepted").secret);
            }
            let next = start(&url, None).await.expect("it starts");
            assert_eq!(charge(&next, 9, &charges).await, Ok(false));
            assert!(server.ask("GET {semel:0}identity").text().starts_with(&format!("{root}.")), "not anew");
            assert!(!server.ask("HGET {semel}meta accepted").text().is_empty(), "who, and why");
            if is_done {
                break;
            }
        }
    }
    assert!(killed >= 12, "{killed}");
}

/// Without a lost secret, the running nodes go on. They use no part again whose acceptance is not noted.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_is_used_again_only_after_its_acceptance_was_noted() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("killed-note");
    let server = RedisServer::start(folder.join("server"), &[]);
    for (at, is_answer_lost) in (0..10).map(|round| (round / 2, round % 2 == 1)) {
        server.ask("FLUSHALL");
        let running = store_with_records(&server, "?buckets=2").await;
        delete_bucket(&server, 1);
        delete(&server, &[OWN[2]]);
        let _ = accept_and_die(&server, at, is_answer_lost).await;
        let notes = server.ask("HGET {semel}meta accepted");
        if running.check().await.is_ok() {
            assert!(notes.text().contains(&format!("try {at}")));
        } else {
            accept(&server, "repeated").await.expect("accepted");
        }
        running.check().await.expect("it goes on");
        let opened = Store::open(&server.url()).await.expect("it opens");
        opened.check().await.expect("nothing is missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_last_acceptances_are_kept() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("notes");
    let server = RedisServer::start(folder.join("server"), &[]);
    let store = store_with_records(&server, "?buckets=2").await;
    for number in 0..12 {
        server.ask("DEL {semel:1}identity");
        accept(&server, &format!("reason {number:02}")).await.expect("accepted");
    }
    let hazards = store.hazards().await.expect("looked at");
    let notice = hazards.iter().find(|hazard| hazard.code == "redis-loss-accepted").expect("a notice");
    let shown: Vec<_> =
        (0..12).filter(|number| notice.what.contains(&format!("reason {number:02}"))).collect();
    assert_eq!(shown, (4..12).collect::<Vec<_>>(), "{}", notice.what);
    assert!(notice.what.find("reason 11") < notice.what.find("reason 10"), "the last first: {}", notice.what);
}

/// Its `meta` has no identity, and the buckets have one.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_an_older_gateway_wrote_anew_does_not_hide_the_loss() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("older-gateway");
    let server = RedisServer::start(folder.join("server"), &[]);
    let address = format!("//{}", server.address());
    drop(start(&format!("{}?buckets=3", server.url()), None).await.expect("it starts"));
    delete(&server, &OWN);
    server.ask("HSET {semel}meta format 1 buckets 64 epoch 1");
    for _ in 0..3 {
        let refused = Store::open(&server.url()).await.expect_err("it would hide the loss");
        assert_eq!(refused.kind(), Kind::DataLost);
        let cause = refused.to_string();
        assert!(cause.contains("parts of the store are left") && cause.contains("--accept-loss"), "{cause}");
        let refused = Backend.inspect(&address).await.map(drop).expect_err("nor is it shown as whole");
        assert_eq!(refused.kind(), Kind::DataLost);
    }
    assert_eq!(server.ask("HLEN {semel}meta").number(), 3, "nothing was written");
    let accepted = accept(&server, "tested").await.expect("accepted");
    assert_eq!((accepted.parts, accepted.of, accepted.secret), (0, 3, true));
    drop(start(&server.url(), None).await.expect("it starts"));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_script_but_those_of_the_creation_creates_a_store() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = folder("scripts");
    let server = RedisServer::start(folder.join("server"), &[]);
    let scripts: [(&str, &[&str], &[&str]); 6] = [
        (include_str!("../../src/scripts/epoch.lua"), &["meta"], &["0"]),
        (include_str!("../../src/scripts/passed.lua"), &["meta"], &["1"]),
        (include_str!("../../src/scripts/complete.lua"), &["meta"], &[""]),
        (
            include_str!("../../src/scripts/set.lua"),
            &["settings", "proof", "identity"],
            &["1", "", "a", "0", "", "1", "b"],
        ),
        (
            include_str!("../../src/scripts/set.lua"),
            &["settings", "proof", "identity"],
            &["1", "x", "a", "0", "", "1", "b"],
        ),
        (include_str!("../../src/scripts/get.lua"), &["record", "proof", "identity"], &["1", "9", "x"]),
    ];
    for (script, keys, arguments) in scripts {
        let count = keys.len().to_string();
        let question: Vec<&str> =
            ["EVAL", script, &count].iter().chain(keys).chain(arguments).copied().collect();
        server.client().ask(&question);
        assert_eq!(server.ask("KEYS *"), server.ask("KEYS nothing"), "{script}");
    }
}
