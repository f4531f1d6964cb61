//! No caller gets another's response, whatever a request contains.

use crate::world::{KEY, World, within};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::charged;
use std::net::SocketAddr;
use tokio::net::TcpSocket;

fn charge() -> TestRequest {
    TestRequest::post("/charges").key(KEY)
}

/// Checks that an attacker gets none of the victims' responses.
fn is_not(victims: &[&str], reply: &Reply, trick: &str) {
    assert!(!victims.contains(&reply.text()), "{trick}: {reply:?}");
    assert!(reply.status == 201 || reply.status == 400, "{trick}: {reply:?}");
}

#[tokio::test]
async fn no_header_makes_one_access_token_another() {
    let world = World::configured("", charged).await;
    let alice = world.send(charge().with("authorization", "Bearer alice")).await;
    let anonymous = world.send(charge()).await;
    assert_eq!((alice.text(), anonymous.text()), ("charge 1", "charge 2"));
    let victims = ["charge 1", "charge 2"];
    let mallory = || charge().with("authorization", "Bearer mallory");
    let tricks = [
        // If the header counted as hop-by-hop, it would be removed, and the request would have no caller.
        mallory().with("connection", "authorization"),
        mallory().with("connection", "Authorization, keep-alive"),
        mallory().with("connection", "close").with("connection", "authorization"),
        // Two values: neither may be picked.
        mallory().with("authorization", "Bearer alice2"),
        mallory().with("authorization", ""),
        charge().with("authorization", ""),
        charge().with("authorization", "Bearer"),
        charge().with("authorization", "Bearer "),
        charge().with("authorization", "Digest username=\"alice\""),
        charge().with("authorization", "Bearer alice, Bearer mallory"),
        charge().with("cookie", "session=alice"),
        mallory().with("x-forwarded-authorization", "Bearer alice"),
        mallory().with("proxy-authorization", "Bearer alice"),
        mallory().with("x-authorization", "Bearer alice"),
        mallory().with("x-forwarded-user", "alice").with("x-user", "alice").with("x_user", "alice"),
        mallory().with("te", "authorization").with("trailer", "authorization"),
    ];
    for trick in tricks {
        let shown = format!("{trick:?}");
        is_not(&victims, &world.send(trick).await, &shown);
    }
    let status = alice.header("operation-id").map(|id| format!("/operations/{id}")).expect("an id");
    for trick in [
        TestRequest::get(&status).key(KEY),
        TestRequest::get(&status).with("authorization", "Bearer mallory").with("connection", "authorization"),
        TestRequest::get(&status)
            .with("authorization", "Bearer mallory")
            .with("authorization", "Bearer alice2"),
    ] {
        let reply = world.send(trick).await;
        assert!(
            (reply.status == 404 || reply.status == 400) && !reply.text().contains("charge 1"),
            "{reply:?}"
        );
    }
    assert!(
        world.send(charge().with("authorization", "bearer alice")).await.is_replay(),
        "alice still gets her replay"
    );
}

/// Sends it from this local address.
pub(crate) async fn from(address: [u8; 4], ask: TestRequest, to: SocketAddr) -> Reply {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((address, 0).into()).expect("an address of this machine");
    let stream = socket.connect(to).await.expect("it listens");
    within(ask.send_by(stream, to)).await.expect("an answer")
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_proxy_is_trusted_only_by_its_address() {
    const PROXY: [u8; 4] = [127, 0, 0, 2];
    const STRANGER: [u8; 4] = [127, 0, 0, 3];
    let identity = "[identity]\nsources = [\"header:x-user\", \"anonymous\"]\ntrusted = [\"127.0.0.2\"]\n";
    let world = World::configured(identity, charged).await;
    let to = world.gateway.address;
    let alice = from(PROXY, charge().with("x-user", "alice"), to).await;
    let anonymous = from(PROXY, charge(), to).await;
    assert_eq!((alice.text(), anonymous.text()), ("charge 1", "charge 2"));
    let tricks = [
        charge().with("x-user", "alice"),
        charge().with("X-User", "alice"),
        charge().with("x_user", "alice"),
        charge().with("x-user", "alice").with("x-forwarded-for", "127.0.0.2"),
        charge().with("x-user", "alice").with("forwarded", "for=127.0.0.2"),
        charge().with("x-user", "alice").with("x-real-ip", "127.0.0.2").with("x_forwarded_for", "127.0.0.2"),
        charge().with("x-user", "alice").with("connection", "x-user"),
    ];
    for trick in tricks {
        let shown = format!("{trick:?}");
        let reply = from(STRANGER, trick, to).await;
        assert_eq!((reply.text(), reply.is_replay()), ("charge 2", true), "the anonymous caller: {shown}");
    }
    // Through the proxy, whose users can write headers too: the header that the proxy sets decides.
    for trick in [
        charge().with("x-user", "bob").with("connection", "x-user"),
        charge().with("x-user", "bob").with("x_user", "alice"),
        charge().with("x-user", "bob").with("authorization", "Bearer alice"),
    ] {
        let shown = format!("{trick:?}");
        let reply = from(PROXY, trick, to).await;
        assert_eq!(reply.text(), "charge 3", "{shown}");
    }
    let twice = from(PROXY, charge().with("x-user", "bob").with("x-user", "alice"), to).await;
    assert_eq!(twice.code().as_deref(), Some("CALLER_NOT_IDENTIFIED"));
    assert_eq!(world.calls(), 3);
}
