//! The counts of shadow mode, and what to enforce.

use crate::upstream::Upstream;
use crate::world::{Gateway, Scratch, key, post, semel, send, until};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

fn start_in_shadow_mode(scratch: &Scratch, upstream: &Upstream, terms: &str) -> Gateway {
    let (store, upstream) = (scratch.store(), upstream.address);
    let text = format!("[upstream]\nurl = \"http://{upstream}\"\n[store]\nurl = '{store}'\n{terms}");
    let config = scratch.write("semel.toml", text);
    Gateway::start(&["--config", &config, "--admin", "127.0.0.1:0"])
}

fn route<'v>(report: &'v Value, name: &str) -> Option<&'v Value> {
    let routes = report["routes"].as_array().expect("routes");
    routes.iter().find(|route| {
        let seen = &route["seen"];
        seen["operation"] == name || seen["path"] == name
    })
}

#[test]
fn shadow_mode_reports_by_route_with_advice() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let terms = "[defaults]\nmode = \"shadow\"\n[[operation]]\nname = \"mail\"\npath = \"/mails\"\nkey = \"required\"\n";
    let gateway = start_in_shadow_mode(&scratch, &upstream, terms);
    let admin = format!("http://{}", gateway.admin.expect("it has an admin address"));
    let send = |path: &str, key: Option<u32>, body: &str| {
        let key = key.map(crate::world::key);
        assert_eq!(post(gateway.address, path, key.as_deref(), body).status, 201);
    };
    // Waits until each request is counted before sending the next, so that the counts are exact.
    let settled = |name: &str, count: u64| {
        until(|| {
            let report = semel(&["shadow", "--json", "--admin", &admin]).exits(0).json();
            route(&report, name).is_some_and(|route| route["seen"]["requests"] == count)
        });
    };
    let charges = "/accounts/{id}/charges";
    for (at, (account, key)) in (1..).zip([(1, 1), (1, 1), (2, 2)]) {
        send(&format!("/accounts/{account}/charges"), Some(key), "{\"amount\":5}");
        settled(charges, at);
    }
    for (at, (key, body)) in (1..).zip([(3, "{\"n\":1}"), (3, "{\"n\":2}")]) {
        send("/refunds", Some(key), body);
        settled("/refunds", at);
    }
    for at in 1..=3 {
        send("/mails", None, "{\"to\":\"ada\"}");
        settled("mail", at);
    }
    assert_eq!(upstream.calls(), 8, "everything ran");

    let report = semel(&["shadow", "--json", "--admin", &admin]).exits(0).json();
    let charged = route(&report, charges).expect("a route");
    assert_eq!((&charged["seen"]["withKey"], &charged["seen"]["wouldReplay"]), (&3.into(), &1.into()));
    assert_eq!(charged["advice"]["verdict"], "enforce");
    let config = charged["advice"]["config"].as_str().expect("lines");
    assert!(config.contains("key = \"required\"") && config.contains("mode = \"enforce\""), "{config}");
    let refunds = route(&report, "/refunds").expect("a route");
    let mismatch = "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST";
    assert_eq!(refunds["seen"]["wouldRefuse"][mismatch], 1);
    assert_eq!(refunds["advice"]["verdict"], "look-first");
    let mail = route(&report, "mail").expect("a route");
    assert_eq!((&mail["seen"]["likelyDuplicates"], &mail["seen"]["withKey"]), (&2.into(), &0.into()));
    assert_eq!(mail["seen"]["wouldRefuse"]["MISSING_IDEMPOTENCY_KEY"], 3);
    assert_eq!(mail["advice"]["verdict"], "ask-for-keys");

    let table = semel(&["shadow", "--admin", &admin]).exits(0).out;
    for part in [
        "ROUTE",
        "DUPLICATES",
        "POST /accounts/{id}/charges: enforce",
        "POST /refunds: look first",
        "mail: ask for keys",
    ] {
        assert!(table.contains(part), "{part} is not in {table}");
    }

    // The suggested configuration does what it promises.
    drop(gateway);
    let gateway = start_in_shadow_mode(&scratch, &upstream, &format!("{terms}{config}"));
    let charge = |body: &str| post(gateway.address, "/accounts/9/charges", Some(&key(9)), body);
    let first = charge("{\"amount\":5}");
    let again = charge("{\"amount\":5}");
    assert_eq!((again.header("idempotency-replayed"), &again.body), (Some("true"), &first.body));
    assert_eq!(post(gateway.address, "/accounts/9/charges", None, "{}").status, 400);
    assert_eq!(upstream.calls(), 9);
}

#[test]
fn without_shadow_mode_there_is_nothing_to_tell() {
    let world = crate::world::World::new();
    world.post("/charges", Some(&key(1)), "{}");
    let output = world.at_admin(&["shadow"]).exits(0).out;
    assert!(output.starts_with("no requests in shadow mode"), "{output}");
    let unreachable = semel(&["shadow", "--admin", "http://127.0.0.1:1"]).exits(1);
    assert!(unreachable.err.contains("cannot be reached"), "{unreachable:?}");
}

#[test]
fn a_long_stream_in_shadow_mode_raises_no_alarm() {
    let (scratch, upstream) = (Scratch::new(), Upstream::start());
    let (store, service) = (scratch.store(), upstream.address);
    let text = format!(
        "[upstream]\nurl = \"http://{service}\"\nconnect_timeout = \"3s\"\nresponse_timeout = \"3s\"\n\
         [store]\nurl = '{store}'\n[defaults]\nmode = \"shadow\"\n"
    );
    let gateway = Gateway::start(&["--config", &scratch.write("semel.toml", text), "--admin", "127.0.0.1:0"]);
    let admin = format!("http://{}", gateway.admin.expect("it has an admin address"));
    let seen = |path: &str| {
        let report = semel(&["shadow", "--json", "--admin", &admin]).exits(0).json();
        route(&report, path).map(|route| route["seen"].clone())
    };
    assert_eq!(post(gateway.address, "/charges", Some(&key(1)), "{}").status, 201);
    let streaming = send(gateway.address, "/drip", Some(&key(2)), "{}");
    until(|| seen("/charges").is_some_and(|seen| seen["wouldRun"] == 1));
    // Its own record has reached the deadline by now; the response is still streaming.
    until(|| seen("/drip").is_some_and(|seen| seen["notJudged"] == 1));
    let address = gateway.admin.expect("it has an admin address");
    let mut asking = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /metrics HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    asking.write_all(request.as_bytes()).expect("it reads");
    let mut metrics = String::new();
    asking.read_to_string(&mut metrics).expect("text");
    drop(streaming);
    assert!(metrics.contains("idempotency_alarms_total{what=\"overran\"} 0\n"), "{metrics}");
    let attempts = metrics.lines().filter(|line| line.starts_with("idempotency_attempts_total{"));
    assert!(attempts.clone().all(|line| line.ends_with(" 0")), "{metrics}");
}
