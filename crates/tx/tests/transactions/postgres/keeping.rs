//! Quotas, sealing, size limits and retention apply to local records too.

use super::world::{World, body, intent, intent_with, ran, refused, work};
use semel::core::outcome::{Body, Outcome};
use semel::core::record::State;
use semel::quota::{Quotas, Rate};
use semel::sealing::{KeyRing, SealingKey};
use semel::{Error as EngineError, RefusalReason};
use semel_tx::postgres::transact;
use semel_tx::{Error, LocalEnding};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn a_sealed_outcome_is_readable_only_by_its_caller() {
    let world = World::new().await;
    let ring = || KeyRing::new(SealingKey::new("k1", &[7; 32]).expect("a key"));
    let engine = world.builder().await.sealing(ring()).build().await.expect("an engine");
    let database = world.database(2).await;
    let answer = world.order(&engine, &database, "order-1").await.expect("it ran");
    assert_eq!(body(&answer), "created");
    let record = world.record(&engine, &answer).await;
    let State::Succeeded { outcome, .. } = record.state() else { panic!("{record:?}") };
    assert!(matches!(outcome.body, Body::Sealed(_)), "{outcome:?}");
    let other = world.builder().await.sealing(ring()).build().await.expect("an engine");
    assert_eq!(body(&world.order(&other, &database, "order-1").await.expect("an answer")), "created");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_refuses_a_new_key_and_never_a_retry() {
    let world = World::new().await;
    let rate = Rate { count: 2.try_into().expect("not zero"), per: Duration::from_hours(1) };
    let quotas = Quotas { new_per_caller: Some(rate), ..Quotas::default() };
    let engine = world.builder().await.quotas(quotas).build().await.expect("an engine");
    let database = world.database(2).await;
    // A rolled-back command costs nothing.
    let failing = work(|_, _| Box::pin(async { Err("no".into()) }));
    for _ in 0..3 {
        assert!(transact(&engine, &database, intent("order-0"), failing).await.is_err());
    }
    for key in ["order-1", "order-2", "order-1"] {
        world.order(&engine, &database, key).await.expect("an answer");
    }
    let refused = world.order(&engine, &database, "order-3").await;
    assert!(matches!(&refused, Err(Error::Engine(EngineError::Quota(_)))), "{refused:?}");
    assert_eq!((world.orders().await, world.records().await), (2, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_too_large_to_store_is_committed_without_body() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(2).await);
    let large = work(|_, _| {
        Box::pin(async {
            let outcome = Outcome::http(200, [("a", "b")], vec![b'x'; (128 << 20) + 1]);
            Ok(LocalEnding::Succeeded(outcome))
        })
    });
    let answer = transact(&engine, &database, intent("order-1"), large).await.expect("it ran");
    let record = world.record(&engine, &answer).await;
    let State::Succeeded { outcome, .. } = record.state() else { panic!("{record:?}") };
    assert_eq!(outcome.body, Body::NotRetained);
    let again = transact(&engine, &database, intent("order-1"), large).await.expect("an answer");
    assert!(again.replayed && again.outcome.body == Body::NotRetained, "{again:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_with_less_durability_commits_durably() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let schema = world.schema.clone();
    let lowering = work(move |tx, local| {
        let schema = schema.clone();
        Box::pin(async move {
            sqlx::query("SET LOCAL synchronous_commit = off").execute(&mut *tx).await?;
            // Fires after the record's own write, at the very end.
            let sql = format!(
                "CREATE FUNCTION {schema}.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO {schema}.orders \
                 VALUES (current_setting('synchronous_commit'), 'setting', 0); RETURN NULL; END $$; \
                 CREATE CONSTRAINT TRIGGER note AFTER INSERT ON {schema}.orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
                 WHEN (NEW.item = 'book') EXECUTE FUNCTION {schema}.note()"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut *tx).await?;
            super::world::insert_order(tx, &schema, local).await?;
            Ok(super::world::created(local))
        })
    });
    assert!(ran(&transact(&engine, &database, intent("order-1"), lowering).await.expect("it ran")));
    let on = world.number("SELECT count(*) FROM {s}.orders WHERE item = 'setting' AND id = 'on'").await;
    assert_eq!(on, 1, "raised before the commit");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_record_is_not_rerun_before_its_tombstone_ends() {
    let world = World::new().await;
    let (engine, database) = (world.engine().await, world.database(1).await);
    let short = || {
        intent_with("order-1", "5", |policy| {
            policy.lease = Duration::from_millis(1);
            policy.ttl = Duration::from_millis(2);
            policy.denied_ttl = Duration::from_millis(2);
        })
    };
    transact(&engine, &database, short(), world.ordering()).await.expect("it ran");
    tokio::time::sleep(Duration::from_millis(50)).await;
    let late = refused(transact(&world.engine().await, &database, short(), world.ordering()).await);
    // Shortly after a start, expiry is not certain.
    assert!(matches!(late, RefusalReason::Expired | RefusalReason::ClockNotTrusted { .. }), "{late:?}");
    assert_eq!(world.orders().await, 1);
}
