//! A full disk, which has room again later.

use crate::world::{KEY, Scratch, Starting, World, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

fn ask(number: u32) -> TestRequest {
    TestRequest::post("/charges").key(&format!("{KEY}-{number}")).json("{\"amount\":5}")
}

async fn readiness(admin: SocketAddr) -> Reply {
    TestRequest::get("/readyz").send(admin).await.expect("an answer")
}

/// The library that makes the disk full.
fn compiled(scratch: &Scratch) -> PathBuf {
    let source = scratch.write("full_disk.c", include_str!("full_disk.c"));
    let library = source.with_extension("so");
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Wextra", "-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
    let made = compiler.output().expect("a C compiler, which SQLite was built with");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    library
}

#[tokio::test]
async fn it_is_not_ready_while_the_disk_is_full() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let full = scratch.write("disk-is-full", "");
    std::fs::remove_file(&full).expect("there is room at first");
    let mut program = Command::new(env!("CARGO_BIN_EXE_semel"));
    program.env("LD_PRELOAD", compiled(&scratch));
    program.env("SEMEL_FULL_PREFIX", scratch.file()).env("SEMEL_FULL_WHILE", &full);
    let store = format!("sqlite:{}", scratch.file().display());
    let flags = ["--store", &store, "--upstream", &format!("http://{}", upstream.address)];
    let mut gateway = Starting::begin_as(program, &scratch, &flags).listens();
    let admin = gateway.admin();
    let world = World { gateway, upstream, scratch };
    assert!(world.send(ask(1)).await.is_acknowledged());
    assert_eq!(readiness(admin).await.status, 200);

    std::fs::write(&full, "").expect("the disk fills up");
    let refused = world.send(ask(2)).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    let not_ready = until(async || Some(readiness(admin).await).filter(|reply| reply.status == 503)).await;
    assert!(not_ready.text().contains("has taken no write for"), "{}", not_ready.text());
    assert!(not_ready.text().contains("full"), "{}", not_ready.text());
    assert!(world.send(ask(1)).await.is_replay(), "stored outcomes can be read");
    assert_eq!(world.calls(), 1, "a request ran without a claim");

    std::fs::remove_file(&full).expect("there is room again");
    // Without any requests, the heartbeat notices.
    until(async || Some(readiness(admin).await).filter(|reply| reply.status == 200)).await;
    assert!(world.send(ask(2)).await.is_acknowledged());
    assert_eq!(world.calls(), 2);
}
