//! Reconcilers of routes.
//!
//! The engine applies the verdicts.

use super::routes::Routes;
use semel::Reconcile;
use std::fmt;
use std::sync::Arc;

/// Resolves unknown outcomes of a route.
///
/// The engine calls it, not the layer: pass the routes to the engine when you build it.
///
/// ```
/// use semel::{Case, Engine, Finding, memory};
/// use semel_http::{Layer, Reconciler, Routes, RouteSettings};
/// # use std::sync::Arc;
///
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let asked = |case: Case| async move {
///     match ledger_has(&case.operation_id.to_string()).await {
///         Some(true) => Finding::Applied(None),
///         Some(false) => Finding::NotFound,
///         None => Finding::NoAnswer,
///     }
/// };
/// let settings = RouteSettings { reconciler: Some(Reconciler::by(asked)), ..RouteSettings::default() };
/// let routes = Routes::new(settings)?;
/// let within = routes.clone();
/// let engine = Engine::builder(Arc::new(memory::Store::new()))
///     .reconcilers(move |operation| within.reconciler_of(operation))
///     .build()
///     .await?;
/// let layer = Layer::routed(engine, routes)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # async fn ledger_has(_: &str) -> Option<bool> { None }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Reconciler(Arc<dyn Reconcile>);

impl Reconciler {
    /// A reconciler from any function from a [`Case`](semel::Case) to a future of a [`Finding`](semel::Finding).
    pub fn by(reconcile: impl Reconcile) -> Self {
        Self(Arc::new(reconcile))
    }
}

impl fmt::Debug for Reconciler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reconciler")
    }
}

impl Routes {
    /// The reconciler for records of this operation, by the current settings.
    pub fn reconciler_of(&self, operation: &str) -> Option<Arc<dyn Reconcile>> {
        self.of_record(operation)?.settings.reconciler.as_ref().map(|reconciler| Arc::clone(&reconciler.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::RouteSettings;
    use super::*;
    use semel::{Case, Finding};

    #[test]
    fn the_reconciler_follows_from_the_records_operation() {
        let nobody = |_: Case| std::future::ready(Finding::NoAnswer);
        let asked = || RouteSettings { reconciler: Some(Reconciler::by(nobody)), ..RouteSettings::default() };
        let named = RouteSettings { name: Some("pay".into()), ..asked() };
        let routes = Routes::new(RouteSettings::default())
            .and_then(|routes| routes.with("/pay", named))
            .and_then(|routes| routes.with("/a/{id}", asked()))
            .expect("valid");
        for known in ["pay", "POST /a/7", "PATCH /a/7"] {
            assert!(routes.reconciler_of(known).is_some(), "{known}");
        }
        for unknown in ["POST /b", "DELETE /a/7", "other", "", "(shadow) POST /a/7"] {
            assert!(routes.reconciler_of(unknown).is_none(), "{unknown}");
        }
    }
}
