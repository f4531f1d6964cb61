//! What is forwarded, and what belongs to one connection only.

use crate::world::{Gateway, KEY, Scratch, World};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, response};

const HOPS: [(&str, &str); 4] = [
    ("connection", "close, x-hop"),
    ("keep-alive", "timeout=9"),
    ("x-hop", "this connection only"),
    ("proxy-authenticate", "Basic"),
];

#[tokio::test]
async fn hop_by_hop_headers_stay_on_their_connection() {
    let world = World::new(&[], |_| Act::SayAndEnd(response("201 Created", &HOPS, "charged"))).await;
    for ask in [
        TestRequest::post("/charges").key(KEY),
        TestRequest::post("/charges").key(KEY),
        TestRequest::get("/charges"),
    ] {
        let reply =
            world.send(ask.with("connection", "x-mine").with("x-mine", "1").with("te", "trailers")).await;
        assert_eq!(reply.text(), "charged");
        for (name, _) in HOPS {
            assert_eq!(reply.header(name), None, "{name}");
        }
    }
    assert_eq!(world.calls(), 2, "one of them was a replay");
    for seen in world.upstream.seen() {
        assert_eq!((seen.header("x-mine"), seen.header("connection")), (None, None), "{seen:?}");
        assert_eq!(seen.header("te"), Some("trailers"));
    }
}

#[tokio::test]
async fn the_upstream_learns_the_real_origin_of_a_request() {
    let world = World::new(&[], |_| Act::Say(response("200 OK", &[], "fine"))).await;
    for ask in [TestRequest::post("/charges").key(KEY), TestRequest::get("/charges")] {
        world.send(ask.with("x-forwarded-for", "6.6.6.6").with("forwarded", "for=6.6.6.6")).await;
    }
    for seen in world.upstream.seen() {
        assert_eq!(seen.header("x-forwarded-for"), Some("127.0.0.1"), "{seen:?}");
        assert_eq!(seen.header("x-forwarded-proto"), Some("http"));
        assert!(
            seen.header("forwarded").is_some_and(|value| value.starts_with("for=127.0.0.1;")),
            "{seen:?}"
        );
        assert_eq!(
            seen.header("host"),
            Some(world.gateway.address.to_string().as_str()),
            "the Host header is the client's"
        );
    }
}

#[tokio::test]
async fn the_base_of_the_upstreams_url_comes_before_every_path() {
    let (scratch, script) = (Scratch::new(), |_: &Seen| Act::Say(response("200 OK", &[], "fine")));
    let upstream = Upstream::start(script).await;
    let gateway = Gateway::start_before(&format!("http://{}/base", upstream.address), &scratch, &[]);
    for ask in [TestRequest::post("/charges?x=1").key(KEY), TestRequest::get("/")] {
        assert_eq!(ask.send(gateway.address).await.expect("an answer").text(), "fine");
    }
    let lines: Vec<_> = upstream.seen().into_iter().map(|seen| seen.line).collect();
    assert_eq!(lines, ["POST /base/charges?x=1 HTTP/1.1", "GET /base/ HTTP/1.1"]);
}

#[tokio::test]
async fn forged_control_headers_reach_neither_side() {
    const CONTROL: [&str; 7] = [
        "operation-id",
        "idempotency-attempt",
        "idempotency-fence",
        "idempotency-outcome",
        "idempotency-replayed",
        "idempotency-expires",
        "idempotency-stored",
    ];
    let forged = CONTROL.map(|name| (name, "forged"));
    let world = World::new(&[], move |_| Act::Say(response("200 OK", &forged, "fine"))).await;
    for ask in [
        TestRequest::post("/charges").key(KEY),
        TestRequest::post("/charges").key(KEY),
        TestRequest::post("/charges"),
    ] {
        let ask = CONTROL.into_iter().fold(ask, |ask, name| ask.with(name, "forged"));
        let reply = world.send(ask).await;
        assert!(reply.headers.values().all(|value| value != "forged"), "{reply:?}");
    }
    assert_eq!(world.calls(), 2, "one of them was a replay");
    for seen in world.upstream.seen() {
        assert!(seen.headers.iter().all(|(_, value)| value != "forged"), "{seen:?}");
    }
}
