//! What the gateway itself asks the service: what became of an effect in doubt, whether a caller may still get a
//! replay, and the rest of a response that was stored only in part.
//!
//! These requests do not pass through Semel's layer. A client's credentials go only to the service, and only with
//! requests on behalf of that client. Responses are bounded; without a response there is no guess.

mod authorize;
mod client_requests;
mod destination;
mod directory;
mod location;
mod meaning;
mod probe;
mod read;
mod rebuild;
mod template;

pub use authorize::Authorize;
pub use client_requests::ServiceClients;
pub use destination::Destination;
pub use directory::Directory;
pub use meaning::{Condition, Meaning};
pub use probe::{Answer, Probe};
pub use rebuild::{Rebuild, Source};
pub use template::{Placeholder, Template};

use semel_http::{KeyRule, Retain, RouteSettings};
use semel_net::client::AuthoritiesError;

/// The questions about requests of one operation.
#[derive(Debug, Clone, Default)]
pub struct ServiceCallbacks {
    /// What became of an effect in doubt. Without it, an operator has to find out.
    pub probe: Option<Probe>,
    /// Whether a caller may still get a replay. Without it, every recognised caller may.
    pub authorize: Option<Authorize>,
    /// The rest of a response that was stored in part. Without it, it is answered as not retained.
    pub rebuild: Option<Rebuild>,
}

impl ServiceCallbacks {
    /// The questions that can be asked under `route_settings`.
    #[must_use]
    pub fn fit_for(self, route_settings: &RouteSettings) -> Self {
        let is_protected = route_settings.key != KeyRule::Off;
        let is_minimal = is_protected && matches!(route_settings.retain, Retain::Minimal(_));
        Self {
            probe: self.probe.filter(|_| is_protected),
            authorize: self.authorize.filter(|_| is_protected),
            rebuild: self.rebuild.filter(|_| is_minimal),
        }
    }

    /// The settings with these callbacks. Opens no connection. Fails if a probe goes to an `https://` URL and there is no
    /// certificate authority.
    pub fn put_to(
        &self,
        mut route_settings: RouteSettings,
        clients: &ServiceClients,
    ) -> Result<RouteSettings, AuthoritiesError> {
        if let Some(rebuild) = &self.rebuild {
            route_settings.retain = rebuild.build(clients, route_settings.response_bytes_max);
        }
        route_settings.authorize = self.authorize.as_ref().map(|authorize| authorize.build(clients));
        if let Some(probe) = &self.probe {
            route_settings.reconciler = Some(probe.build(clients, &route_settings)?);
        }
        Ok(route_settings)
    }
}
