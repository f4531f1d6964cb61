//! Twenty rounds of kill -9 under mixed load, and the state afterwards.
//!
//! The upstream and the clients run in this process, so their counts of effects and acknowledgements survive every
//! kill.

use crate::store::{StoreKind, on_every_store};
use crate::world::{Gateway, KEY, Scratch, until, within};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Seen, Upstream, charged, response, says};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

const ROUNDS: usize = 20;
const CLIENTS: usize = 12;
const FLAGS: [&str; 4] = ["--lease", "1s", "--wait", "300ms"];

/// How often each intent took effect, according to the upstream.
type Effects = Arc<Mutex<BTreeMap<usize, usize>>>;

/// The upstream mostly charges, and fails in each possible way for some requests.
fn upstream_script(effects: Effects) -> impl Fn(&Seen) -> Act + Send + Sync {
    let refused = Mutex::new(BTreeMap::new());
    let is_first = move |intent: usize| {
        let mut refused = refused.lock().expect("not poisoned");
        let times = refused.entry(intent).or_insert(0);
        *times += 1;
        *times == 1
    };
    move |seen| {
        let Some(intent) = intent_of(seen) else { return charged(seen) };
        match intent % 10 {
            6 if is_first(intent) => return says("429 Too Many Requests")(seen),
            9 if is_first(intent) => {
                return Act::Say(response("503 Service Unavailable", &[("retry-after", "1")], "later"));
            }
            _ => {}
        }
        *effects.lock().expect("not poisoned").entry(intent).or_insert(0) += 1;
        let act = match intent % 10 {
            7 => says("500 Internal Server Error")(seen),
            8 => Act::End,
            _ => charged(seen),
        };
        // Some take longer, so that a kill can interrupt them.
        if intent.is_multiple_of(3) { Act::Later(Duration::from_millis(10), Box::new(act)) } else { act }
    }
}

fn intent_of(seen: &Seen) -> Option<usize> {
    let key = seen.header("idempotency-key")?;
    Some(key.rsplit('-').next()?.parse().expect("a number"))
}

fn ask(intent: usize) -> TestRequest {
    let ask = TestRequest::post("/charges").key(&format!("{KEY}-{intent}"));
    if intent % 20 == 18 {
        // Without a body, as proxies like to resend it.
        return ask;
    }
    let padding = "x".repeat(if intent.is_multiple_of(13) { 200_000 } else { intent % 50 });
    ask.json(&format!("{{\"i\":{intent},\"p\":\"{padding}\"}}"))
}

fn is_store_unavailable(reply: &Reply) -> bool {
    reply.code().as_deref() == Some("IDEMPOTENCY_STORE_UNAVAILABLE")
}

/// What all clients know.
struct Crowd {
    address: watch::Sender<SocketAddr>,
    intents: AtomicUsize,
    /// The responses that were acknowledged as stored.
    acknowledged: Mutex<BTreeMap<usize, Reply>>,
    broken: AtomicUsize,
    is_over: AtomicBool,
}

impl Crowd {
    /// One client: new intents, retries of old ones, misuse of known keys, requests without a key, and early
    /// disconnects. Fails on a response that breaks the contract.
    async fn client(self: Arc<Self>, number: usize) -> Result<(), String> {
        let mut step = number;
        while !self.is_over.load(Ordering::SeqCst) {
            step += CLIENTS;
            let newest = self.intents.load(Ordering::SeqCst);
            let old = newest.saturating_sub(1 + step.wrapping_mul(0x9e37_79b9) % 60);
            match step % 17 {
                0 => drop(self.send(TestRequest::get("/unprotected")).await),
                1 => self.leave_early(ask(old)).await,
                2 if self.answer_to(old).is_some() => self.misuse(old).await?,
                3..=9 => self.send_until_answered(old).await?,
                _ => self.send_until_answered(self.intents.fetch_add(1, Ordering::SeqCst)).await?,
            }
        }
        Ok(())
    }

    /// Sends until there is a response. Every response must fit the contract, and an acknowledged one must never
    /// change.
    async fn send_until_answered(&self, intent: usize) -> Result<(), String> {
        let known = self.answer_to(intent);
        let reply = self.send(ask(intent)).await;
        if reply.is_acknowledged() {
            let mut acknowledged = self.acknowledged.lock().expect("not poisoned");
            let first = acknowledged.entry(intent).or_insert_with(|| reply.clone());
            let is_same = reply.status == 201 && reply.kept() == first.kept();
            return if is_same { Ok(()) } else { Err(format!("{intent}: {reply:?} besides {first:?}")) };
        }
        let is_explained = match reply.code().as_deref() {
            _ if known.is_some() => false,
            Some(
                "IDEMPOTENCY_REQUEST_IN_PROGRESS" | "IDEMPOTENCY_OUTCOME_UNKNOWN" | "UPSTREAM_UNREACHABLE",
            ) => true,
            Some("UPSTREAM_FAILED") => intent % 10 == 8,
            Some(_) => false,
            None => [(6, 429), (9, 503), (7, 500)].contains(&(intent % 10, reply.status)),
        };
        if is_explained { Ok(()) } else { Err(format!("{intent}: {reply:?} after {known:?}")) }
    }

    /// Sends another payload with a key whose outcome is known.
    async fn misuse(&self, intent: usize) -> Result<(), String> {
        let reply = self.send(TestRequest::post("/charges").key(&format!("{KEY}-{intent}")).json("{}")).await;
        let is_refused = reply.code().as_deref() == Some("IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST");
        if is_refused { Ok(()) } else { Err(format!("{intent}, misused: {reply:?}")) }
    }

    fn answer_to(&self, intent: usize) -> Option<Reply> {
        self.acknowledged.lock().expect("not poisoned").get(&intent).cloned()
    }

    /// Sends until a gateway answers; after a kill, at the address of the next gateway. A disk that stands still for a
    /// second makes the store unavailable, which clients are told to retry.
    async fn send(&self, ask: TestRequest) -> Reply {
        let (mut address, mut refused) = (self.address.subscribe(), 0);
        loop {
            let to = *address.borrow_and_update();
            match within(ask.clone().send(to)).await {
                Ok(reply) if refused < 100 && is_store_unavailable(&reply) => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
                Ok(reply) => return reply,
                Err(_) => self.broken.fetch_add(1, Ordering::SeqCst),
            };
            within(address.changed()).await.expect("the next address");
        }
    }

    async fn leave_early(&self, ask: TestRequest) {
        let to = *self.address.borrow();
        let sent = async {
            let mut stream = TcpStream::connect(to).await?;
            stream.write_all(&ask.raw()).await?;
            io::Result::Ok(())
        };
        drop(within(sent).await);
    }
}

/// Loads, kills and restarts; then checks every intent again. Returns the counts.
async fn rounds(kind: StoreKind, store: impl Fn(&Scratch) -> String) -> Result<String, String> {
    let (scratch, effects) = (Scratch::on(kind), Effects::default());
    let upstream = Upstream::start(upstream_script(Arc::clone(&effects))).await;
    let start = || Gateway::start_on(&store(&scratch), &scratch, upstream.address, &FLAGS);
    let mut gateway = start();
    let crowd = Arc::new(Crowd {
        address: watch::Sender::new(gateway.address),
        intents: AtomicUsize::new(0),
        acknowledged: Mutex::default(),
        broken: AtomicUsize::new(0),
        is_over: AtomicBool::new(false),
    });
    let mut clients: JoinSet<_> = (0..CLIENTS).map(|number| Arc::clone(&crowd).client(number)).collect();
    for round in 0..ROUNDS {
        let seen = upstream.seen_count();
        tokio::select! {
            () = upstream.has_seen(seen + 15 + 7 * (round % 5)) => {}
            // A client ends early only to report a violation.
            Some(ended) = clients.join_next() => ended.expect("no panic")?,
        }
        gateway.kill();
        gateway = start();
        crowd.address.send_replace(gateway.address);
    }
    crowd.is_over.store(true, Ordering::SeqCst);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no panic")?;
    }
    audit(&crowd, &effects).await
}

/// Requests every intent again.
async fn audit(crowd: &Crowd, effects: &Effects) -> Result<String, String> {
    let count = |intent: usize| effects.lock().expect("not poisoned").get(&intent).copied().unwrap_or(0);
    let intents = crowd.intents.load(Ordering::SeqCst);
    let (mut replayed, mut unknown, mut ran) = (0, 0, 0);
    for intent in 0..intents {
        let mut before = 0;
        let last = until(async || {
            before = count(intent);
            let reply = crowd.send(ask(intent)).await;
            let is_settled = match reply.code().as_deref() {
                _ if count(intent) > 1 => true,
                Some("IDEMPOTENCY_REQUEST_IN_PROGRESS" | "UPSTREAM_UNREACHABLE") => false,
                None => ![429, 503].contains(&reply.status),
                Some(_) => true,
            };
            is_settled.then_some(reply)
        })
        .await;
        let acknowledged = crowd.answer_to(intent);
        let after = count(intent);
        let is_unknown = last.code().as_deref() == Some("IDEMPOTENCY_OUTCOME_UNKNOWN");
        let is_sound = match &acknowledged {
            _ if after > 1 => false,
            Some(first) => last.is_replay() && last.kept() == first.kept() && after == 1,
            None if last.is_replay() => last.status == 201 && last.is_acknowledged() && after == 1,
            None if is_unknown => before == after,
            // It was never claimed, or had no effect.
            None => before == 0 && after == 1,
        };
        if !is_sound {
            return Err(format!(
                "{intent}: {before} then {after} effects, {acknowledged:?}, at last {last:?}"
            ));
        }
        replayed += usize::from(last.is_replay());
        unknown += usize::from(is_unknown);
        ran += usize::from(!last.is_replay() && !is_unknown);
    }
    let acknowledged = crowd.acknowledged.lock().expect("not poisoned").len();
    let broken = crowd.broken.load(Ordering::SeqCst);
    if acknowledged < ROUNDS || broken < ROUNDS {
        return Err(format!("{acknowledged} acknowledged and {broken} broken: that was no load"));
    }
    Ok(format!(
        "{intents} intents, {acknowledged} acknowledged, {broken} exchanges broken by {ROUNDS} kills; \
         at last {replayed} replayed, {unknown} unknown, {ran} run only then"
    ))
}

async fn twenty_kills_leave_no_key_with_two_effects(kind: StoreKind) {
    let found = rounds(kind, |scratch| scratch.store().url()).await;
    println!("{}", found.expect("the promise holds"));
}

async fn a_store_that_forgets_is_found_out_by_the_same_rounds(kind: StoreKind) {
    let found = rounds(kind, |_| "memory:".to_owned()).await;
    assert!(found.is_err(), "a store that forgets a key must cause a second effect: {found:?}");
}

on_every_store! {
    twenty_kills_leave_no_key_with_two_effects,
    a_store_that_forgets_is_found_out_by_the_same_rounds,
}
