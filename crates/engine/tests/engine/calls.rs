//! How often the store is called.

use super::world::{World, charge, intent, never};
use semel::core::classify::Ending;
use semel::core::outcome::Outcome;
use semel::core::store::{Capabilities, Counting, Delegate, Store};
use semel::quota::{Quotas, QuotasError};
use semel::{BuildError, Claimed, Engine, Settings, memory};
use std::sync::Arc;

async fn engine(world: &World) -> Engine {
    let settings = Settings { cache_bytes_max: 0, ..Settings::default() };
    world.engine_with(|builder| builder.settings(settings)).await
}

/// How often `what` calls the store.
macro_rules! calls {
    ($world:expr, $what:expr) => {{
        let before = $world.store.calls();
        let value = $what;
        (value, $world.store.calls() - before)
    }};
}

#[tokio::test]
async fn each_step_makes_the_fewest_possible_store_calls() {
    let world = World::new();
    let engine = engine(&world).await;
    let (_, new) = calls!(world, engine.run(intent("k", "5"), charge).await.expect("a value"));
    let (_, replayed) = calls!(world, engine.run(intent("k", "5"), never).await.expect("a value"));
    let (claimed, claim) = calls!(world, engine.claim(&intent("h", "5")).await.expect("an answer"));
    let Claimed::Leased(lease) = claimed else { panic!("no other owner") };
    let (id, token) = (lease.operation_id(), lease.token());
    // Like the claims API, whose worker returns with only its token.
    let ((), renewed) = calls!(world, {
        let looked = engine.look_up(id).await.expect("it is stored");
        let lease = engine.lease_of(&looked, token).expect("its own");
        lease.renew().await.expect("renewed");
        assert!(lease.record().version() > looked.record.version());
    });
    let ((), ended) = calls!(world, {
        let looked = engine.look_up(id).await.expect("it is stored");
        let lease = engine.lease_of(&looked, token).expect("its own");
        lease.finish(Ending::Succeeded(Outcome::value("5"))).await.expect("stored");
    });
    assert_eq!([new, replayed, claim, renewed, ended], [2, 1, 1, 2, 2]);
    let looked = engine.look_up(id).await.expect("it is stored");
    assert!(engine.lease_of(&looked, semel::core::record::Token::from_random(1)).is_none(), "another's");
}

/// A store that counts only approximately.
struct Rough(memory::Store);

impl Delegate for Rough {
    fn inner(&self) -> &dyn Store {
        &self.0
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { counts: Counting::Approximate, ..self.0.capabilities() }
    }
}

#[tokio::test]
async fn a_cap_on_records_needs_a_store_that_counts_exactly() {
    let none = Quotas::default;
    let capped =
        [Quotas { records_per_caller: Some(5), ..none() }, Quotas { records_in_total: Some(5), ..none() }];
    for quotas in capped {
        let refused =
            Engine::builder(Arc::new(Rough(memory::Store::new()))).quotas(quotas.clone()).build().await;
        assert!(matches!(refused, Err(BuildError::Quotas(QuotasError::NotCounted(_)))), "{quotas:?}");
        Engine::builder(Arc::new(memory::Store::new())).quotas(quotas).build().await.expect("counted");
    }
    let by_address = Quotas { records_per_address: Some(5), ..none() };
    let rough = Arc::new(Rough(memory::Store::new()));
    Engine::builder(rough).quotas(by_address).build().await.expect("counted by the node itself");
}
