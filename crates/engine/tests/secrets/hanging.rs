//! A store that does not answer costs an operator so much time and no more.

use crate::world::TERMS;
use semel::core::id::CommandId;
use semel::core::store::{Change, Kind, Store, Written};
use semel::secrets::rotation::{self, Next};
use semel::secrets::{self, Bounded, Configured, Error, Phase};
use semel::{SystemRandom, memory};
use semel_testkit::FakeClock;
use semel_testkit::faults::{Call, Fault, Faulty, Pause, Question};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A store that never answers one of the questions.
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

    /// What comes of `step` while `question` is not answered.
    async fn told<T>(&self, question: Question, step: impl Future<Output = Result<T, Error>>) -> Kind {
        *self.question.lock().expect("no panic") = Some(question);
        let hours = async {
            for _ in 0..3_600 {
                tokio::task::yield_now().await;
                self.clock.advance(Duration::from_secs(1));
            }
        };
        let told = tokio::select! {
            biased;
            told = step => told,
            () = hours => panic!("{question:?} is still waited for after an hour"),
        };
        *self.question.lock().expect("no panic") = None;
        match told {
            Err(Error::Store(error)) => error.kind(),
            Err(other) => panic!("{question:?}: {other}"),
            Ok(_) => panic!("{question:?} was not asked"),
        }
    }
}

#[tokio::test]
async fn no_step_of_a_rotation_waits_for_ever_for_a_store_that_hangs() {
    let hanging = Hanging::new();
    let store = hanging.bounded();
    let (kept, clock): (Arc<dyn Store>, _) = (hanging.store.clone(), Arc::new(hanging.clock.clone()));
    let node = secrets::open(kept, Configured::default(), clock, &SystemRandom, "a", TERMS).await;
    node.expect("opened").leave().await.expect("signed off");

    let told = hanging.told(Question::Settings, rotation::announce(store, Next::Generated, &SystemRandom));
    assert_eq!(told.await, Kind::Unavailable);
    let told = hanging.told(Question::Set, rotation::announce(store, Next::Generated, &SystemRandom));
    assert_eq!(told.await, Kind::Ambiguous, "it may be announced all the same");
    rotation::announce(store, Next::Generated, &SystemRandom).await.expect("announced");
    assert_eq!(hanging.told(Question::Set, rotation::withdraw(store)).await, Kind::Ambiguous);
    assert_eq!(hanging.told(Question::Count, rotation::progress(store)).await, Kind::Unavailable);
    assert_eq!(rotation::advance(store).await.expect("advanced"), Phase::Moving);
    assert_eq!(hanging.told(Question::Page, rotation::progress(store)).await, Kind::Unavailable);
    assert_eq!(hanging.told(Question::Page, rotation::advance(store)).await, Kind::Unavailable);
    for number in 0..100 {
        let id = CommandId::from_bytes([number; 32]);
        assert!(matches!(
            hanging.store.write(id, Change::InsertMarker).await.expect("planted"),
            Written::Done { .. }
        ));
    }
    assert_eq!(rotation::advance(store).await.expect("advanced"), Phase::Settled);
    assert_eq!(hanging.told(Question::Markers, rotation::finish(store)).await, Kind::Unavailable);
    assert_eq!(hanging.told(Question::RemoveMarker, rotation::finish(store)).await, Kind::Ambiguous);
    // And nothing of all this is in the way afterwards.
    rotation::finish(store).await.expect("finished");
    let progress = rotation::progress(store).await.expect("told");
    assert_eq!((progress.phase, progress.markers, progress.generation), (Phase::Steady, 0, 1));
}
