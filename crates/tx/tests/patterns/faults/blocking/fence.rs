//! Overtaken attempts, and finished operations.

use super::{Node, begun, paid, pay};
use crate::world::{Lite, RACERS, World, effects, with_effects};
use semel_core::id::OperationId;
use semel_tx::BoxError;
use semel_tx::patterns::{Counter, FenceGuard, FenceRefusal, Fenced, Guarded, PatternError};
use semel_tx::sqlite::rusqlite::Connection;

const OPERATION: OperationId = OperationId::from_bytes([7; 16]);
/// Later than any time at which a test runs.
const FENCE: u64 = 1 << 50;

/// Runs an attempt; the effect and the result are named after its fence.
fn attempt(tx: &Connection, fence: u64) -> Result<Guarded, PatternError> {
    FenceGuard::default().run_blocking(tx, OPERATION, fence, |tx| {
        pay(tx, &fence.to_string())?;
        Ok(fence.to_string().into_bytes())
    })
}

/// The same in a separate transaction.
fn attempt_alone(world: &Lite, fence: u64) -> Guarded {
    let tx = begun(world);
    let guarded = attempt(&tx, fence).expect("an answer");
    tx.execute_batch("COMMIT").expect("committed");
    guarded
}

fn result(fence: u64) -> Vec<u8> {
    fence.to_string().into_bytes()
}

async fn fences(world: &Lite) -> i64 {
    world.ask("SELECT count(*) FROM {o:operation_fences}").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_done_operation_answers_every_attempt_with_its_first_result() {
    let world: Lite = with_effects().await;
    assert_eq!(attempt_alone(&world, FENCE), Guarded::Ran(result(FENCE)));
    for other in [FENCE + 1, FENCE, FENCE - 1] {
        assert_eq!(attempt_alone(&world, other), Guarded::AlreadyDone(result(FENCE)), "{other}");
    }
    // Each form recognises what the other has done.
    let mut transaction = world.begin().await;
    let entered = FenceGuard::default().enter(&mut *transaction, OPERATION, FENCE + 2).await;
    assert!(matches!(entered, Ok(Fenced::AlreadyDone(done)) if done == result(FENCE)));
    assert_eq!(effects(&world).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_that_was_overtaken_is_refused_and_cannot_finish() {
    let world: Lite = with_effects().await;
    let guard = FenceGuard::default();
    let enter = |fence: u64| {
        let tx = begun(&world);
        let entered = guard.enter_blocking(&tx, OPERATION, fence).expect("an answer");
        tx.execute_batch("COMMIT").expect("committed");
        let Fenced::Run(pass) = entered else { panic!("{entered:?}") };
        pass
    };
    let (first, second) = (enter(FENCE), enter(FENCE + 5));
    let stale = Guarded::Refused(FenceRefusal::Stale { newest: FENCE + 5 });
    assert_eq!(attempt_alone(&world, FENCE + 4), stale);
    let tx = begun(&world);
    let late = guard.done_blocking(&tx, first, b"late");
    assert!(matches!(late, Err(PatternError::Overtaken)), "{late:?}");
    guard.done_blocking(&tx, second, b"paid").expect("kept");
    tx.execute_batch("COMMIT").expect("the transaction is intact");
    assert_eq!(attempt_alone(&world, FENCE), Guarded::AlreadyDone(b"paid".to_vec()));
    assert_eq!(effects(&world).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_older_than_the_retention_is_refused_without_a_row() {
    let world: Lite = with_effects().await;
    assert_eq!(attempt_alone(&world, 1), Guarded::Refused(FenceRefusal::TooOld));
    assert_eq!((effects(&world).await, fences(&world).await), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_attempt_leaves_nothing_and_keeps_the_transaction() {
    let world: Lite = with_effects().await;
    let tx = begun(&world);
    let failed = FenceGuard::default().run_blocking(&tx, OPERATION, FENCE, |tx| {
        pay(tx, "half")?;
        Counter::new("balance").add_blocking(tx, "op-1", 5)?;
        Err::<Vec<u8>, BoxError>("out of stock".into())
    });
    assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
    pay(&tx, "own").expect("the transaction continues");
    tx.execute_batch("COMMIT").expect("committed");
    let counted = world.ask("SELECT count(*) FROM {o:counter_operations}").await;
    assert_eq!((effects(&world).await, fences(&world).await, counted), (1, 0, 0));
    assert_eq!(attempt_alone(&world, FENCE), Guarded::Ran(result(FENCE)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_is_committed_with_the_record_or_not_at_all() {
    let world: Lite = with_effects().await;
    let node = Node::on(&world).await;
    let failed = node.run("key-1", |tx, _| {
        assert_eq!(attempt(tx, FENCE)?, Guarded::Ran(result(FENCE)));
        Err("after all".into())
    });
    assert!(failed.await.is_err());
    assert_eq!((effects(&world).await, fences(&world).await), (0, 0));
    for key in ["key-2", "key-3"] {
        let answered = node.run(key, |tx, _| {
            let guarded = attempt(tx, FENCE)?;
            assert!(matches!(guarded, Guarded::Ran(_) | Guarded::AlreadyDone(_)), "{guarded:?}");
            Ok(paid())
        });
        answered.await.expect("an answer");
    }
    assert_eq!((effects(&world).await, fences(&world).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_attempts_at_once_have_one_effect_and_one_result() {
    let world: Lite = with_effects().await;
    let results: Vec<Guarded> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..RACERS)
            .map(|racer| {
                let world = &world;
                scope.spawn(move || attempt_alone(world, FENCE + racer % 8))
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("no panic")).collect()
    });
    let ran: Vec<_> = results
        .iter()
        .filter_map(|guarded| if let Guarded::Ran(result) = guarded { Some(result) } else { None })
        .collect();
    assert_eq!(ran.len(), 1, "{results:?}");
    let others = results.iter().filter(|guarded| **guarded == Guarded::AlreadyDone(ran[0].clone())).count();
    assert_eq!((others, effects(&world).await), (63, 1));
}
