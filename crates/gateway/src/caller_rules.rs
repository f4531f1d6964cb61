//! Puts the rules for callers under the layer: what they need from it, and what it asks them.

use http::request::Parts;
use http::{Extensions, HeaderMap, HeaderName};
use semel::core::scope::Caller;
use semel::core::time::Time;
use semel_http::{Callers, Layer, NotIdentified, names};
use semel_identity::{CallerError, Clock, HttpLayer, Identity, IdentityError, IdentityRules, Peer};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The headers that have another meaning for Semel.
static OUR_HEADERS: [HeaderName; 8] = [
    names::KEY,
    names::OPERATION_ID,
    names::ATTEMPT,
    names::FENCE,
    names::OUTCOME,
    names::REPLAYED,
    names::EXPIRES,
    names::STORED,
];

/// Refuses settings that would trust the wrong callers. Reports everything that is wrong, not only the first.
pub fn check(identity: &Identity) -> Result<(), Vec<IdentityError>> {
    identity.check(&OUR_HEADERS)
}

/// The started rules, as the layer asks them: the default, and the operations' own. Clones share them.
///
/// Two things must be done with it, and the second refuses every request that the first was not done to: [`prepare`]
/// *every* request first of all, protected or not; and put the layer [`under`] it, and each route with its own rule
/// under [that rule](Self::callers_of).
///
/// [`prepare`]: Self::prepare
/// [`under`]: Self::under
#[derive(Clone, Debug)]
pub struct CallerRules {
    rules: IdentityRules,
    /// One for each rule, in their order. The layer treats callers that were made separately as different.
    callers: Arc<[Callers]>,
}

impl CallerRules {
    /// Checks the settings, loads their keys, and refreshes these as long as the rules, or anything made from them,
    /// exist. `peer` finds out from a request's extensions where it came from.
    ///
    /// Needs a tokio runtime. Waits for one load of each issuer's keys, one after the other, each with its timeout.
    pub async fn start(
        default: Identity,
        clock: Arc<dyn semel::Clock>,
        peer: impl Fn(&Extensions) -> Option<Peer> + Send + Sync + 'static,
    ) -> Result<Self, Vec<IdentityError>> {
        Self::start_beside(default, Vec::new(), None, clock, peer).await
    }

    /// The same if operations have their own rules: `others`. Keys of several rules are loaded once. Keys that
    /// `running` has fetched under the same settings are taken over without waiting, also while the URL is down.
    pub async fn start_beside(
        default: Identity,
        others: Vec<Identity>,
        running: Option<&Self>,
        clock: Arc<dyn semel::Clock>,
        peer: impl Fn(&Extensions) -> Option<Peer> + Send + Sync + 'static,
    ) -> Result<Self, Vec<IdentityError>> {
        let layer = HttpLayer { peer: Box::new(peer), by_authorization, reserved_headers: &OUR_HEADERS };
        let running = running.map(|running| &running.rules);
        let rules =
            IdentityRules::start(default, others, running, Arc::new(EngineClock(clock)), layer).await?;
        let callers = rules.rules().map(|rule| {
            let (rule, description) = (Arc::clone(rule), rule.description());
            let identify = move |parts: &Parts| rule.identify(parts).map_err(not_identified);
            Callers::in_tenants(identify).described(description)
        });
        let callers = callers.collect();
        Ok(Self { rules, callers })
    }

    /// Removes headers that only a trusted proxy may set; see [`IdentityRules::prepare`].
    pub fn prepare(&self, headers: &mut HeaderMap, extensions: &mut Extensions) {
        self.rules.prepare(headers, extensions);
    }

    /// The layer, with callers and tenants identified by the default rule.
    #[must_use]
    pub fn under(&self, layer: Layer) -> Layer {
        layer.callers(self.callers())
    }

    /// How callers and tenants are identified by default. A request without a tenant is refused as well.
    pub fn callers(&self) -> Callers {
        self.callers.first().cloned().unwrap_or_default()
    }

    /// The same with an operation's own rule; `None` if it was not started.
    pub fn callers_of(&self, identity: &Identity) -> Option<Callers> {
        let index = self.rules.rules().position(|rule| rule.settings() == identity)?;
        self.callers.get(index).cloned()
    }
}

/// The caller by `Authorization`, as the layer identifies it. A refusal names the setting that an operator can change.
fn by_authorization(parts: &Parts, setting: &str) -> Result<Caller, CallerError> {
    Callers::by_authorization().identify(parts).map_err(|why| match why {
        NotIdentified::SeveralAuthorizations => CallerError::Rejected(format!(
            "The request has several Authorization headers; send one. (Service: or name another source in {setting}.)"
        )),
        NotIdentified::Scheme => CallerError::Rejected(format!(
            "The Authorization header is neither Basic nor Bearer, and may differ on every retry. (Service: name \
             another source in {setting}, such as `api-key:HEADER`, or `anonymous`.)"
        )),
        NotIdentified::CookieOnly => CallerError::Missing(format!(
            "The request has a Cookie and no Authorization header, so its session cannot be identified. (Service: \
             name the session's cookie in {setting} as `cookie:NAME`, or write `anonymous`.)"
        )),
        other if other.is_rejection() => CallerError::Rejected(other.to_string()),
        other => CallerError::Missing(other.to_string()),
    })
}

fn not_identified(why: CallerError) -> NotIdentified {
    match why {
        CallerError::Missing(why) => NotIdentified::Because(why.into()),
        CallerError::Rejected(why) => NotIdentified::Rejected(why.into()),
    }
}

/// The engine's clock, as the rules ask it.
struct EngineClock(Arc<dyn semel::Clock>);

impl Clock for EngineClock {
    fn now(&self) -> Time {
        self.0.now()
    }

    fn uptime(&self) -> Duration {
        self.0.uptime()
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.0.sleep(span)
    }
}
