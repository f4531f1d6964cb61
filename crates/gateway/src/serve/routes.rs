//! Joins a plan's settings with what runs: the questions to the service, the rules for callers, and the used-up rates.

use super::ServeError;
use super::ledgers::Ledgers;
use crate::callbacks::{ServiceCallbacks, ServiceClients};
use crate::caller_rules::CallerRules;
use crate::config::{Operation, Plan};
use semel_http::{RouteSettings, Routes};
use semel_identity::Identity;

/// The routes, each with its own rule for callers, its questions and its limits. Questions on behalf of a client pass on
/// the headers that identify callers on that route, and no others.
pub(super) fn routes(
    plan: &Plan,
    clients: &ServiceClients,
    caller_rules: &CallerRules,
    ledgers: &Ledgers,
) -> Result<Routes, ServeError> {
    let complete_settings =
        |callbacks: &ServiceCallbacks, route_settings: &RouteSettings, identity: &Identity| {
            let clients =
                ServiceClients { credentials: identity.credentials().cloned().collect(), ..clients.clone() };
            callbacks.put_to(route_settings.clone(), &clients)
        };
    let routes = Routes::new(complete_settings(&plan.callbacks, &plan.route_settings, &plan.identity)?)?;
    plan.operations.iter().try_fold(routes, |routes, operation| {
        let Operation { template, route_settings, callbacks, identity, .. } = operation;
        let mut route_settings =
            complete_settings(callbacks, route_settings, identity.as_ref().unwrap_or(&plan.identity))?;
        if let Some(identity) = identity {
            let callers = caller_rules.callers_of(identity);
            route_settings.callers = Some(callers.ok_or(ServeError::CallersNotStarted)?);
        }
        route_settings.rates = ledgers.of(operation);
        Ok(routes.with(template, route_settings)?)
    })
}
