//! The memory use of the engine's cache of final outcomes, counted by the allocator.

use semel::payload::Raw;
use semel::{Class, Engine, Failed, Identity, Intent, Key, Operation, Policy, Scope, Settings, memory};
use semel_bench::{Counting, held_bytes};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CACHE_BYTES: usize = 4 << 20;

/// The bytes held after `count` commands with answers of `answer_bytes` were run and replayed.
fn held_after(cache_bytes_max: usize, answer_bytes: usize, count: usize) -> isize {
    let before = held_bytes();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let settings = Settings { cache_bytes_max, ..Settings::default() };
    let engine = runtime.block_on(async {
        let engine =
            Engine::builder(Arc::new(memory::Store::new())).settings(settings).build().await.unwrap();
        let scope = Arc::new(Scope::new(Identity::api_key("k-17"), Operation::named("charge")));
        let policy = Arc::new(Policy::new(Class::External));
        for number in 0..count {
            let key = Key::from_source(&format!("order-{number}")).unwrap();
            let intent = Intent::new(Arc::clone(&scope), key, Arc::clone(&policy), Raw::from("amount=5"));
            let work = move |_| async move { Ok::<_, Failed>("x".repeat(answer_bytes)) };
            engine.run(intent.clone(), work).await.unwrap();
            assert!(engine.run(intent, work).await.unwrap().replayed);
        }
        engine
    });
    let held = held_bytes().wrapping_sub(before).cast_signed();
    drop((engine, runtime));
    held
}

#[test]
fn the_cache_uses_no_more_than_its_limit() {
    for (answer_bytes, count) in [(2, 12_000), (300, 8_000), (4_000, 3_000), (100_000, 200)] {
        let without = held_after(0, answer_bytes, count);
        let taken = held_after(CACHE_BYTES, answer_bytes, count) - without;
        let ratio = taken as f64 / CACHE_BYTES as f64;
        println!("answers of {answer_bytes:>6} bytes: {ratio:.2} times the bound");
        assert!((0.8..=1.1).contains(&ratio), "answers of {answer_bytes} bytes: {ratio:.2} times the bound");
    }
}
