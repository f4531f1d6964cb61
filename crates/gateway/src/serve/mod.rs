//! From a plan to a running gateway.
//!
//! What lives here: which part is wired to which, and in which order they start and stop. What must never: what any of them
//! does.

mod alarms;
mod announce;
pub mod demo;
mod desk;
mod entrance;
mod lines;
mod plan;
mod signals;

pub use plan::{Operation, Plan};

use crate::config::Mistake;
use crate::forward::{self, Client, Inbound, Outbound};
use crate::identity::{self, Live};
use crate::listen::{Bound, Peer};
use crate::metrics::{Census, Metrics};
use crate::stores::Opened;
use crate::trace::Traced;
use crate::upstream::Upstream;
use desk::Desk;
use entrance::{Entrance, Known, Way};
use semel::core::store::Clock as _;
use semel::{Clock as _, Engine, Observer, SystemClock};
use semel_http::{Callers, Layer, Routes};
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tower_layer::Layer as _;
use tracing::{error, info, warn};

/// A gateway that is bound to its address and has its store open.
pub struct Gateway {
    plan: Plan,
    bound: Bound,
    engine: Engine,
    store: Opened,
    entrance: Entrance,
    desk: Option<Desk>,
    is_draining: Arc<AtomicBool>,
    metrics: Metrics,
}

impl Gateway {
    /// Opens the store and binds the address. Clients that connect from now on are served once it [runs](Self::run).
    pub async fn open(plan: Plan) -> Result<Self, String> {
        // The address first: it is what most often goes wrong, and leaves nothing behind.
        let bound = Bound::bind(&plan.listen).await.map_err(|error| error.to_string())?;
        let sides = Sides::of(&plan).await?;
        let store = Opened::open(&plan.store)?;
        let metrics = Metrics::new(SystemClock.now());
        if let Some(tracer) = &plan.tracer {
            metrics.count_spans(tracer.counts());
        }
        let observers: Vec<Arc<dyn Observer>> = vec![Arc::new(alarms::Alarms), Arc::new(metrics.clone())];
        let mut builder =
            Engine::builder(Arc::clone(&store.store)).observer(observers).quotas(plan.quotas.clone());
        if let Some(ring) = &plan.sealing {
            builder = builder.sealing(ring.clone());
        }
        let engine = builder.build().await;
        let engine = engine.map_err(|error| format!("{} cannot be used: {error}", plan.store))?;
        let is_draining = Arc::new(AtomicBool::new(false));
        let desk = match plan.admin {
            Some(address) => Some(Desk::open(address, &engine, &metrics, &is_draining).await?),
            None => None,
        };
        let entrance = Entrance::new(sides.joined(&plan, &engine, &metrics), plan.tracer.clone());
        Ok(Self { plan, bound, engine, store, entrance, desk, is_draining, metrics })
    }

    /// What takes new plans while the gateway runs.
    pub fn reloading(&self) -> Reloading {
        let (plan, engine, entrance) = (self.plan.clone(), self.engine.clone(), self.entrance.clone());
        Reloading { plan, engine, entrance, metrics: self.metrics.clone() }
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
        let desk = self.desk.as_ref().map(Desk::address);
        announce::text(&self.plan, self.address(), desk, store.capabilities(), store.hazards().await)
    }

    /// Serves until `stop`, then ends what runs within the drain time, in an orderly way.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { plan, bound, engine, store, entrance, desk, is_draining, metrics } = self;
        let drain = plan.listen.drain;
        let clock = SystemClock;
        let mut asked_at = None;
        let (leave, left) = oneshot::channel::<()>();
        let served = desk.map(|desk| tokio::spawn(desk.run(async { drop(left.await) })));
        // Whoever cannot be asked need not count.
        let census = served.as_ref().map(|_| {
            let (store, clock) = (Arc::clone(engine.store()), Arc::new(SystemClock));
            tokio::spawn(Census { store, metrics, clock }.run())
        });
        let (silence, silenced) = oneshot::channel::<()>();
        let exported = plan.tracer.clone().map(|tracer| {
            tokio::spawn(async move {
                if let Err(error) = tracer.export(async { drop(silenced.await) }).await {
                    error!("spans cannot be sent: {error}");
                }
            })
        });
        let stop = async {
            stop.await;
            is_draining.store(true, Ordering::Relaxed);
            asked_at = Some(clock.uptime());
        };
        let drained = bound.serve(entrance, stop).await;
        let took = asked_at.map_or(Duration::ZERO, |at| clock.uptime().saturating_sub(at));
        // What clients left behind still runs: it has at least a moment to store how it ended.
        let farewell = engine.shutdown(drain.saturating_sub(took).max(Duration::from_secs(1))).await;
        // Operators may look until there is nothing more to see.
        drop(leave);
        if let Some(census) = census {
            census.abort();
            let _ = census.await;
        }
        if let Some(served) = served {
            let _ = served.await;
        }
        store.close().await;
        // The last spans have ended by now.
        drop(silence);
        if let Some(exported) = exported {
            let _ = exported.await;
        }
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

/// What has to be there before requests can pass from one side to the other. Making it touches no store.
struct Sides {
    upstream: Upstream,
    live: Live,
    routes: Routes,
}

impl Sides {
    async fn of(plan: &Plan) -> Result<Self, String> {
        let routes = plan.routes().map_err(|error| error.to_string())?;
        let upstream = Upstream::new(plan.target.clone(), plan.upstream.clone());
        let upstream = upstream.map_err(|error| error.to_string())?;
        let peer = |extensions: &http::Extensions| {
            let Peer { address, .. } = extensions.get::<Peer>()?;
            // The listener asks clients for no certificate, so that there is no subject to tell.
            Some(identity::Peer { address: address.ip(), subject: None })
        };
        let live = plan.identity.clone().start(Arc::new(SystemClock), peer).await;
        let live = live.map_err(|found| {
            let told: Vec<_> = found.iter().map(ToString::to_string).collect();
            told.join("\n")
        })?;
        Ok(Self { upstream, live, routes })
    }

    /// Everything between the listener and the upstream.
    fn joined(self, plan: &Plan, engine: &Engine, metrics: &Metrics) -> Way {
        let Self { upstream, live, routes } = self;
        metrics.call_by(&routes);
        let layer = Layer::routed(engine.clone(), routes)
            .address(|parts| parts.extensions.get::<Peer>().map(|peer| peer.address.ip()))
            .observer(Both(Both(alarms::Alarms, lines::Lines), metrics.clone()));
        // Where nothing is protected there is nothing to publish, and every path is the upstream's.
        let layer = if plan.is_any_protected() { layer.publishing("") } else { layer };
        // The same rules as `live` would follow; the specification names these two by what they mean.
        let layer = match plan.identity.tenant {
            identity::Tenant::None if plan.identity.sources.is_empty() => {
                layer.callers(Callers::by_authorization())
            }
            identity::Tenant::None if plan.is_anonymous() => layer.callers(Callers::all_anonymous()),
            _ => live.under(layer),
        };
        let forwarding = forward::Options::default().host(plan.host).client(|extensions| {
            let Peer { address, is_tls, .. } = extensions.get::<Peer>()?;
            Some(Client { address: address.ip(), is_tls: *is_tls })
        });
        let guarded = layer.layer(Traced::new(Outbound::new(upstream, forwarding)));
        Inbound::new(Known::new(guarded, live), plan.rules())
    }
}

/// Two who watch the layer.
struct Both<A, B>(A, B);

impl<A: semel_http::Observer, B: semel_http::Observer> semel_http::Observer for Both<A, B> {
    fn observe(&self, event: &semel_http::Event<'_>) {
        self.0.observe(event);
        self.1.observe(event);
    }

    fn began(&self, operation: &str) {
        self.0.began(operation);
        self.1.began(operation);
    }

    fn ended(&self, operation: &str) {
        self.0.ended(operation);
        self.1.ended(operation);
    }
}

/// Where a running gateway takes a new plan.
pub struct Reloading {
    plan: Plan,
    engine: Engine,
    entrance: Entrance,
    metrics: Metrics,
}

impl Reloading {
    /// Has every request from now on served under `plan`, and no request that has begun. Gives back what of it cannot change
    /// before the next start, and was kept as it is. On an error nothing has changed.
    pub async fn take(&mut self, plan: Plan) -> Result<Vec<&'static str>, String> {
        let sides = Sides::of(&plan).await?;
        self.entrance.replace(sides.joined(&plan, &self.engine, &self.metrics));
        // What is in use stays what is compared with, or the second reload would not tell.
        let held = [
            ("[listen]", format!("{:?}", plan.listen) != format!("{:?}", self.plan.listen)),
            ("[admin]", plan.admin != self.plan.admin),
            ("[store]", plan.store != self.plan.store),
            ("[quotas]", plan.quotas != self.plan.quotas),
            ("[otlp]", format!("{:?}", plan.tracer) != format!("{:?}", self.plan.tracer)),
            ("[sealing]", format!("{:?}", plan.sealing) != format!("{:?}", self.plan.sealing)),
        ];
        Ok(held.into_iter().filter(|(_, is_other)| *is_other).map(|(name, _)| name).collect())
    }
}

/// Reads the configuration anew: a plan, or everything that is wrong.
pub type Reread = dyn Fn() -> Result<Plan, Vec<Mistake>> + Send + Sync;

/// Serves until the process is asked to end; a second time ends it at once. Takes a new plan from `reread`, where there is
/// one, whenever the process is asked to.
pub async fn run(plan: Plan, reread: Option<Box<Reread>>) -> Result<ExitCode, String> {
    let gateway = Gateway::open(plan).await?;
    // Before anybody is told that there is a process to signal.
    let reloads = reread.map(|reread| (gateway.reloading(), reread, signals::Reloads::new()));
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
        never = reload(reloads) => match never {},
    }
}

/// Takes new plans for as long as it is polled.
async fn reload(reloads: Option<(Reloading, Box<Reread>, signals::Reloads)>) -> Infallible {
    let Some((mut reloading, reread, mut asked)) = reloads else { return std::future::pending().await };
    loop {
        asked.next().await;
        match reread() {
            Ok(plan) => match reloading.take(plan).await {
                Ok(held) => {
                    info!("the configuration was read anew, and holds for every new request");
                    for part in held {
                        warn!("{part} has changed, which takes effect at the next start only");
                    }
                }
                Err(why) => {
                    error!("the configuration was read anew and cannot be used; the old one holds on: {why}");
                }
            },
            Err(mistakes) => {
                for mistake in &mistakes {
                    error!("{mistake}");
                }
                error!(mistakes = mistakes.len(), "the configuration has mistakes; the old one holds on");
            }
        }
    }
}

/// Prints, and does not mind where nobody reads.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
