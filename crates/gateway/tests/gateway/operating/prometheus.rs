//! Prometheus scrapes a running gateway; its rules fire on real failures.

use super::text;
use crate::tools;
use crate::world::{Gateway, Scratch, until};
use semel_test_support::ScratchDir;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, response};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

/// A Prometheus that scrapes one gateway every second. Stopped when the test ends.
struct Prometheus {
    process: Child,
    address: SocketAddr,
    _folder: ScratchDir,
}

impl Prometheus {
    /// `None` if Prometheus is not installed.
    fn start(scraped: SocketAddr) -> Option<Self> {
        let program = tools::program("prometheus")?;
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "prometheus");
        folder.write("alerts.yml", without_delays(&text("docs/operations/alerts.yml")));
        let settings = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: [alerts.yml]\n\
             scrape_configs: [{{job_name: semel, static_configs: [{{targets: ['{scraped}']}}]}}]\n"
        );
        folder.write("prometheus.yml", settings);
        let mut process = Command::new(program)
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--web.listen-address=127.0.0.1:0",
            ])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Prometheus starts");
        let mut lines = BufReader::new(process.stderr.take().expect("it was asked for")).lines();
        let address = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("msg=\"Listening on\" address=")?;
            address.split(' ').next()?.parse().ok()
        });
        // Keeps reading: a program that cannot log may exit.
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.expect("Prometheus says where it listens");
        Some(Self { process, address, _folder: folder })
    }

    /// It listens before it can answer.
    async fn is_ready(&self) {
        until(async || {
            let reply = TestRequest::get("/-/ready").send(self.address).await;
            reply.is_ok_and(|reply| reply.status == 200).then_some(())
        })
        .await;
    }

    async fn get(&self, path: &str) -> Value {
        let reply = TestRequest::get(path).send(self.address).await.expect("an answer");
        let answer = reply.json();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].clone()
    }

    /// The result of a query.
    async fn query(&self, query: &str) -> Vec<Value> {
        let escaped: Vec<_> = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let escaped = escaped.concat();
        let data = self.get(&format!("/api/v1/query?query={escaped}")).await;
        data["result"].as_array().cloned().unwrap_or_default()
    }

    /// The names of the firing alerts, without the alert about this machine's disk: `alerts_test.yml` tests it, and
    /// here a single slow write would trigger it.
    async fn firing(&self) -> BTreeSet<String> {
        let data = self.get("/api/v1/alerts").await;
        let alerts = data["alerts"].as_array().into_iter().flatten();
        let firing = alerts.filter(|alert| alert["state"] == "firing");
        let names = firing.filter_map(|alert| alert["labels"]["alertname"].as_str());
        names.filter(|name| *name != "SemelStoreSlow").map(str::to_owned).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The rules, without the time that a condition has to last.
fn without_delays(rules: &str) -> String {
    let lines = rules.lines().map(|line| match line.split_once("for: ") {
        Some((before, _)) if before.trim().is_empty() => format!("{before}for: 0s\n"),
        _ => format!("{line}\n"),
    });
    lines.collect()
}

/// The names of our metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '_');
    let ours = ["idempotency_", "semel_", "process_"];
    words.filter(|word| ours.iter().any(|start| word.starts_with(start)) && !word.ends_with('_')).collect()
}

/// Every query of the dashboard, with its variables replaced like in Grafana.
fn dashboard() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&text("docs/operations/grafana.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<_> = targets
        .map(|target| target["expr"].as_str().expect("a query"))
        .map(|query| {
            query.replace("$job", ".*").replace("$operation", ".*").replace("$__rate_interval", "1m")
        })
        .collect();
    assert!(queries.len() > 20 && !queries.iter().any(|query| query.contains('$')), "{queries:?}");
    queries
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prometheus_answers_every_alert_and_dashboard_query() {
    let scratch = Scratch::new();
    let upstream = Upstream::start(|seen| {
        if seen.line.contains("/broken") {
            // Closes after the complete request: its outcome is unknown.
            Act::End
        } else {
            Act::Say(response("201 Created", &[], "charged"))
        }
    })
    .await;
    let mut gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let admin = gateway.admin();
    let Some(prometheus) = Prometheus::start(admin) else { return };
    prometheus.is_ready().await;
    let send = async |path: &str, key: &str, body: String| {
        TestRequest::post(path).key(key).json(&body).send(gateway.address).await.expect("an answer").status
    };
    assert_eq!(send("/charges", "an-ordinary-key-01", "{}".to_owned()).await, 201);
    until(async || (!prometheus.query("idempotency_store_up == 1").await.is_empty()).then_some(())).await;
    assert_eq!(prometheus.firing().await, BTreeSet::new(), "an alert fires before any failure");

    assert_eq!(send("/broken", "a-key-that-breaks-off", "{}".to_owned()).await, 502);
    until(async || prometheus.firing().await.contains("SemelOutcomeUnknown").then_some(())).await;
    let unknown = prometheus.query("idempotency_unknown{operation=\"other\"}").await;
    assert_eq!(unknown[0]["value"][1], "1", "{unknown:?}");

    for amount in 0..30 {
        assert_eq!(send("/charges", "an-ordinary-key-01", format!("{{\"amount\":{amount}}}")).await, 422);
    }
    until(async || prometheus.firing().await.contains("SemelMismatchBurst").then_some(())).await;
    let trouble = ["SemelMismatchBurst", "SemelOutcomeUnknown"].map(str::to_owned);
    assert_eq!(prometheus.firing().await, BTreeSet::from(trouble), "exactly these alerts fire");

    for query in dashboard() {
        prometheus.query(&query).await;
    }
    let shown = TestRequest::get("/metrics").send(admin).await.expect("an answer");
    let known = names(shown.text());
    // Metrics that appear only after an event have their help lines from the beginning.
    let (rules, board, runbook) = (
        text("docs/operations/alerts.yml"),
        text("docs/operations/grafana.json"),
        text("docs/operations/runbook.md"),
    );
    for named in [&rules, &board, &runbook].into_iter().flat_map(|text| names(text)) {
        assert!(known.contains(named), "there is no {named}");
    }
    for named in known.iter().filter(|name| !name.ends_with("_bucket") && !name.ends_with("_sum")) {
        let family = named.strip_suffix("_count").unwrap_or(named);
        assert!(runbook.contains(family), "{named} is not explained");
    }

    let series = [
        "semel_request_seconds",
        "semel_responses_total",
        "semel_upstream_seconds",
        "semel_upstream_errors_total",
    ];
    for name in series {
        assert!(rules.contains(name) && board.contains(name), "{name} has no alert, or no panel");
    }
    for name in known.iter().filter(|name| name.starts_with("idempotency_inbox_")) {
        assert!(names(&board).contains(name), "{name} has no panel");
    }
    // Without a key: no outcome is unknown, but it still is a failure.
    for _ in 0..30 {
        let reply = TestRequest::get("/broken").send(gateway.address).await.expect("an answer");
        assert_eq!(reply.status, 502);
    }
    for alert in ["SemelUpstreamErrors", "SemelServerErrors"] {
        until(async || prometheus.firing().await.contains(alert).then_some(())).await;
    }
    // The alerts fire after a scrape in the middle of the requests, too.
    until(async || {
        let errors = prometheus.query("semel_upstream_errors_total{kind=\"reset\"}").await;
        (errors[0]["value"][1] == "31").then_some(())
    })
    .await;

    gateway.kill();
    until(async || prometheus.firing().await.contains("SemelDown").then_some(())).await;
}
