//! Overtaken attempts, and finished operations.

use crate::world::{World, effect, effects, race, with_effects};
use semel_core::id::OperationId;
use semel_tx::BoxError;
use semel_tx::patterns::{FenceGuard, FenceRefusal, Fenced, Guarded, PatternError};
use std::sync::Arc;
use std::time::Duration;

on_both!(
    a_done_operation_answers_every_attempt_with_its_first_result,
    an_older_attempt_is_refused_after_a_newer_one_has_begun,
    a_failed_attempt_leaves_nothing_and_the_next_one_runs,
    an_overtaken_attempt_cannot_finish,
    a_fence_older_than_the_retention_is_refused_without_a_row,
    a_purged_operation_is_refused_by_its_age,
    sixty_four_attempts_at_once_have_one_effect_and_one_result,
);

const OPERATION: OperationId = OperationId::from_bytes([7; 16]);

fn guard<W: World>(world: &W) -> FenceGuard {
    FenceGuard::default().tables(world.tables()).wait(Duration::from_mins(1))
}

/// The database's current time: the fence that a gateway sends for a claim now.
async fn now<W: World>(world: &W) -> u64 {
    let mut transaction = world.begin().await;
    let probe = FenceGuard::default().tables(world.tables());
    let far = u64::try_from(i64::MAX).expect("positive");
    let pass = probe.enter(&mut *transaction, OperationId::from_bytes([0; 16]), far).await.expect("entered");
    assert!(matches!(pass, Fenced::Run(_)));
    let sql = world.named("SELECT updated_at FROM {o:operation_fences} WHERE operation_id LIKE '00000000-%'");
    W::number(&mut transaction, sql).await.expect("a time").unsigned_abs()
}

/// Runs an attempt in a separate transaction; the effect and the result are named after its fence.
async fn attempt<W: World>(world: &W, guard: &FenceGuard, fence: u64) -> Result<Guarded, PatternError> {
    let mut transaction = world.begin().await;
    let sql = effect(world, &fence.to_string());
    let guarded = guard
        .run(&mut *transaction, OPERATION, fence, |tx| {
            Box::pin(async move {
                W::run(tx, sql).await?;
                Ok(fence.to_string().into_bytes())
            })
        })
        .await;
    W::commit(transaction).await.expect("committed");
    guarded
}

/// The answer to attempt 1 was lost, so the gateway starts attempt 2; attempt 0 was paused meanwhile.
async fn a_done_operation_answers_every_attempt_with_its_first_result<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let result = fence.to_string().into_bytes();
    assert_eq!(attempt(&world, &guard, fence).await.expect("ran"), Guarded::Ran(result.clone()));
    for other in [fence + 1, fence, fence - 1] {
        let again = attempt(&world, &guard, other).await.expect("answered");
        assert_eq!(again, Guarded::AlreadyDone(result.clone()), "{other}");
    }
    assert_eq!(effects(&world).await, 1);
}

async fn an_older_attempt_is_refused_after_a_newer_one_has_begun<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let mut transaction = world.begin().await;
    let entered = guard.enter(&mut *transaction, OPERATION, fence + 5).await.expect("entered");
    let Fenced::Run(pass) = entered else { panic!("{entered:?}") };
    W::commit(transaction).await.expect("committed");
    let stale = attempt(&world, &guard, fence).await.expect("answered");
    assert_eq!(stale, Guarded::Refused(FenceRefusal::Stale { newest: fence + 5 }));
    assert_eq!(effects(&world).await, 0);
    let mut transaction = world.begin().await;
    guard.done(&mut *transaction, pass, b"paid").await.expect("kept");
    W::commit(transaction).await.expect("committed");
    assert_eq!(
        attempt(&world, &guard, fence).await.expect("answered"),
        Guarded::AlreadyDone(b"paid".to_vec())
    );
}

async fn a_failed_attempt_leaves_nothing_and_the_next_one_runs<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let mut transaction = world.begin().await;
    let sql = effect(&world, "half");
    let failed = guard
        .run(&mut *transaction, OPERATION, fence, |tx| {
            Box::pin(async move {
                W::run(tx, sql).await?;
                Err::<Vec<u8>, BoxError>("out of stock".into())
            })
        })
        .await;
    assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
    W::commit(transaction).await.expect("the transaction is intact");
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:operation_fences}").await), (0, 0));
    assert!(matches!(attempt(&world, &guard, fence + 1).await, Ok(Guarded::Ran(_))));
}

async fn an_overtaken_attempt_cannot_finish<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let mut transaction = world.begin().await;
    let Ok(Fenced::Run(pass)) = guard.enter(&mut *transaction, OPERATION, fence).await else { panic!() };
    W::commit(transaction).await.expect("committed");
    assert!(matches!(attempt(&world, &guard, fence + 1).await, Ok(Guarded::Ran(_))));
    let mut transaction = world.begin().await;
    let late = guard.done(&mut *transaction, pass, b"late").await;
    assert!(matches!(late, Err(PatternError::Overtaken)), "{late:?}");
    drop(transaction);
    let result = (fence + 1).to_string().into_bytes();
    assert_eq!(attempt(&world, &guard, fence + 2).await.expect("answered"), Guarded::AlreadyDone(result));
}

async fn a_fence_older_than_the_retention_is_refused_without_a_row<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let days = |days: u64| days * 24 * 60 * 60 * 1_000;
    let refused = attempt(&world, &guard, fence - days(33)).await.expect("answered");
    assert_eq!(refused, Guarded::Refused(FenceRefusal::TooOld));
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:operation_fences}").await), (0, 0));
    assert!(matches!(attempt(&world, &guard, fence - days(31)).await, Ok(Guarded::Ran(_))));
}

async fn a_purged_operation_is_refused_by_its_age<W: World>() {
    let world: W = with_effects().await;
    let (guard, fence) = (guard(&world), now(&world).await);
    let age = 33 * 24 * 60 * 60 * 1_000_u64;
    assert!(matches!(attempt(&world, &guard, fence).await, Ok(Guarded::Ran(_))));
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(guard.purge(&mut *connection, 10).await.expect("purged"), 0);
    world.sql(&format!("UPDATE {{o:operation_fences}} SET updated_at = updated_at - {age}")).await;
    assert_eq!(guard.purge(&mut *connection, 10).await.expect("purged"), 0, "its fence is not old enough");
    world.sql(&format!("UPDATE {{o:operation_fences}} SET fence = fence - {age}")).await;
    assert_eq!(guard.purge(&mut *connection, 10).await.expect("purged"), 1);
    let late = attempt(&world, &guard, fence - age).await.expect("answered");
    assert_eq!(late, Guarded::Refused(FenceRefusal::TooOld));
    assert_eq!(effects(&world).await, 1);
}

async fn sixty_four_attempts_at_once_have_one_effect_and_one_result<W: World>() {
    let world = Arc::new(with_effects::<W>().await);
    let (guard, fence) = (guard(&*world), now(&*world).await);
    let results = race(|racer| {
        let (world, guard) = (Arc::clone(&world), guard.clone());
        async move { attempt(&*world, &guard, fence + racer % 8).await.expect("answered") }
    })
    .await;
    let ran: Vec<&Vec<u8>> = results
        .iter()
        .filter_map(|result| if let Guarded::Ran(result) = result { Some(result) } else { None })
        .collect();
    assert_eq!(ran.len(), 1, "{results:?}");
    let others = results.iter().filter(|result| **result == Guarded::AlreadyDone(ran[0].clone())).count();
    assert_eq!((others, effects(&*world).await), (63, 1));
}
