//! Asking the service whether a caller may still get a replay.

use crate::world::{Gateway, Scratch, World, charge};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, charged, response};
use std::sync::{Arc, Mutex};

const ASKED: &str =
    "[defaults.authorize]\npath = \"/session/{operation_id}\"\nheaders = [\"x-device\"]\ntimeout = \"3s\"\n";

/// A service that charges, and answers questions about the session as configured.
async fn world_with_sessions(act: &Arc<Mutex<Act>>) -> World {
    let act = Arc::clone(act);
    let script = move |seen: &Seen| {
        if seen.line.starts_with("GET /session/") {
            act.lock().expect("not poisoned").clone()
        } else {
            charged(seen)
        }
    };
    World::configured(ASKED, script).await
}

fn alice() -> TestRequest {
    let ask = charge(5).with("authorization", "Bearer alice").with("cookie", "s=1");
    ask.with("x-device", "phone").with("x-other", "secret")
}

async fn send(world: &World) -> Reply {
    world.send(alice()).await
}

fn sessions(world: &World) -> Vec<Seen> {
    world.upstream.seen().into_iter().filter(|seen| seen.line.contains("/session/")).collect()
}

fn answer_with(status: &str) -> Act {
    Act::Say(response(status, &[], ""))
}

#[tokio::test]
async fn a_replay_needs_the_services_permission() {
    let act = Arc::new(Mutex::new(answer_with("204 Yes")));
    let world = world_with_sessions(&act).await;
    let first = send(&world).await;
    assert_eq!(
        (first.text(), sessions(&world).len()),
        ("charge 1", 0),
        "the first request needs no question"
    );
    let replay = send(&world).await;
    assert!(replay.is_replay());
    assert_eq!(replay.kept(), first.kept());

    let [question] = &sessions(&world)[..] else { panic!("asked once for one replay") };
    let id = first.header("operation-id").expect("an id");
    assert_eq!(question.line, format!("GET /session/{id} HTTP/1.1"));
    assert_eq!(question.header("authorization"), Some("Bearer alice"));
    assert_eq!((question.header("cookie"), question.header("x-device")), (Some("s=1"), Some("phone")));
    assert_eq!(
        (question.header("x-original-method"), question.header("x-original-uri")),
        (Some("POST"), Some("/charges"))
    );
    assert_eq!((question.header("idempotency-key"), question.header("x-other")), (None, None));
    assert!(question.body.is_empty() && question.header("content-type").is_none(), "{question:?}");
    assert!(question.header("x-forwarded-for").is_some(), "the origin headers are sent, as for any request");
    let fresh = (question.header("cache-control"), question.header("pragma"));
    assert_eq!(fresh, (Some("no-cache"), Some("no-cache")), "caches must not answer");
}

#[tokio::test]
async fn a_trusted_proxys_client_is_passed_on_with_questions() {
    for (trusted, seen) in [("127.0.0.1", "203.0.113.7, 127.0.0.1"), ("127.0.0.9", "127.0.0.1")] {
        let script = |seen: &Seen| if is_question(seen) { answer_with("204 Yes") } else { charged(seen) };
        let (scratch, upstream) = (Scratch::new(), Upstream::start(script).await);
        scratch.configure(&format!(
            "[upstream]\nurl = \"http://{}\"\nforwarded_by = [\"{trusted}\"]\n[store]\nurl = 'sqlite:{}'\n{ASKED}",
            upstream.address,
            scratch.file().display()
        ));
        let world = World { gateway: Gateway::configured(&scratch, &[]), upstream, scratch };
        for _ in 0..2 {
            world.send(alice().with("x-forwarded-for", "203.0.113.7")).await;
        }
        assert_eq!(sessions(&world)[0].header("x-forwarded-for"), Some(seen), "{trusted}");
    }
}

fn is_question(seen: &Seen) -> bool {
    seen.line.starts_with("GET /session/")
}

#[tokio::test]
async fn the_services_refusal_is_passed_on_without_the_stored_response() {
    for (status, code) in [("401 Who", 401), ("403 No", 403)] {
        let headers = [("www-authenticate", "Bearer"), ("content-type", "text/plain")];
        let act = Arc::new(Mutex::new(Act::Say(response(status, &headers, "revoked"))));
        let world = world_with_sessions(&act).await;
        let first = send(&world).await;
        let refused = send(&world).await;
        assert_eq!((refused.status, refused.text(), refused.is_replay()), (code, "revoked", false));
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
        assert_eq!((refused.header("location"), refused.header("idempotency-expires")), (None, None));
        let path = format!("/operations/{}", first.header("operation-id").expect("an id"));
        let shown = world.send(TestRequest::get(&path).with("authorization", "Bearer alice")).await;
        assert_eq!(shown.json().get("result"), None, "the status page must not show the response either");
        *act.lock().expect("not poisoned") = answer_with("200 OK");
        assert!(send(&world).await.is_replay(), "the record is unchanged");
    }
}

#[tokio::test]
async fn without_an_answer_that_allows_it_nothing_is_replayed() {
    let broken = Act::SayAndEnd(b"nonsense\r\n\r\n".to_vec());
    let acts = [
        answer_with("500 Oops"),
        answer_with("302 Found"),
        answer_with("404 None"),
        Act::Hang,
        Act::End,
        broken,
    ];
    let act = Arc::new(Mutex::new(answer_with("200 OK")));
    let mut world = world_with_sessions(&act).await;
    let first = send(&world).await;
    for next in acts {
        *act.lock().expect("not poisoned") = next;
        let refused = send(&world).await;
        world.is_problem(&refused, 503, "UPSTREAM_UNREACHABLE", true).await;
        assert_eq!(refused.header("retry-after"), Some("1"));
        assert!(!format!("{refused:?}").contains("charge 1"), "{refused:?}");
    }
    world.upstream.refuse().await;
    *act.lock().expect("not poisoned") = Act::End;
    let refused = send(&world).await;
    world.is_problem(&refused, 503, "UPSTREAM_UNREACHABLE", true).await;
    *act.lock().expect("not poisoned") = answer_with("200 OK");
    world.upstream.listen_again().await;
    let replay = send(&world).await;
    assert!(replay.is_replay());
    assert_eq!(replay.kept(), first.kept());
    let charges = world.upstream.seen().iter().filter(|seen| seen.line.starts_with("POST")).count();
    assert_eq!(charges, 1);
}
