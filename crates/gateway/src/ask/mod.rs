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

use crate::upstream::TlsError;
use semel_http::{KeyRule, Retain, Terms};

/// What is asked about the requests of one operation.
#[derive(Debug, Clone, Default)]
pub struct Questions {
    /// What became of an effect in doubt. An operator has to find out otherwise.
    pub probe: Option<Probe>,
    /// Whether a caller may still have a replay. Whoever is recognised as the caller may otherwise.
    pub authorize: Option<Authorize>,
    /// What a response was of which only the least was kept. It is answered as not kept otherwise.
    pub rebuild: Option<Rebuild>,
}

impl Questions {
    /// Those of them that can come up under `terms`.
    #[must_use]
    pub fn fit_for(self, terms: &Terms) -> Self {
        let is_protected = terms.key != KeyRule::Off;
        let is_minimal = is_protected && matches!(terms.retain, Retain::Minimal(_));
        Self {
            probe: self.probe.filter(|_| is_protected),
            authorize: self.authorize.filter(|_| is_protected),
            rebuild: self.rebuild.filter(|_| is_minimal),
        }
    }

    /// The terms with which they are asked, on these ways. Nothing is opened yet. Fails where a probe is to go to an
    /// `https://` address and no certificate authority could be believed.
    pub fn put_to(&self, mut terms: Terms, clients: &ServiceClients) -> Result<Terms, TlsError> {
        if let Some(rebuild) = &self.rebuild {
            terms.retain = rebuild.asked(clients, terms.response_bytes_max);
        }
        terms.authorize = self.authorize.as_ref().map(|authorize| authorize.asked(clients));
        if let Some(probe) = &self.probe {
            terms.reconciler = Some(probe.asked(clients, &terms)?);
        }
        Ok(terms)
    }
}
