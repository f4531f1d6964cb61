//! Business references.

use crate::world::{World, race};
use semel_core::id::OperationId;
use semel_tx::patterns::{Binding, BusinessReferences, PatternError};
use std::sync::Arc;
use std::time::Duration;

on_both!(
    a_second_operation_is_refused_with_the_first_ones_id,
    a_reference_is_bound_only_by_a_commit,
    references_are_separate_per_tenant_and_operation,
    references_are_kept_unless_a_retention_is_set,
    sixty_four_operations_bind_a_reference_once,
    a_reference_needs_a_transaction_and_a_name,
);

fn references<W: World>(world: &W) -> BusinessReferences {
    BusinessReferences::new("acme", "pay").tables(world.tables()).wait(Duration::from_mins(1))
}

fn operation(number: u8) -> OperationId {
    OperationId::from_bytes([number; 16])
}

async fn bind<W: World>(world: &W, references: &BusinessReferences, number: u8) -> Binding {
    let mut transaction = world.begin().await;
    let bound =
        references.bind(&mut *transaction, "invoice-117", operation(number)).await.expect("an answer");
    W::commit(transaction).await.expect("committed");
    bound
}

async fn a_second_operation_is_refused_with_the_first_ones_id<W: World>() {
    let world = W::new().await;
    let references = references(&world);
    assert_eq!(bind(&world, &references, 1).await, Binding::Bound);
    assert_eq!(bind(&world, &references, 2).await, Binding::Taken { operation_id: operation(1) });
    // The same key again, after its record has expired: it was already paid.
    assert_eq!(bind(&world, &references, 1).await, Binding::Taken { operation_id: operation(1) });
}

async fn a_reference_is_bound_only_by_a_commit<W: World>() {
    let world = W::new().await;
    let references = references(&world);
    let mut transaction = world.begin().await;
    let bound = references.bind(&mut *transaction, "invoice-117", operation(1)).await.expect("an answer");
    assert_eq!(bound, Binding::Bound);
    drop(transaction);
    assert_eq!(bind(&world, &references, 2).await, Binding::Bound);
}

async fn references_are_separate_per_tenant_and_operation<W: World>() {
    let world = W::new().await;
    for (number, (tenant, name)) in
        (1..).zip([("acme", "pay"), ("acme", "refund"), ("globex", "pay"), ("", "pay")])
    {
        let references = BusinessReferences::new(tenant, name).tables(world.tables());
        assert_eq!(bind(&world, &references, number).await, Binding::Bound, "{tenant} {name}");
    }
}

async fn references_are_kept_unless_a_retention_is_set<W: World>() {
    let world = W::new().await;
    let for_ever = references(&world);
    let for_a_day =
        BusinessReferences::new("acme", "refund").tables(world.tables()).retention(Duration::from_hours(24));
    for references in [&for_ever, &for_a_day] {
        assert_eq!(bind(&world, references, 1).await, Binding::Bound);
        assert_eq!(bind(&world, references, 2).await, Binding::Taken { operation_id: operation(1) });
    }
    let years = 10 * 365 * 86_400_000_i64;
    let age = format!(
        "UPDATE {{o:business_references}} SET bound_at = bound_at - {years}, expires_at = expires_at - {years}"
    );
    world.sql(&age).await;
    assert_eq!(bind(&world, &for_ever, 2).await, Binding::Taken { operation_id: operation(1) });
    assert_eq!(
        bind(&world, &for_a_day, 2).await,
        Binding::Bound,
        "past its retention, also before it is purged"
    );
    world.sql(&age).await;
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(for_ever.purge(&mut *connection, 10).await.expect("purged"), 1);
    assert_eq!(world.ask("SELECT count(*) FROM {o:business_references}").await, 1);
}

async fn sixty_four_operations_bind_a_reference_once<W: World>() {
    let world = Arc::new(W::new().await);
    let references = references(&*world);
    let results = race(|racer| {
        let (world, references) = (Arc::clone(&world), references.clone());
        async move { bind(&*world, &references, u8::try_from(racer).expect("few") + 1).await }
    })
    .await;
    assert_eq!(results.iter().filter(|bound| **bound == Binding::Bound).count(), 1);
    let mut taken: Vec<_> = results.iter().filter(|bound| **bound != Binding::Bound).collect();
    assert_eq!(taken.len(), 63);
    taken.dedup();
    assert_eq!(taken.len(), 1, "all get the same operation: {taken:?}");
}

async fn a_reference_needs_a_transaction_and_a_name<W: World>() {
    let world = W::new().await;
    let references = references(&world);
    let mut connection = world.pool().acquire().await.expect("a connection");
    let refused = references.bind(&mut *connection, "invoice-117", operation(1)).await;
    assert!(matches!(refused, Err(PatternError::NoTransaction)), "{refused:?}");
    let mut transaction = world.begin().await;
    let refused = references.bind(&mut *transaction, "", operation(1)).await;
    assert!(matches!(refused, Err(PatternError::Invalid(_))), "{refused:?}");
}
