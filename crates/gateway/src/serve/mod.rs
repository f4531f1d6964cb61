//! From a plan to a running gateway.
//!
//! What lives here: which part is wired to which, and in which order they start and stop. What must never: what any of them
//! does.

mod alarms;
mod announce;
pub mod demo;
mod signals;

use crate::forward::{self, Client, Inbound, Outbound};
use crate::listen::{self, Bound, Peer};
use crate::stores::{self, Opened};
use crate::upstream::{self, Upstream};
use semel::{Clock as _, Engine, Observer, SystemClock};
use semel_http::{Callers, Layer, Terms};
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tower_layer::Layer as _;
use tracing::{info, warn};

/// What a gateway is to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The service behind it.
    pub target: upstream::Target,
    /// How clients reach it.
    pub listen: listen::Options,
    /// How it reaches the service.
    pub upstream: upstream::Options,
    /// Where records are kept.
    pub store: stores::Url,
    /// The terms of every route.
    pub terms: Terms,
    /// How callers are told apart.
    pub callers: Callers,
    /// Whether that is not at all.
    pub is_anonymous: bool,
}

/// A gateway that is bound to its address and has its store open.
pub struct Gateway {
    plan: Plan,
    bound: Bound,
    engine: Engine,
    store: Opened,
    service: Inbound<semel_http::Service<Outbound>>,
}

impl Gateway {
    /// Opens the store and binds the address. Clients that connect from now on are served once it [runs](Self::run).
    pub async fn open(plan: Plan) -> Result<Self, String> {
        Self::observed(plan, alarms::Alarms).await
    }

    /// The same, with somebody else who watches.
    pub async fn observed(plan: Plan, observer: impl Observer) -> Result<Self, String> {
        // The address first: it is what most often goes wrong, and leaves nothing behind.
        let bound = Bound::bind(&plan.listen).await.map_err(|error| error.to_string())?;
        let upstream =
            Upstream::new(plan.target.clone(), plan.upstream.clone()).map_err(|error| error.to_string())?;
        let store = Opened::open(&plan.store)?;
        let engine = Engine::builder(Arc::clone(&store.store)).observer(observer).build().await;
        let engine = engine.map_err(|error| format!("{} cannot be used: {error}", plan.store))?;
        let layer = Layer::new(engine.clone(), plan.terms.clone()).map_err(|error| error.to_string())?;
        let layer = layer
            .callers(plan.callers.clone())
            .address(|parts| parts.extensions.get::<Peer>().map(|peer| peer.address.ip()))
            .publishing("");
        let forwarding = forward::Options::default().client(|extensions| {
            let Peer { address, is_tls, .. } = extensions.get::<Peer>()?;
            Some(Client { address: address.ip(), is_tls: *is_tls })
        });
        let guarded = layer.layer(Outbound::new(upstream, forwarding));
        let service = Inbound::new(guarded, forward::Rules::default());
        Ok(Self { plan, bound, engine, store, service })
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// The engine under it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What is printed at start.
    pub async fn announcement(&self) -> String {
        let store = &self.store.store;
        announce::text(&self.plan, self.address(), store.capabilities(), store.hazards().await)
    }

    /// Serves until `stop`, then ends what runs within the drain time, in an orderly way.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { plan, bound, engine, store, service } = self;
        let drain = plan.listen.drain;
        let clock = SystemClock;
        let mut asked_at = None;
        let stop = async {
            stop.await;
            asked_at = Some(clock.uptime());
        };
        let drained = bound.serve(service, stop).await;
        let took = asked_at.map_or(Duration::ZERO, |at| clock.uptime().saturating_sub(at));
        // What clients left behind still runs: it has at least a moment to store how it ended.
        let farewell = engine.shutdown(drain.saturating_sub(took).max(Duration::from_secs(1))).await;
        store.close().await;
        if drained.cut_off > 0 || farewell.cut_off > 0 || farewell.unstored > 0 {
            warn!(
                connections = drained.cut_off,
                attempts = farewell.cut_off,
                unstored = farewell.unstored,
                "the drain time was over before everything had ended; what was cut off is told as unknown"
            );
        } else {
            info!("everything has ended");
        }
    }
}

/// Serves until the process is asked to end. A second time ends it at once.
pub async fn run(plan: Plan) -> Result<ExitCode, String> {
    let gateway = Gateway::open(plan).await?;
    say(&format!("semel {}\n\n{}", env!("CARGO_PKG_VERSION"), gateway.announcement().await));
    let stop = async {
        signals::asked_to_end().await;
        info!("asked to end; draining");
    };
    let served = gateway.run(stop);
    let twice = async {
        signals::asked_to_end().await;
        signals::asked_to_end().await;
    };
    tokio::select! {
        () = served => Ok(ExitCode::SUCCESS),
        () = twice => {
            warn!("asked twice: ending now; what was under way is told as unknown once its lease is over");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Prints, and does not mind where nobody reads.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
