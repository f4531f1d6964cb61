//! Outages of the store's server under two gateways: what each second brought, and whether a key had two effects.
//!
//! `cargo xtask torture outages [--rounds N] [--only NAME]`
//!
//! For every second a line says what `/readyz` reported and what a request with a new key got, on each gateway. Meanwhile
//! clients send new keys, and repeat each until it is answered for good. Afterwards every key was effective once at most,
//! and every acknowledged one is replayed, or refused where the server has lost it.

mod clients;
mod disk;
mod faults;
mod gateway;

use clap::{Parser, ValueEnum as _};
use clients::{Answers, Clients};
use faults::Outage;
use gateway::Gateway;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Upstream, charged};
use semel_test_support::{Reply, ScratchDir};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The outage begins and ends after this many seconds, and the round ends after the last.
const BEGINS: u32 = 4;
const ENDS: u32 = 16;
const SECONDS: u32 = 26;
/// How long a sample waits for an answer: longer than a gateway takes to refuse.
const PATIENCE: Duration = Duration::from_secs(6);

/// Outages of the store's server under two gateways: what each second brought, and whether a key had two effects.
#[derive(Debug, Parser)]
#[command(
    bin_name = "cargo xtask torture outages",
    override_usage = "cargo xtask torture outages [OPTIONS]",
    args_override_self = true
)]
struct Options {
    /// The gateway
    #[arg(long, value_name = "PROGRAM", hide = true)]
    semel: PathBuf,
    /// How many times each outage happens
    #[arg(long, value_name = "N", default_value = "1")]
    rounds: u32,
    /// Only this outage
    #[arg(long, value_name = "NAME")]
    only: Option<Outage>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let mut failed = 0;
    for round in 1..=options.rounds {
        for &outage in Outage::value_variants() {
            if options.only.is_none_or(|only| only == outage) {
                println!("\nround {round}: {}", outage.name());
                failed += u32::from(!run(&options, outage).await);
            }
        }
    }
    println!("\n{failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One outage. Returns whether every promise was kept.
async fn run(options: &Options, outage: Outage) -> bool {
    let folder = ScratchDir::new("outage");
    let mut servers = outage.start(&folder);
    let upstream = Upstream::start(charged).await;
    let mut gateways = Vec::new();
    for number in 0..2 {
        gateways
            .push(Gateway::start(&options.semel, &folder, number, &servers.url(), upstream.address).await);
    }
    let clients = Clients::start(&gateways.iter().map(|gateway| gateway.address).collect::<Vec<_>>());
    let mut samples = Vec::new();
    for second in 0..SECONDS {
        let state = match second {
            BEGINS => {
                servers = tokio::task::spawn_blocking(move || servers.begin()).await.expect("no panic");
                "begins"
            }
            ENDS => {
                servers = tokio::task::spawn_blocking(move || servers.end()).await.expect("no panic");
                "ends"
            }
            _ if (BEGINS..ENDS).contains(&second) => "out",
            _ => "",
        };
        let asked = |number: usize| {
            let key = format!("sample-{second}-of-gateway-{number}");
            tokio::spawn(sample(gateways[number].admin, gateways[number].address, key))
        };
        samples.push((second, state, asked(0), asked(1)));
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    println!("{:>3} {:7} {:<46} {:<46}", "s", "", "first gateway", "second gateway");
    for (second, state, one, two) in samples {
        let (one, two) = (one.await.expect("no panic"), two.await.expect("no panic"));
        println!("{second:>3} {state:7} {one:<46} {two:<46}");
    }
    let answers = clients.stop().await;
    verdict(outage, &answers, &gateways, &upstream).await
}

async fn sample(admin: SocketAddr, address: SocketAddr, key: String) -> String {
    let ready = answer(TestRequest::get("/readyz"), admin);
    let keyed = answer(clients::request(&key), address);
    let (ready, keyed) = tokio::join!(ready, keyed);
    let shown = |reply: Option<Reply>| match reply {
        None => "no answer".to_owned(),
        Some(reply) => match reply.code() {
            Some(code) => format!("{} {}", reply.status, code.trim_start_matches("IDEMPOTENCY_")),
            None => reply.status.to_string(),
        },
    };
    let ready = ready.map_or_else(|| "no answer".to_owned(), |reply| reply.status.to_string());
    format!("ready {ready}, key {}", shown(keyed))
}

async fn answer(request: TestRequest, address: SocketAddr) -> Option<Reply> {
    tokio::time::timeout(PATIENCE, request.send(address)).await.ok()?.ok()
}

/// Checks what the clients were told against what the service has done.
async fn verdict(outage: Outage, answers: &Answers, gateways: &[Gateway], upstream: &Upstream) -> bool {
    let mut effects: BTreeMap<String, u32> = BTreeMap::new();
    for seen in upstream.seen() {
        let key = seen.header("idempotency-key").unwrap_or_default().trim_matches('"').to_owned();
        *effects.entry(key).or_default() += 1;
    }
    let twice: Vec<_> = effects.iter().filter(|(_, count)| **count > 1).map(|(key, _)| key).collect();
    let (mut replayed, mut refused, mut lost) = (0, 0, Vec::new());
    for (number, key) in answers.acknowledged.iter().enumerate() {
        let reply = clients::request(key).send(gateways[number % gateways.len()].address).await;
        match reply {
            Ok(reply) if reply.is_replay() => replayed += 1,
            Ok(reply) if outage.loses_data() && reply.status == 503 => refused += 1,
            _ => lost.push(key),
        }
    }
    println!(
        "{} keys acknowledged, {} unknown, {} never answered; {replayed} replayed afterwards, {refused} refused; \
         twice: {twice:?}; lost: {lost:?}",
        answers.acknowledged.len(),
        answers.unknown,
        answers.unanswered,
    );
    let has_recovered = outage.loses_data() || answers.unanswered == 0;
    twice.is_empty() && lost.is_empty() && has_recovered && !answers.acknowledged.is_empty()
}
