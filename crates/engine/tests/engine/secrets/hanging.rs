//! A store that does not answer delays an operator only for a limited time.

use super::world::REFRESH;
use semel::core::id::CommandId;
use semel::core::store::{Change, Kind, Store, Written};
use semel::secrets::rotation::{self, Next};
use semel::secrets::{self, Bounded, Configured, Error, Phase};
use semel::{SystemRandom, memory};
use semel_testkit::FakeClock;
use semel_testkit::faults::{Call, Fault, Faulty, Pause, Question};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that never answers one kind of call.
struct Hanging {
    clock: FakeClock,
    store: Arc<Faulty>,
    question: Arc<Mutex<Option<Question>>>,
}

impl Hanging {
    fn new() -> Self {
        let question: Arc<Mutex<Option<Question>>> = Arc::default();
        let hangs = Arc::clone(&question);
        let plan = move |call: &Call| match *hangs.lock().expect("no panic") {
            Some(question) if question == call.question => {
                Fault::DelayBefore(Pause::until(std::future::pending()))
            }
            _ => Fault::Pass,
        };
        let store = Arc::new(Faulty::new(Arc::new(memory::Store::new()), plan));
        Self { clock: FakeClock::default(), store, question }
    }

    fn bounded(&self) -> Bounded<'_> {
        Bounded::new(&*self.store, &self.clock, Duration::from_secs(10))
    }

    /// The error of `step` while `question` is not answered.
    async fn kind_of_error<T>(
        &self,
        question: Question,
        step: impl Future<Output = Result<T, Error>>,
    ) -> Kind {
        *self.question.lock().expect("no panic") = Some(question);
        let hours = async {
            for _ in 0..3_600 {
                tokio::task::yield_now().await;
                self.clock.advance(Duration::from_secs(1));
            }
        };
        let result = tokio::select! {
            biased;
            result = step => result,
            () = hours => panic!("{question:?} does not time out within an hour"),
        };
        *self.question.lock().expect("no panic") = None;
        match result {
            Err(Error::Store(error)) => error.kind(),
            Err(other) => panic!("{question:?}: {other}"),
            Ok(_) => panic!("{question:?} was not called"),
        }
    }
}

#[tokio::test]
async fn no_rotation_step_waits_forever_for_a_hanging_store() {
    let hanging = Hanging::new();
    let store = hanging.bounded();
    let (kept, clock): (Arc<dyn Store>, _) = (hanging.store.clone(), Arc::new(hanging.clock.clone()));
    let node = secrets::open(kept, Configured::default(), clock, &SystemRandom, "a", REFRESH).await;
    node.expect("opened").leave().await.expect("signed off");

    let kind =
        hanging.kind_of_error(Question::Settings, rotation::announce(store, Next::Generated, &SystemRandom));
    assert_eq!(kind.await, Kind::Unavailable);
    let kind =
        hanging.kind_of_error(Question::Set, rotation::announce(store, Next::Generated, &SystemRandom));
    assert_eq!(kind.await, Kind::Ambiguous, "it may have been announced");
    rotation::announce(store, Next::Generated, &SystemRandom).await.expect("announced");
    assert_eq!(hanging.kind_of_error(Question::Set, rotation::withdraw(store)).await, Kind::Ambiguous);
    assert_eq!(hanging.kind_of_error(Question::Count, rotation::progress(store)).await, Kind::Unavailable);
    assert_eq!(rotation::advance(store).await.expect("advanced"), Phase::Moving);
    assert_eq!(hanging.kind_of_error(Question::Page, rotation::progress(store)).await, Kind::Unavailable);
    assert_eq!(hanging.kind_of_error(Question::Page, rotation::advance(store)).await, Kind::Unavailable);
    for number in 0..100 {
        let id = CommandId::from_bytes([number; 32]);
        assert!(matches!(
            hanging.store.write(id, Change::InsertMarker).await.expect("planted"),
            Written::Done { .. }
        ));
    }
    assert_eq!(rotation::advance(store).await.expect("advanced"), Phase::Settled);
    assert_eq!(hanging.kind_of_error(Question::Markers, rotation::finish(store)).await, Kind::Unavailable);
    assert_eq!(hanging.kind_of_error(Question::RemoveMarker, rotation::finish(store)).await, Kind::Ambiguous);
    // Afterwards everything works as before.
    rotation::finish(store).await.expect("finished");
    let progress = rotation::progress(store).await.expect("an answer");
    assert_eq!((progress.phase, progress.markers, progress.generation), (Phase::Steady, 0, 1));
}
