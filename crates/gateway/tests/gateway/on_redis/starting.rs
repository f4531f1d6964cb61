//! A server that is still loading its data when a gateway starts, and while one runs.

use crate::world::{Gateway, Scratch, Starting, World, until};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use semel_test_support::{RedisServer, ReservedAddress, ScratchDir};
use std::io::ErrorKind;
use std::process::Command;
use tokio::net::TcpStream;

#[tokio::test]
async fn a_gateway_waits_for_a_server_that_is_loading() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "loading");
    let mut server = RedisServer::start(folder.join("server"), &[]);
    let (scratch, upstream) = (Scratch::new(), Upstream::start(charged).await);
    let gateway = Gateway::start_on(&server.url(), &scratch, upstream.address, &[]);
    let mut world = World { gateway, upstream, scratch };
    assert_eq!(world.charge(5).await.status, 201);
    server.restart_loading();
    // A running gateway reports that nothing was written, and that a retry helps.
    let fresh = TestRequest::post("/charges").key("another-key-of-this-test").json("{}");
    let refused = world.send(fresh).await;
    world.is_problem(&refused, 503, "IDEMPOTENCY_STORE_UNAVAILABLE", true).await;
    world.gateway.kill();
    let (url, upstream) = (server.url(), format!("http://{}", world.upstream.address));
    let reserved = [(); 2].map(|()| ReservedAddress::new());
    let [listen, admin] = reserved.each_ref().map(ReservedAddress::address);
    let mut program = Command::new(env!("CARGO_BIN_EXE_semel"));
    program.args(["serve", "--store", &url, "--upstream", &upstream]);
    program.args(["--listen", &listen.to_string(), "--admin", &admin.to_string()]);
    let starting = Starting::spawn(program, &world.scratch);
    until(async || world.log().contains("server is still starting; waiting").then_some(())).await;
    // Nobody waits for an answer that does not come.
    for address in [listen, admin] {
        let refused = TcpStream::connect(address).await.expect_err("nothing listens yet");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    server.finish_loading();
    world.gateway = starting.listens();
    let retry = world.charge(5).await;
    assert!(retry.is_replay(), "{retry:?}");
    assert_eq!(world.calls(), 1);
    assert!(world.log().contains("the store's server has started"), "{}", world.log());
}
