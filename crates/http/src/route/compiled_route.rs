//! A route whose settings have been validated, in the form that requests use.

use super::method::check_method;
use super::settings::{RouteSettings, RouteSettingsError};
use super::target::Target;
use http::Method;
use semel::core::policy::Policy;
use semel::core::scope::Operation;
use std::sync::Arc;

/// Validated settings, shared by requests.
#[derive(Debug)]
pub(crate) struct CompiledRoute {
    /// The operation's label in metrics.
    pub(crate) label: String,
    /// The operation's name, if it has one.
    pub(super) name: Option<Arc<str>>,
    pub(crate) settings: RouteSettings,
    pub(crate) policy: Arc<Policy>,
}

impl CompiledRoute {
    pub(super) fn new(mut settings: RouteSettings, pattern: &str) -> Result<Arc<Self>, RouteSettingsError> {
        settings.check()?;
        settings.methods = normalized(&settings.methods)?;
        let policy = Arc::new(settings.policy.clone());
        let label = settings.name.clone().unwrap_or_else(|| pattern.to_owned());
        let name = settings.name.as_deref().map(Arc::from);
        Ok(Arc::new(Self { label, name, settings, policy }))
    }

    /// The operation of a request.
    pub(crate) fn operation(&self, target: &Target) -> Operation {
        match &self.name {
            Some(name) => Operation::named(Arc::clone(name)),
            None => Operation::route(target.method().as_str(), target.path()),
        }
    }
}

/// Methods in normal form, without duplicates.
fn normalized(methods: &[Method]) -> Result<Vec<Method>, RouteSettingsError> {
    let mut found = Vec::with_capacity(methods.len());
    for method in methods {
        let method = check_method(method)?;
        if !found.contains(&method) {
            found.push(method);
        }
    }
    Ok(found)
}
