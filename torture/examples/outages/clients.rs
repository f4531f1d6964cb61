//! Clients that send new keys, and repeat each until it is answered for good.

use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

const CLIENTS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
/// How often a key is repeated after the end.
const LAST_TRIES: u32 = 100;

pub(crate) fn request(key: &str) -> TestRequest {
    TestRequest::post("/charges").key(key).json("{\"amount\":5}")
}

/// What the clients were told.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) acknowledged: Vec<String>,
    pub(crate) unknown: usize,
    pub(crate) unanswered: usize,
}

pub(crate) struct Clients {
    running: JoinSet<Answers>,
    is_over: Arc<AtomicBool>,
}

impl Clients {
    pub(crate) fn start(gateways: &[SocketAddr]) -> Self {
        let (mut running, is_over) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for client in 0..CLIENTS {
            running.spawn(send(client, gateways.to_vec(), Arc::clone(&is_over)));
        }
        Self { running, is_over }
    }

    /// Lets each client finish its last key.
    pub(crate) async fn stop(self) -> Answers {
        self.is_over.store(true, Ordering::SeqCst);
        let mut all = Answers::default();
        for answers in self.running.join_all().await {
            all.acknowledged.extend(answers.acknowledged);
            all.unknown += answers.unknown;
            all.unanswered += answers.unanswered;
        }
        all
    }
}

/// Tries the gateways in turn, as a client behind a load balancer does.
async fn send(client: usize, gateways: Vec<SocketAddr>, is_over: Arc<AtomicBool>) -> Answers {
    let (mut answers, mut turn) = (Answers::default(), client);
    for number in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("charge-{number}-of-client-{client}");
        let mut tries_left = LAST_TRIES;
        loop {
            turn += 1;
            let sent = request(&key).send(gateways[turn % gateways.len()]);
            let reply = tokio::time::timeout(PATIENCE, sent).await.ok().and_then(Result::ok);
            if reply.as_ref().is_some_and(Reply::is_acknowledged) {
                answers.acknowledged.push(key);
                break;
            }
            if reply.is_some_and(|reply| reply.code().as_deref() == Some("IDEMPOTENCY_OUTCOME_UNKNOWN")) {
                answers.unknown += 1;
                break;
            }
            if is_over.load(Ordering::SeqCst) {
                tries_left -= 1;
                if tries_left == 0 {
                    answers.unanswered += 1;
                    break;
                }
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
    answers
}
