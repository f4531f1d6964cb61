//! Responses that are stored in part, and rebuilt from the service.

use crate::world::{World, charge, until};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, response, says};

const MINIMAL: &str = "[defaults]\nkept = \"minimal\"\n";
const NOT_RETAINED: &str = "IDEMPOTENCY_RESPONSE_NOT_RETAINED";

/// Creates a charge at `location`, and returns it to requests with the right credentials.
fn creates_charge_at(location: String) -> impl Fn(&Seen) -> Act + Send + Sync {
    move |seen| {
        if seen.line.starts_with("POST") {
            let headers = [("location", location.as_str()), ("etag", "\"1\"")];
            return Act::Say(response("201 Created", &headers, "personal"));
        }
        if seen.header("authorization") != Some("Bearer alice") {
            return Act::Say(response("403 No", &[], "not yours"));
        }
        Act::Say(response("200 OK", &[("x-now", "1"), ("content-type", "text/plain")], "as it is now"))
    }
}

fn alice() -> TestRequest {
    charge(5).with("authorization", "Bearer alice")
}

fn is_rebuilt(reply: &Reply) -> bool {
    reply.header("idempotency-replayed") == Some("rebuilt")
}

fn rebuild_requests(world: &World) -> Vec<String> {
    let seen = world.upstream.seen();
    seen.iter().filter(|seen| seen.line.starts_with("GET")).map(|seen| seen.line.clone()).collect()
}

#[tokio::test]
async fn a_replay_is_rebuilt_from_the_location_with_the_clients_credentials() {
    let terms = format!("{MINIMAL}[defaults.rebuild]\n");
    let world = World::configured(&terms, creates_charge_at("/charges/7?full=1".to_owned())).await;
    let first = world.send(alice()).await;
    assert_eq!((first.status, first.text()), (201, "personal"));
    let again = world.send(alice()).await;
    assert_eq!((again.status, again.text(), is_rebuilt(&again)), (201, "as it is now", true));
    assert_eq!((again.header("location"), again.header("x-now")), (Some("/charges/7?full=1"), Some("1")));
    assert_eq!(again.header("operation-id"), first.header("operation-id"));
    assert!(again.is_acknowledged());
    assert_eq!(rebuild_requests(&world), ["GET /charges/7?full=1 HTTP/1.1"]);
    let seen = world.upstream.seen();
    assert_eq!((seen.len(), seen[1].header("idempotency-key")), (2, None));
}

#[tokio::test]
async fn a_location_on_another_host_is_not_requested() {
    let other = Upstream::start(says("200 OK")).await;
    for location in
        [format!("http://{}/charges/7", other.address), format!("//{}/charges/7", other.address), "7".into()]
    {
        let terms = format!("{MINIMAL}[defaults.rebuild]\nfrom = \"location\"\n");
        let world = World::configured(&terms, creates_charge_at(location)).await;
        assert_eq!(world.send(alice()).await.status, 201);
        let again = world.send(alice()).await;
        assert_eq!(again.code().as_deref(), Some(NOT_RETAINED));
        assert_eq!((other.seen_count(), rebuild_requests(&world).len()), (0, 0));
    }
}

#[tokio::test]
async fn a_response_that_cannot_be_rebuilt_is_answered_as_not_retained() {
    let terms = format!("{MINIMAL}[defaults.rebuild]\ntimeout = \"300ms\"\n");
    for act in [says("404 Gone")(&none()), says("302 Elsewhere")(&none()), Act::Hang, Act::End] {
        let script = move |seen: &Seen| {
            if seen.line.starts_with("POST") {
                creates_charge_at("/charges/7".to_owned())(seen)
            } else {
                act.clone()
            }
        };
        let world = World::configured(&terms, script).await;
        assert_eq!(world.send(alice()).await.status, 201);
        let again = world.send(alice()).await;
        assert_eq!(again.code().as_deref(), Some(NOT_RETAINED));
        assert_eq!(rebuild_requests(&world).len(), 1);
    }
}

fn none() -> Seen {
    Seen { number: 0, connection: 0, line: String::new(), headers: Vec::new(), body: Vec::new() }
}

#[tokio::test]
async fn a_refusal_is_never_replayed_as_the_resource() {
    let terms = format!("{MINIMAL}[defaults.rebuild]\nfrom = \"/by/{{operation_id}}\"\n");
    for (status, code) in [("422 Nope", 422), ("204 Done", 204)] {
        let script = move |seen: &Seen| match status {
            _ if !seen.line.starts_with("POST") => says("200 OK")(seen),
            "204 Done" => Act::Say(format!("HTTP/1.1 {status}\r\n\r\n").into_bytes()),
            _ => says(status)(seen),
        };
        let world = World::configured(&terms, script).await;
        assert_eq!(world.send(alice()).await.status, code);
        let again = world.send(alice()).await;
        let expected = if code == 204 { (204, true) } else { (409, false) };
        assert_eq!((again.status, is_rebuilt(&again)), expected);
        assert_eq!(rebuild_requests(&world).len(), 0);
    }
}

#[tokio::test]
async fn a_resolved_doubt_is_rebuilt_too() {
    let script = |seen: &Seen| match seen.line.split(' ').nth(1) {
        Some("/charges") => says("500 Oops")(seen),
        Some(path) if path.starts_with("/effects/") => says("200 OK")(seen),
        _ => Act::Say(response("200 OK", &[], "as it is now")),
    };
    let terms = format!(
        "{MINIMAL}[defaults.rebuild]\nfrom = \"/by/{{operation_id}}\"\n\
         [defaults.probe]\nurl = \"/effects/{{operation_id}}\"\nstatus = 201\n"
    );
    let world = World::configured(&terms, script).await;
    let first = world.send(alice()).await;
    let again = until(async || {
        let reply = world.send(alice()).await;
        (reply.status != 409).then_some(reply)
    })
    .await;
    assert_eq!((again.status, again.text(), is_rebuilt(&again)), (201, "as it is now", true));
    let id = first.header("operation-id").expect("an id");
    assert!(rebuild_requests(&world).contains(&format!("GET /by/{id} HTTP/1.1")));
}

#[tokio::test]
async fn an_operators_response_is_stored_in_its_minimal_form_or_refused() {
    let script = |seen: &Seen| match seen.line.split(' ').nth(1) {
        Some("/charges") => says("500 Oops")(seen),
        _ => creates_charge_at(String::new())(seen),
    };
    let mut world = World::configured(&format!("{MINIMAL}[defaults.rebuild]\n"), script).await;
    let admin = world.gateway.admin();
    let first = world.send(alice()).await;
    let id = first.header("operation-id").expect("an id").to_owned();
    let resolved = async |response: &str| {
        let body = format!(r#"{{"outcome": "applied", "reason": "seen", "response": {response}}}"#);
        let request = TestRequest::post(&format!("/v1/records/{id}/resolve")).json(&body);
        request.send(admin).await.expect("an answer")
    };
    let refused = resolved(r#"{"status": 201, "body": "personal"}"#).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("Location and ETag"), "{}", refused.text());
    assert_eq!(world.send(alice()).await.status, 409, "nothing was changed");
    let stored = resolved(r#"{"status": 201, "headers": [["Location", "/charges/7"]]}"#).await;
    assert_eq!(stored.status, 200, "{}", stored.text());
    let again = world.send(alice()).await;
    assert_eq!((again.status, again.text(), is_rebuilt(&again)), (201, "as it is now", true));
    assert_eq!(again.header("location"), Some("/charges/7"));
}
