//! Services that fail, stores that do not answer, and time that passes.

use super::world::{Bodies, Calls, Reply, engine, post};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use semel::core::policy::{Class, Policy};
use semel::core::store::Store;
use semel::core::time::Time;
use semel::quota::{Quotas, Rate};
use semel::{Builder, Case, Engine, Finding, SystemRandom, memory};
use semel_http::{Body, Failure, Layer, RouteSettings, StoreDown};
use semel_testkit::FakeClock;
use semel_testkit::faults::{Call, Fault, Faulty, Question};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tower::{Layer as _, ServiceExt};

type Answer = Result<u16, Failure>;

/// A service under the layer with scripted answers, call by call; the last one repeats.
#[derive(Clone)]
struct ScriptedService {
    layer: Layer,
    calls: Calls,
    answers: Arc<Vec<Answer>>,
}

impl ScriptedService {
    fn new(engine: Engine, settings: RouteSettings, answers: impl Into<Vec<Answer>>) -> Self {
        let layer = Layer::new(engine, settings).expect("valid");
        Self { layer, calls: Calls::default(), answers: Arc::new(answers.into()) }
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Reply {
        let (calls, answers) = (self.calls.clone(), Arc::clone(&self.answers));
        let inner = tower::service_fn(move |_: Request<Body>| {
            let call = calls.one() as usize;
            let answer = *answers.get(call - 1).or(answers.last()).expect("an answer");
            std::future::ready(answer.map(|status| {
                Response::builder()
                    .status(status)
                    .body(Body::from(Bytes::from(format!("answer {call}"))))
                    .expect("a response")
            }))
        });
        let response =
            self.layer.layer(inner).oneshot(request).await.expect("a protected request never fails");
        Reply::read(response).await.expect("a complete body")
    }

    async fn charge(&self) -> Reply {
        self.send(post("/charges").json("{}")).await
    }
}

#[tokio::test]
async fn the_history_of_a_doubt_says_where_it_came_from() {
    for (answer, why) in [
        (Ok(502), "answered 502"),
        (Err(Failure::Broken), "the connection closed, or the response was not valid HTTP"),
        (Err(Failure::TimedOut), "no response in time"),
        (Err(Failure::Unreachable), "no connection, nothing was sent"),
        (Ok(429), "answered 429"),
        (Ok(201), ""),
    ] {
        let engine = engine().await;
        let service = ScriptedService::new(engine.clone(), RouteSettings::default(), [answer]);
        let reply = service.charge().await;
        let id = reply.header("operation-id").expect("an id").parse().expect("an operation id");
        let (_, item) = engine.store().find(id).await.expect("an answer");
        let item = item.expect("it is stored");
        let record = item.record().expect("readable");
        assert_eq!(&*record.history().entries().last().expect("an entry").why, why);
    }
}

#[tokio::test]
async fn a_request_never_sent_is_retried_as_the_next_attempt() {
    for (failure, status) in [(Failure::Unreachable, 502), (Failure::ConnectTimeout, 504)] {
        let service = ScriptedService::new(engine().await, RouteSettings::default(), [Err(failure), Ok(201)]);
        let first = service.charge().await;
        first.is_problem(status, "UPSTREAM_UNREACHABLE", true);
        assert_eq!(first.header("idempotency-expires"), None);
        let retry = service.charge().await;
        assert_eq!((retry.status, retry.text(), retry.is_replay()), (201, "answer 2", false));
    }
}

#[tokio::test]
async fn a_partly_sent_request_is_uncertain() {
    let cases = [(Failure::Broken, 502, "UPSTREAM_FAILED"), (Failure::TimedOut, 504, "UPSTREAM_TIMEOUT")];
    for (failure, status, code) in cases {
        let service = ScriptedService::new(engine().await, RouteSettings::default(), [Err(failure), Ok(201)]);
        service.charge().await.is_problem(status, code, false);
        service.charge().await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
        assert_eq!(service.calls.count(), 1);
    }
}

#[tokio::test]
async fn a_doubt_is_retryable_with_a_reconciler() {
    let store = Arc::new(memory::Store::new());
    let asked = |_: Case| async { Finding::NoAnswer };
    let engine = Engine::builder(store).reconciler("POST /charges", asked).build().await.expect("it answers");
    let service = ScriptedService::new(engine, RouteSettings::default(), [Err(Failure::TimedOut)]);
    service.charge().await.is_problem(504, "UPSTREAM_TIMEOUT", true);
    service.charge().await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", true);
    assert_eq!(service.calls.count(), 1);
}

#[tokio::test]
async fn a_deduplicating_system_is_called_again() {
    let settings = RouteSettings { policy: Policy::new(Class::Downstream), ..RouteSettings::default() };
    let service = ScriptedService::new(engine().await, settings, [Err(Failure::Broken), Ok(409), Ok(201)]);
    service.charge().await.is_problem(502, "UPSTREAM_FAILED", true);
    assert_eq!(service.charge().await.status, 409, "still running over there");
    let third = service.charge().await;
    assert_eq!((third.status, third.text(), third.is_replay()), (201, "answer 3", false));
    assert!(service.charge().await.is_replay());
}

/// A service on `engine` whose route now has `class`.
fn under(engine: &Engine, class: Class, answers: impl Into<Vec<Answer>>) -> ScriptedService {
    ScriptedService::new(
        engine.clone(),
        RouteSettings { policy: Policy::new(class), ..RouteSettings::default() },
        answers,
    )
}

#[tokio::test]
async fn a_doubt_is_retryable_by_its_records_class_not_its_routes() {
    let claimed_external = engine().await;
    let first = under(&claimed_external, Class::External, [Err(Failure::TimedOut)]);
    first.charge().await.is_problem(504, "UPSTREAM_TIMEOUT", false);
    let changed = under(&claimed_external, Class::Downstream, [Ok(201)]);
    changed.charge().await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    assert_eq!(changed.calls.count(), 0);

    let claimed_downstream = engine().await;
    let first = under(&claimed_downstream, Class::Downstream, [Err(Failure::TimedOut)]);
    first.charge().await.is_problem(504, "UPSTREAM_TIMEOUT", true);
    let changed = under(&claimed_downstream, Class::External, [Err(Failure::Broken), Ok(409), Ok(201)]);
    changed.charge().await.is_problem(502, "UPSTREAM_FAILED", true);
    assert_eq!(changed.charge().await.status, 409, "still running over there");
    assert_eq!(changed.charge().await.text(), "answer 3", "uncertain in the record's class, so it ran again");
}

#[tokio::test]
async fn a_doubt_is_not_retryable_past_its_records_window() {
    let world = World::new(|_| false, |builder| builder).await;
    let service = under(&world.engine, Class::Downstream, [Err(Failure::Broken), Ok(201)]);
    service.charge().await.is_problem(502, "UPSTREAM_FAILED", true);
    world.skip(Duration::from_hours(24)).await;
    service.charge().await.is_problem(409, "IDEMPOTENCY_OUTCOME_UNKNOWN", false);
    assert_eq!(service.calls.count(), 1);
}

#[tokio::test]
async fn an_attempt_that_fails_past_its_window_is_not_retryable() {
    let world = World::new(|_| false, |builder| builder).await;
    // The engine adds its skew of 5 s to every policy.
    let policy = Policy::new(Class::Downstream)
        .with(|policy| policy.dedup_window = policy.work_deadline + Duration::from_secs(5 + 1))
        .expect("valid");
    let layer = Layer::new(world.engine.clone(), RouteSettings { policy, ..RouteSettings::default() })
        .expect("valid");
    let clock = world.clock.clone();
    let slow = tower::service_fn(move |_: Request<Body>| {
        clock.advance(Duration::from_secs(1));
        std::future::ready(Err::<Response<Body>, _>(Failure::Broken))
    });
    let response = layer.layer(slow).oneshot(post("/charges").json("{}")).await.expect("an answer");
    let body = response.into_body().collect().await.expect("a complete body").to_bytes();
    let problem: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
    assert_eq!((&problem["code"], &problem["retryable"]), (&"UPSTREAM_FAILED".into(), &false.into()));
}

#[tokio::test]
async fn a_caller_with_too_many_keys_learns_when_to_retry() {
    let rate = Rate { count: NonZeroU32::new(1).expect("not zero"), per: Duration::from_hours(1) };
    let quotas = Quotas { new_per_caller: Some(rate), ..Quotas::default() };
    let engine =
        Engine::builder(Arc::new(memory::Store::new())).quotas(quotas).build().await.expect("it answers");
    let service = ScriptedService::new(engine, RouteSettings::default(), [Ok(201)]);
    assert_eq!(service.charge().await.status, 201);
    let second =
        super::world::request("POST", "/charges").header("idempotency-key", "another-key-than-before-7");
    let refused = service.send(second.json("{}")).await;
    refused.is_problem(429, "IDEMPOTENCY_KEY_QUOTA_EXCEEDED", true);
    let seconds: u64 = refused.header("retry-after").expect("a time").parse().expect("whole seconds");
    assert!(seconds > 0);
    assert!(service.charge().await.is_replay(), "a known key is not new");
}

/// An engine on a clock controlled by the test, and a store that can be disconnected.
struct World {
    clock: FakeClock,
    is_cut: Arc<AtomicBool>,
    engine: Engine,
}

impl World {
    async fn new(cut: fn(Question) -> bool, with: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = FakeClock::at(Time::from_millis(1_800_000_000_000));
        let is_cut = Arc::new(AtomicBool::new(false));
        let decides = Arc::clone(&is_cut);
        let plan = move |call: &Call| {
            if decides.load(Ordering::SeqCst) && cut(call.question) { Fault::FailBefore } else { Fault::Pass }
        };
        let inner = Arc::new(memory::Store::with_clock(Arc::new(clock.clone())));
        let store: Arc<dyn Store> = Arc::new(Faulty::new(inner, plan));
        let spawn = Arc::new(tokio::runtime::Handle::current());
        let builder = Engine::builder(store).on(Arc::new(clock.clone()), Arc::new(SystemRandom), spawn);
        let engine = with(builder).build().await.expect("the store answers");
        Self { clock, is_cut, engine }
    }

    async fn rest(&self) {
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets `span` pass, and lets background tasks run.
    async fn skip(&self, span: Duration) {
        self.rest().await;
        self.clock.advance(span);
        for _ in 0..4 {
            self.rest().await;
            self.clock.advance(Duration::from_secs(1));
        }
        self.rest().await;
    }

    /// The result of `sent`, while time passes.
    async fn meanwhile(&self, request: impl Future<Output = Reply> + Send + 'static) -> Reply {
        let request = tokio::spawn(request);
        loop {
            self.rest().await;
            if request.is_finished() {
                return request.await.expect("no panic");
            }
            self.clock.advance(Duration::from_millis(500));
        }
    }
}

#[tokio::test]
async fn an_expired_outcome_is_refused_as_such() {
    let world = World::new(|_| false, |builder| builder).await;
    let service = ScriptedService::new(world.engine.clone(), RouteSettings::default(), [Ok(201)]);
    let first = service.charge().await;
    assert_eq!(first.header("idempotency-expires"), Some("Sat, 16 Jan 2027 08:00:00 GMT"));
    world.skip(Duration::from_hours(24) - Duration::from_secs(10)).await;
    assert!(service.charge().await.is_replay());
    world.skip(Duration::from_secs(10)).await;
    service.charge().await.is_problem(410, "IDEMPOTENCY_RECORD_EXPIRED", false);
    assert_eq!(service.calls.count(), 1);
}

#[tokio::test]
async fn peer_bug_a_store_that_is_down_failed_open() {
    let world = World::new(|_| true, |builder| builder).await;
    let service = ScriptedService::new(world.engine.clone(), RouteSettings::default(), [Ok(201)]);
    world.is_cut.store(true, Ordering::SeqCst);
    let caller = service.clone();
    let refused = world.meanwhile(async move { caller.charge().await }).await;
    refused.is_problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", true);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert_eq!(service.calls.count(), 0);
    let unkeyed = super::world::request("POST", "/charges").json("{}");
    assert_eq!(service.send(unkeyed).await.status, 201, "unprotected requests need no store");
}

#[tokio::test]
async fn an_outcome_not_stored_in_time_is_returned_as_such() {
    let world = World::new(|question| question == Question::Swap, |builder| builder).await;
    let service = ScriptedService::new(world.engine.clone(), RouteSettings::default(), [Ok(201)]);
    world.is_cut.store(true, Ordering::SeqCst);
    let caller = service.clone();
    let first = world.meanwhile(async move { caller.charge().await }).await;
    assert_eq!((first.status, first.text()), (201, "answer 1"));
    assert_eq!(first.header("idempotency-stored"), Some("false"));
    assert!(first.header("operation-id").is_some() && first.header("idempotency-expires").is_none());
    world.is_cut.store(false, Ordering::SeqCst);
    let caller = service.clone();
    let retry = world.meanwhile(async move { caller.charge().await }).await;
    assert_eq!((retry.text(), retry.is_replay()), ("answer 1", true), "the engine kept trying");
    assert_eq!(retry.header("idempotency-stored"), None);
}

#[tokio::test]
async fn an_attempt_in_doubt_is_not_run_again_without_protection() {
    let world = World::new(|question| question == Question::Swap, |builder| builder).await;
    let service = ScriptedService::new(world.engine.clone(), RouteSettings::default(), [Ok(201)]);
    world.is_cut.store(true, Ordering::SeqCst);
    let caller = service.clone();
    let first = world.meanwhile(async move { caller.charge().await }).await;
    assert_eq!(first.header("idempotency-stored"), Some("false"));
    // Another node finds its lease expired, cannot write that, and may continue without the store.
    world.skip(Duration::from_mins(1)).await;
    let spawn = Arc::new(tokio::runtime::Handle::current());
    let other = Engine::builder(Arc::clone(world.engine.store()));
    let other = other.on(Arc::new(world.clock.clone()), Arc::new(SystemRandom), spawn);
    let settings = RouteSettings { store_down: StoreDown::PassUnprotected, ..RouteSettings::default() };
    let other = ScriptedService::new(other.build().await.expect("the store answers"), settings, [Ok(201)]);
    let caller = other.clone();
    let refused = world.meanwhile(async move { caller.charge().await }).await;
    refused.is_problem(503, "IDEMPOTENCY_STORE_UNAVAILABLE", true);
    assert_eq!((service.calls.count(), other.calls.count()), (1, 0));
}
