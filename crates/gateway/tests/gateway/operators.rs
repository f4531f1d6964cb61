//! What somebody on call needs to see: who was refused, how old doubts are, certificates, reloads, sizes.

use crate::admin::new_token;
use crate::secure::Authority;
use crate::world::{Gateway, KEY, Scratch, World, charge, until, within};
use semel::archive::rfc3339;
use semel::core::time::Time;
use semel_test_support::ReservedAddress;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, charged};
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const TERMS: &str = "[[operation]]\nname = \"charge\"\npath = \"/charges\"\n";

async fn page(metrics: TestRequest, admin: SocketAddr) -> String {
    within(metrics.send(admin)).await.expect("an answer").text().to_owned()
}

/// The value of one series; `None` if it does not exist.
async fn number(admin: SocketAddr, series: &str) -> Option<f64> {
    value(admin, series).await.map(|value| value.parse().expect("a number"))
}

async fn value(admin: SocketAddr, series: &str) -> Option<String> {
    let page = page(TestRequest::get("/metrics"), admin).await;
    page.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')).map(str::to_owned)
}

#[tokio::test]
async fn a_request_without_the_role_is_logged_and_counted() {
    let (reader, reads) = new_token("reader", &["read"]);
    let mut world = World::configured(&reads, charged).await;
    let admin = world.gateway.admin();
    let id = world.charge(7).await.header("operation-id").expect("an id").to_owned();
    let path = format!("/v1/records/{id}/release");
    let release = TestRequest::post(&path).json("{\"reason\":\"a test\"}").with("authorization", &reader);
    assert_eq!(within(release.send(admin)).await.expect("an answer").status, 403);
    for refused in
        [TestRequest::get("/metrics"), TestRequest::get("/metrics").with("authorization", "Bearer no")]
    {
        assert_eq!(within(refused.send(admin)).await.expect("an answer").status, 401);
    }
    let log = until(async || Some(world.log()).filter(|log| log.contains("was refused"))).await;
    let lines: Vec<_> =
        log.lines().filter(|line| line.contains("to the admin address was refused")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    for part in
        ["semel::audit", "who=\"reader\"", "method=\"POST\"", &path, "reason=\"role\"", "address=127.0.0.1"]
    {
        assert!(lines[0].contains(part), "{part} is not in {}", lines[0]);
    }
    let metrics = page(TestRequest::get("/metrics").with("authorization", &reader), admin).await;
    for (reason, count) in [("role", 1), ("no_token", 1), ("wrong_token", 1), ("rate", 0), ("address", 0)] {
        let line = format!("semel_admin_refusals_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
    }
}

#[tokio::test]
async fn what_is_not_http_is_counted_at_the_admin_address_too() {
    let mut world = World::configured("", charged).await;
    let admin = world.gateway.admin();
    let mut tcp = tokio::net::TcpStream::connect(admin).await.expect("it listens");
    tcp.write_all(b"no HTTP at all\r\n\r\n").await.expect("sent");
    let mut answer = Vec::new();
    within(tcp.read_to_end(&mut answer)).await.expect("an answer");
    assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(number(admin, "semel_admin_refusals_total{reason=\"unreadable\"}").await, Some(1.0));
    assert_eq!(number(admin, "idempotency_refusals_total{code=\"MALFORMED_REQUEST\"}").await, Some(0.0));
}

#[tokio::test]
async fn the_oldest_doubt_and_the_size_of_the_store_are_shown() {
    let mut world = World::configured(TERMS, |_| Act::End).await;
    let admin = world.gateway.admin();
    let size = until(async || number(admin, "idempotency_store_bytes{what=\"data\"}").await).await;
    assert!(size > 0.0, "{size}");
    assert!(number(admin, "idempotency_store_bytes{what=\"log\"}").await.is_some());
    let oldest = "idempotency_unknown_oldest_timestamp_seconds{operation=\"charge\"}";
    assert_eq!(number(admin, oldest).await, None, "nothing is unknown");
    let reply = world.charge(5).await;
    assert_eq!(reply.status, 502);
    let id = reply.header("operation-id").expect("an id").to_owned();
    let since = until(async || value(admin, oldest).await).await;
    let since = Time::from_millis(since.parse::<u64>().expect("whole seconds") * 1_000);
    let record = within(TestRequest::get(&format!("/v1/records/{id}")).send(admin)).await.expect("an answer");
    let shown = record.json()["doubt"]["since"].as_str().expect("a time").to_owned();
    assert_eq!(shown[..19], rfc3339::text(since)[..19], "to the second");
    let verdict = "{\"outcome\":\"applied\",\"reason\":\"it is in the ledger\"}";
    let resolved = TestRequest::post(&format!("/v1/records/{id}/resolve")).json(verdict);
    assert_eq!(within(resolved.send(admin)).await.expect("an answer").status, 200);
    until(async || number(admin, oldest).await.is_none().then_some(())).await;
}

#[tokio::test]
async fn records_of_shadow_mode_are_counted_under_their_operation() {
    let terms = format!("{TERMS}mode = \"shadow\"\n");
    let mut world = World::configured(&terms, charged).await;
    let admin = world.gateway.admin();
    assert_eq!(world.charge(7).await.status, 201);
    let counted = "idempotency_records{operation=\"charge\",state=\"SUCCEEDED\"}";
    until(async || (number(admin, counted).await == Some(1.0)).then_some(())).await;
    assert_eq!(
        number(admin, "idempotency_records{operation=\"other\",state=\"SUCCEEDED\"}").await,
        Some(0.0)
    );
}

#[tokio::test]
async fn the_line_of_an_unreachable_service_names_the_key() {
    let scratch = Scratch::new();
    let nobody = ReservedAddress::new();
    let gateway = Gateway::start(&scratch, nobody.address(), &[]);
    let reply = within(charge(5).send(gateway.address)).await.expect("an answer");
    assert_eq!(reply.code().as_deref(), Some("UPSTREAM_UNREACHABLE"));
    let is_line = |line: &&str| line.contains("outcome=\"UPSTREAM_UNREACHABLE\"");
    let line = until(async || scratch.logged().lines().find(is_line).map(str::to_owned)).await;
    assert!(line.contains(" key=\"") && line.contains("operation_id=") && !line.contains(KEY), "{line}");
}

#[tokio::test]
async fn certificates_and_reloads_are_shown() {
    let scratch = Scratch::new();
    let ours = Authority::new("ours");
    let files = |year: i32| {
        let server = ours.server_until(year);
        [("cert.pem", &server.pem), ("key.pem", &server.key_pem)]
            .map(|(name, text)| scratch.write(name, text).display().to_string())
    };
    let [certificate, key] = files(2400);
    let terms = format!("{TERMS}[listen]\ntls_cert = '{certificate}'\ntls_key = '{key}'\n");
    let mut world = World::configured(&terms, charged).await;
    let admin = world.gateway.admin();
    let expiry = "semel_certificate_expiry_timestamp_seconds{use=\"listen\"}";
    let (is_fine, reloaded_at) =
        ("semel_config_last_reload_successful", "semel_config_last_reload_success_timestamp_seconds");
    let year = |year| if year == 2400 { 13_569_465_600.0 } else { 13_601_088_000.0 };
    assert_eq!(number(admin, expiry).await, Some(year(2400)));
    assert_eq!(number(admin, is_fine).await, Some(1.0));
    let started_at = number(admin, reloaded_at).await.expect("a time");

    world.reconfigure("[[operation]]\nname = 5\n");
    until(async || (number(admin, is_fine).await == Some(0.0)).then_some(())).await;
    assert_eq!(
        number(admin, reloaded_at).await,
        Some(started_at),
        "the configuration in force is that of the start"
    );
    let [_, _] = files(2401);
    world.reconfigure(&terms);
    until(async || (number(admin, is_fine).await == Some(1.0)).then_some(())).await;
    assert_eq!(number(admin, expiry).await, Some(year(2401)), "the renewed certificate");
    assert!(number(admin, reloaded_at).await > Some(started_at));
}
