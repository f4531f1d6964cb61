//! How many requests per second a service answers.

use crate::client::Client;
use crate::service::{Kind, Service};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The services take turns, so that other load on the machine affects all of them equally.
pub(crate) async fn compare(
    prefix: &str,
    clients: usize,
    span: Duration,
    rounds: usize,
) -> Result<(), Box<dyn Error>> {
    let mut services = Vec::new();
    for kind in Kind::ALL {
        services.push((kind, Service::start(kind, prefix).await?, Vec::new(), Vec::new()));
    }
    for _ in 0..rounds {
        for (_, service, firsts, replays) in &mut services {
            firsts.push(requests_per_second(service.address, clients, span, false).await?);
            replays.push(requests_per_second(service.address, clients, span, true).await?);
        }
    }
    let floor = (median(&services[0].2), median(&services[0].3));
    println!("{clients} clients{:<12} {:>12} {:>8} {:>12} {:>8}", "", "first", "ratio", "replay", "ratio");
    for (kind, _, firsts, replays) in &services {
        let (first, replay) = (median(firsts), median(replays));
        let (first_ratio, replay_ratio) = (first / floor.0, replay / floor.1);
        println!("{:<22} {first:>12.0} {first_ratio:>8.2} {replay:>12.0} {replay_ratio:>8.2}", kind.name());
    }
    Ok(())
}

fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Requests per second: each with a new key, or all with the same one.
async fn requests_per_second(
    to: SocketAddr,
    clients: usize,
    span: Duration,
    is_replay: bool,
) -> Result<f64, Box<dyn Error>> {
    let first = Client::connect(to).await?;
    let kept: Arc<str> = format!("replayed-{:020}", NUMBERS.fetch_add(1, Ordering::Relaxed)).into();
    first.reconnect(to).await?.post("/quick", &kept, "", "{}").await?;
    let (started, mut running) = (Instant::now(), JoinSet::new());
    for _ in 0..clients {
        let (mut client, kept) = (first.reconnect(to).await?, Arc::clone(&kept));
        running.spawn(async move {
            let mut done = 0_u32;
            while started.elapsed() < span {
                let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
                let (fresh, body) = (format!("order-{number:020}"), format!("{{\"n\":{number}}}"));
                let (key, body) = if is_replay { (&*kept, "{}") } else { (&*fresh, &*body) };
                let reply = client.post("/quick", key, "", body).await.map_err(|error| error.to_string())?;
                if reply.status != 201 {
                    return Err(format!("{}: {}", reply.status, reply.body));
                }
                done += 1;
            }
            Ok(done)
        });
    }
    let mut sum = 0.0;
    for done in running.join_all().await {
        sum += f64::from(done?);
    }
    Ok(sum / started.elapsed().as_secs_f64())
}
