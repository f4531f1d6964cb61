//! An engine on a memory store, and intents to try on it.

use semel::core::key::Key;
use semel::core::policy::{Class, Policy};
use semel::core::scope::{Identity, Operation, Scope};
use semel::core::store::Store;
use semel::payload::Json;
use semel::{Engine, Intent, memory};
use std::sync::Arc;

pub(crate) async fn engine() -> Engine {
    on(Arc::new(memory::Store::new())).await
}

pub(crate) async fn on(store: Arc<dyn Store>) -> Engine {
    Engine::builder(store).build().await.expect("the store answers")
}

pub(crate) fn intent(key: &str, payload: &str) -> Intent {
    intent_under(Policy::new(Class::External), key, payload)
}

pub(crate) fn intent_under(policy: Policy, key: &str, payload: &str) -> Intent {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
    let key = Key::from_source(key).expect("a good key");
    Intent::new(scope, key, policy, Json::of(payload).expect("a string is JSON"))
}
