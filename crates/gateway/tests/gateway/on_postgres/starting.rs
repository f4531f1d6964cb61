//! A server that is still recovering when a gateway starts.

use crate::world::{Gateway, Scratch, Starting, World, until};
use semel_test_support::upstream::{Upstream, charged};
use semel_test_support::{PostgresServer, ScratchDir};

#[tokio::test]
async fn a_gateway_waits_for_a_server_that_is_recovering() {
    if !PostgresServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "recovering");
    let mut server = PostgresServer::start(folder.join("server"));
    let url = format!("{}?sslmode=disable", server.url());
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let gateway = Gateway::start_on(&url, &scratch, upstream.address, &[]);
    let mut world = World { gateway, upstream, scratch };
    assert_eq!(world.charge(5).await.status, 201);
    world.gateway.kill();
    server.restart_recovering();
    let upstream = format!("http://{}", world.upstream.address);
    let starting = Starting::begin(&world.scratch, &["--store", &url, "--upstream", &upstream]);
    until(async || world.log().contains("server is still starting; waiting").then_some(())).await;
    server.finish_recovery();
    world.gateway = starting.listens();
    let retry = world.charge(5).await;
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(world.calls(), 1);
}
