//! Metrics that move with what happens, and log lines for programs.

use crate::world::{Gateway, KEY, Scratch, World, charge, complete_config, until, within};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, charged, response};
use semel_test_support::{Reply, ReservedAddress};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

const CHARGES: &str = "[[operation]]\nname = \"charge\"\npath = \"/charges\"\n[[operation]]\nname = \"refund\"\npath = \"/refunds/{id}\"\n";

async fn ask(ask: TestRequest, address: SocketAddr) -> Reply {
    within(ask.send(address)).await.expect("an answer")
}

/// The value of one series; `None` if it does not exist.
async fn number(admin: SocketAddr, series: &str) -> Option<f64> {
    let page = ask(TestRequest::get("/metrics"), admin).await;
    let line = page.text().lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?.to_owned();
    Some(line.parse().expect("a number"))
}

async fn assert_metric(admin: SocketAddr, series: &str, expected: f64) {
    assert_eq!(number(admin, series).await, Some(expected), "{series}");
}

/// Answers charges, closes the connection on `/broken`, does not answer on `/silent`, and sends invalid HTTP on `/odd`.
fn upstream_script(seen: &Seen) -> Act {
    match () {
        () if seen.line.contains("/refunds/broken") => Act::End,
        () if seen.line.contains("/refunds/silent") => Act::Hang,
        () if seen.line.contains("/refunds/odd") => Act::Say(b"no HTTP at all\r\n\r\n".to_vec()),
        () if seen.line.contains("/refunds/error") => {
            Act::Say(response("500 Internal Server Error", &[], "no"))
        }
        () => charged(seen),
    }
}

fn refund(kind: &str) -> TestRequest {
    TestRequest::post(&format!("/refunds/{kind}")).key(&format!("{KEY}-{kind}")).json("{}")
}

#[tokio::test]
async fn counting_calls_to_the_store_are_timed() {
    let mut world = World::configured(CHARGES, upstream_script).await;
    let admin = world.gateway.admin();
    let series = "idempotency_store_seconds_count{call=\"count\"}";
    until(async || number(admin, series).await.is_some_and(|calls| calls > 0.0).then_some(())).await;
    assert_metric(admin, "idempotency_store_errors_total{call=\"count\"}", 0.0).await;
}

#[tokio::test]
async fn latency_statuses_and_upstream_errors_are_counted_by_operation() {
    let mut world = World::configured_before("response_timeout = \"3s\"", CHARGES, upstream_script).await;
    let admin = world.gateway.admin();
    for kind in ["dns", "connect", "connect_timeout", "tls", "not_sent", "reset", "malformed", "timeout"] {
        assert_metric(admin, &format!("semel_upstream_errors_total{{kind=\"{kind}\"}}"), 0.0).await;
    }
    assert_metric(admin, "semel_request_seconds_count{operation=\"charge\",outcome=\"ran\"}", 0.0).await;

    assert_eq!(world.charge(5).await.status, 201);
    assert!(world.charge(5).await.is_replay());
    assert_eq!(world.charge(6).await.status, 422);
    assert_metric(admin, "semel_responses_total{operation=\"charge\",class=\"2xx\"}", 2.0).await;
    assert_metric(admin, "semel_responses_total{operation=\"charge\",class=\"4xx\"}", 1.0).await;
    for outcome in ["ran", "replayed", "other"] {
        let series = format!("semel_request_seconds_count{{operation=\"charge\",outcome=\"{outcome}\"}}");
        assert_metric(admin, &series, 1.0).await;
    }
    assert_metric(admin, "semel_upstream_seconds_count{operation=\"charge\"}", 1.0).await;

    // Unprotected requests are counted too, but never under a client's path.
    assert_eq!(world.send(TestRequest::get("/accounts/carols?token=s3cret")).await.status, 201);
    assert_eq!(world.send(TestRequest::post("/charges").json("{}")).await.status, 201);
    assert_metric(admin, "semel_responses_total{operation=\"other\",class=\"2xx\"}", 1.0).await;
    assert_metric(admin, "semel_upstream_seconds_count{operation=\"other\"}", 1.0).await;
    assert_metric(admin, "semel_upstream_seconds_count{operation=\"charge\"}", 2.0).await;
    let page = ask(TestRequest::get("/metrics"), admin).await;
    assert!(!page.text().contains("carols") && !page.text().contains("s3cret"), "{}", page.text());

    for (path, status, code, kind) in [
        ("broken", 502, "UPSTREAM_FAILED", "reset"),
        ("odd", 502, "UPSTREAM_FAILED", "malformed"),
        ("silent", 504, "UPSTREAM_TIMEOUT", "timeout"),
    ] {
        let before = number(admin, &format!("idempotency_refusals_total{{code=\"{code}\"}}")).await;
        let reply = world.send(refund(path)).await;
        assert_eq!((reply.status, reply.code().as_deref()), (status, Some(code)), "{path}");
        let after = before.map(|count| count + 1.0);
        let refusals = format!("idempotency_refusals_total{{code=\"{code}\"}}");
        assert_eq!(number(admin, &refusals).await, after, "{path}");
        assert_metric(admin, &format!("semel_upstream_errors_total{{kind=\"{kind}\"}}"), 1.0).await;
    }
    assert_metric(admin, "semel_responses_total{operation=\"refund\",class=\"5xx\"}", 3.0).await;
    assert_metric(admin, "semel_upstream_seconds_count{operation=\"refund\"}", 3.0).await;
    // A timeout of three seconds is in no smaller bucket.
    assert_metric(admin, "semel_upstream_seconds_bucket{operation=\"refund\",le=\"0.5\"}", 2.0).await;
    assert_metric(
        admin,
        "semel_request_seconds_bucket{operation=\"refund\",outcome=\"other\",le=\"30\"}",
        3.0,
    )
    .await;
    assert_metric(admin, "idempotency_claims_total{operation=\"refund\",outcome=\"UPSTREAM_FAILED\"}", 2.0)
        .await;
    assert_metric(admin, "idempotency_claims_total{operation=\"refund\",outcome=\"UPSTREAM_TIMEOUT\"}", 1.0)
        .await;
    let ran = number(admin, "idempotency_claims_total{operation=\"refund\",outcome=\"ran\"}").await;
    assert_eq!(ran, None, "none of them got a response");

    assert_eq!(world.send(refund("error")).await.status, 500);
    assert_metric(admin, "idempotency_claims_total{operation=\"refund\",outcome=\"ran\"}", 1.0).await;
    assert_metric(admin, "idempotency_attempts_total{operation=\"refund\",state=\"UNKNOWN\"}", 4.0).await;
}

#[tokio::test]
async fn an_unreachable_upstream_is_counted_without_a_key_too() {
    let scratch = Scratch::new();
    let nobody = ReservedAddress::new();
    let mut gateway = Gateway::start(&scratch, nobody.address(), &[]);
    let admin = gateway.admin();
    assert_eq!(ask(charge(5), gateway.address).await.code().as_deref(), Some("UPSTREAM_UNREACHABLE"));
    assert_metric(admin, "idempotency_refusals_total{code=\"UPSTREAM_UNREACHABLE\"}", 1.0).await;
    assert_metric(admin, "semel_upstream_errors_total{kind=\"connect\"}", 1.0).await;
    assert_eq!(ask(TestRequest::get("/x"), gateway.address).await.status, 502);
    assert_metric(admin, "idempotency_refusals_total{code=\"UPSTREAM_UNREACHABLE\"}", 2.0).await;
    assert_metric(admin, "semel_upstream_errors_total{kind=\"connect\"}", 2.0).await;
    assert_metric(admin, "semel_responses_total{operation=\"other\",class=\"5xx\"}", 2.0).await;
}

#[tokio::test]
async fn an_outcome_that_the_sweeper_finds_unknown_is_counted_and_logged() {
    let scratch = Scratch::new();
    let upstream = Upstream::start(|_| Act::Hang).await;
    let terms = format!("{CHARGES}[defaults]\nlease = \"1s\"\n[clock]\nskew = \"100ms\"\n");
    scratch.configure(&complete_config(&scratch, upstream.address, &terms));
    let mut gateway = Gateway::configured(&scratch, &[]);
    let address = gateway.address;
    let sent = tokio::spawn(async move { charge(5).send(address).await });
    until(async || (!upstream.seen().is_empty()).then_some(())).await;
    gateway.kill();
    drop(sent.await);

    let mut gateway = Gateway::configured(&scratch, &[]);
    let admin = gateway.admin();
    let unknown = "idempotency_attempts_total{operation=\"charge\",state=\"UNKNOWN\"}";
    until(async || (number(admin, unknown).await == Some(1.0)).then_some(())).await;
    let log = scratch.logged();
    let line = log.lines().find(|line| line.contains("went silent")).expect("a line");
    assert!(line.contains("operation=\"charge\"") && line.contains("operation_id="), "{line}");
    // No probe is configured for it, so the sweeper is not behind.
    let record = ask(TestRequest::get("/v1/records?state=UNKNOWN"), admin).await.json()["records"][0].clone();
    let doubt = &record["doubt"];
    assert_eq!((&doubt["hasProbe"], &doubt["probes"]), (&json!(false), &json!(0)), "{record}");
    assert_eq!(doubt.get("nextProbeAt"), None, "{record}");

    // An operator resolves it: counted by who did so, and in the audit log under the configured operation name.
    let id = record["operationId"].as_str().expect("an id").to_owned();
    let path = format!("/v1/records/{id}/resolve");
    let verdict = json!({ "outcome": "applied", "reason": "it is in the ledger" });
    let resolved = ask(TestRequest::post(&path).json(&verdict.to_string()), admin).await;
    assert_eq!(resolved.status, 200, "{}", resolved.text());
    assert_metric(admin, "idempotency_reconciled_total{state=\"SUCCEEDED\",by=\"operator\"}", 1.0).await;
    assert_metric(admin, "idempotency_reconciled_total{state=\"SUCCEEDED\",by=\"probe\"}", 0.0).await;
    let log = scratch.logged();
    let line = log.lines().find(|line| line.contains("an operator changed a record")).expect("a line");
    assert!(line.contains("operation=\"charge\"") && line.contains(&format!("operation_id={id}")), "{line}");
}

#[tokio::test]
async fn what_a_probe_resolves_is_counted_as_the_probes() {
    let terms = "[[operation]]\nname = \"charge\"\npath = \"/charges\"\n\
        [operation.probe]\nurl = \"/by/{operation_id}\"\n";
    let mut world = World::configured(terms, |seen| {
        if seen.line.starts_with("GET /by/") {
            Act::Say(response("200 OK", &[], "charged"))
        } else {
            Act::End
        }
    })
    .await;
    let admin = world.gateway.admin();
    assert_eq!(world.charge(5).await.status, 502);
    let probed = "idempotency_reconciled_total{state=\"SUCCEEDED\",by=\"probe\"}";
    until(async || (number(admin, probed).await == Some(1.0)).then_some(())).await;
    let log = world.log();
    let line = log.lines().find(|line| line.contains("a probe resolved an unknown outcome")).expect("a line");
    assert!(line.contains("operation=\"charge\""), "{line}");
}

/// Starts a gateway with JSON log lines on an unsafe store, and returns its output after a shutdown: standard output,
/// and the lines on standard error.
async fn lines_of(flags: &[&str], use_it: impl AsyncFnOnce(SocketAddr)) -> (String, Vec<Value>) {
    let upstream = Upstream::start(upstream_script).await;
    let scratch = Scratch::new();
    scratch.configure(&format!(
        "[upstream]\nurl = \"http://{}\"\n[store]\nurl = 'memory:'\n{CHARGES}",
        upstream.address
    ));
    let log = scratch.write("lines.json", "");
    // The address is chosen beforehand: if only errors are logged, nothing prints it.
    let reserved = ReservedAddress::new();
    let address = reserved.address();
    let process = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", &address.to_string(), "--admin", "off", "--config"])
        .arg(scratch.config())
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&log).expect("a file"))
        .spawn()
        .expect("semel starts");
    let lines = || -> Vec<Value> {
        let written = std::fs::read_to_string(&log).expect("text");
        // The last line may be incomplete.
        let complete_lines = written.rsplit_once('\n').map_or("", |(complete_lines, _)| complete_lines);
        complete_lines
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect()
    };
    until(async || tokio::net::TcpStream::connect(address).await.ok()).await;
    use_it(address).await;
    let status = Command::new("kill").args(["-TERM", &process.id().to_string()]).status();
    assert!(status.expect("kill runs").success());
    let output = tokio::task::spawn_blocking(|| process.wait_with_output()).await.expect("no panic");
    let output = output.expect("it ends");
    assert!(output.status.success(), "{output:?}");
    (String::from_utf8(output.stdout).expect("text"), lines())
}

#[tokio::test]
async fn in_json_the_start_up_text_is_log_lines() {
    let (stdout, lines) = lines_of(&["--log", "json"], async |address| {
        assert_eq!(ask(refund("broken"), address).await.status, 502);
    })
    .await;
    assert_eq!(stdout, "", "standard output must be empty");
    let about: Vec<_> = lines.iter().filter_map(|line| line["fields"]["about"].as_str()).collect();
    for part in ["listening", "upstream", "operation", "guarantee", "store", "callers"] {
        assert!(about.contains(&part), "{part} is not in {about:?}");
    }
    let danger = lines.iter().find(|line| line["fields"]["severity"] == "danger").expect("a danger");
    assert_eq!((&danger["level"], &danger["fields"]["code"]), (&json!("ERROR"), &json!("memory-only")));
    assert!(danger["fields"]["fix"].as_str().is_some_and(|fix| !fix.is_empty()), "{danger}");
    let note = lines.iter().find(|line| line["fields"]["severity"] == "note").expect("a note");
    assert_eq!(note["level"], "INFO");

    // Each field has one meaning: the operation as configured, and the operation ID.
    let is_id = |value: &Value| value.as_str().is_some_and(|text| text.len() == 36 && text.contains('-'));
    for line in &lines {
        let fields = &line["fields"];
        assert!(!is_id(&fields["operation"]), "{line}");
        assert!(fields.get("operation_id").is_none_or(is_id), "{line}");
    }
    let failed: Vec<_> = lines.iter().filter(|line| line["fields"].get("operation_id").is_some()).collect();
    assert!(failed.len() >= 2, "the upstream's failure and the request: {failed:?}");
    assert!(!lines.iter().any(|line| line["target"] == "semel::requests"), "the request log is off");
}

#[tokio::test]
async fn a_start_that_fails_is_a_json_line_too() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--listen", &address, "--admin", "off", "--store", "memory:", "--log", "json"])
        .args(["--upstream", "http://127.0.0.1:1"])
        .output()
        .expect("semel runs");
    assert_eq!(output.status.code(), Some(1));
    let output = String::from_utf8(output.stderr).expect("text");
    let line: Value = serde_json::from_str(output.trim()).unwrap_or_else(|_| panic!("{output}"));
    assert_eq!(line["level"], "ERROR");
    assert!(line["fields"]["message"].as_str().is_some_and(|text| text.contains(&address)), "{line}");
}

#[tokio::test]
async fn the_request_log_has_every_request_and_no_secret() {
    // Even if only errors are logged: the request log is a separate setting.
    let flags = ["--log", "json", "--log-level", "error", "--log-requests"];
    let (_, lines) = lines_of(&flags, async |address| {
        for (request, status) in [
            (charge(5), 201),
            (charge(5), 201),
            (charge(6), 422),
            (TestRequest::post("/charges?card=of-carol").json("{\"pan\":\"of-carol\"}"), 201),
            (TestRequest::get("/accounts/carols?token=s3cret").with("authorization", "Bearer s3cret"), 201),
            (refund("broken"), 502),
            // Not protected: the gateway itself answers, and the layer reports nothing.
            (TestRequest::get("/x/refunds/broken"), 502),
        ] {
            assert_eq!(ask(request, address).await.status, status);
        }
    })
    .await;
    let served: Vec<&Value> =
        lines.iter().filter(|line| line["target"] == "semel::requests").map(|line| &line["fields"]).collect();
    let logged: Vec<_> = served
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default();
            (text("method"), text("operation"), line["status"].as_u64().unwrap_or(0), text("outcome"))
        })
        .collect();
    assert_eq!(
        logged,
        [
            ("POST", "charge", 201, "ran"),
            ("POST", "charge", 201, "replayed"),
            ("POST", "charge", 422, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST"),
            ("POST", "charge", 201, "unprotected"),
            ("GET", "other", 201, "passed"),
            ("POST", "refund", 502, "UPSTREAM_FAILED"),
            ("GET", "other", 502, "UPSTREAM_FAILED"),
        ]
    );
    let ids: Vec<_> = served.iter().map(|line| line["operation_id"].as_str()).collect();
    assert!(ids[0].is_some() && ids[0] == ids[1] && ids[0] == ids[2] && ids[5].is_some(), "{ids:?}");
    assert_eq!((ids[3], ids[4]), (None, None));
    assert!(served.iter().all(|line| line["duration_ms"].is_u64()), "{served:?}");
    let all = format!("{lines:?}");
    // Not digits alone: a port, a time or an ID may contain them by chance.
    for secret in [KEY, "s3cret", "carols", "of-carol", "/charges"] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}
