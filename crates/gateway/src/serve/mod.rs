//! From a plan to a running gateway.
//!
//! What lives here: which part is wired to which, and in which order they start and stop. What must never: what any of them
//! does.

mod alarms;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) mod allocator;
mod announce;
pub mod demo;
mod desk;
mod entrance;
mod keeping;
mod ledgers;
mod lines;
mod plan;
pub(crate) mod requests;
mod rotation;
mod sides;
mod signals;
mod unsealed;

pub use keeping::{Hashing, Keeping, Limits, Next};
pub use plan::{Admin, Operation, Plan};

use crate::ask::Directory;
use crate::cli::table::Screen;
use crate::config::Mistake;
use crate::identity::Live;
use crate::listen::{self, Bound, Credentials, Fresh};
use crate::logging::Form;
use crate::metrics::{Census, Metrics};
use crate::shadow::Tally;
use desk::{Desk, Seat};
use entrance::Entrance;
use ledgers::Ledgers;
use requests::Requests;
use semel::core::store::{Clock as _, OpenOptions, Store};
use semel::secrets::Bounded;
use semel::{Clock as _, Engine, Observer, SystemClock};
use semel_http::Layer;
use sides::Sides;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// A gateway that is bound to its address and has its store open.
pub struct Gateway {
    plan: Plan,
    bound: Bound,
    engine: Engine,
    store: Arc<dyn Store>,
    entrance: Entrance,
    layer: Layer,
    directory: Directory,
    ledgers: Ledgers,
    live: Live,
    desk: Option<Desk>,
    is_draining: Arc<AtomicBool>,
    metrics: Metrics,
    shadow: Tally,
}

impl Gateway {
    /// Opens the store and binds the address. Clients that connect from now on are served once it [runs](Self::run).
    pub async fn open(plan: Plan) -> Result<Self, String> {
        // The address first: it is what most often goes wrong, and leaves nothing behind.
        plan.listen.prefix.replace(&plan.prefix);
        plan.listen.proxies.replace(plan.is_proxy());
        let bound = Bound::bind(&plan.listen).await.map_err(|error| error.to_string())?;
        let desk = match &plan.admin {
            Some(admin) => Some((admin, desk::bind(admin).await?)),
            None => None,
        };
        plan.check_certificates(&plan.listen)?;
        let ledgers = Ledgers::new(&plan)?;
        let metrics = Metrics::new(SystemClock.now());
        let sides = Sides::of(&plan, &ledgers, &metrics, None).await?;
        let live = sides.live.clone();
        let options = OpenOptions { is_archived: plan.keeping.archive.is_some(), ..OpenOptions::default() };
        let store = plan.store.open_with(&options).await?;
        let next = &plan.keeping.hashing.next;
        if *next == Next::Withdrawn {
            let timeout = plan.keeping.settings.store_timeout;
            rotation::withdraw(Bounded::new(&*store, &SystemClock, timeout)).await?;
        }
        if let Some(tracer) = &plan.tracer {
            metrics.count_spans(tracer.counts());
        }
        if !plan.keeping.settings.sweep.every.is_zero() {
            metrics.expect_sweeps();
        }
        let shadow = Tally::new(SystemClock.now());
        let observers: Vec<Arc<dyn Observer>> =
            vec![Arc::new(alarms::Alarms::new(metrics.clone())), Arc::new(metrics.clone())];
        let directory = Directory::new(sides.routes.clone());
        let asked = directory.clone();
        let builder = keeping::builder(&plan, &store)?
            .observer(observers)
            .reconcilers(move |operation| asked.reconciler_of(operation));
        let engine = builder.build().await;
        let engine = engine.map_err(|error| {
            let remedy = rotation::remedy(&error, next);
            format!("{} cannot be used: {error}{remedy}", plan.store)
        })?;
        if plan.sealing.is_none() {
            let timeout = plan.keeping.settings.store_timeout;
            unsealed::warn_of_others(&*store, SystemClock.now(), timeout).await;
        }
        let is_draining = Arc::new(AtomicBool::new(false));
        let desk = desk
            .map(|(admin, bound)| Desk::open(bound, admin, &engine, &metrics, &shadow, &is_draining))
            .transpose()?;
        let joined = sides.joined(&plan, &engine, &metrics, &shadow, None);
        let (way, layer) = joined.map_err(|error| error.to_string())?;
        let requests = Requests::new(metrics.clone(), plan.logs_requests);
        let entrance = Entrance::new(way, plan.tracer.clone(), requests);
        Ok(Self {
            plan,
            bound,
            engine,
            store,
            entrance,
            layer,
            directory,
            ledgers,
            live,
            desk,
            is_draining,
            metrics,
            shadow,
        })
    }

    /// What takes new plans while the gateway runs.
    pub fn reloading(&self) -> Reloading {
        let (plan, engine, entrance) = (self.plan.clone(), self.engine.clone(), self.entrance.clone());
        let (seat, directory) = (self.desk.as_ref().map(Desk::seat), self.directory.clone());
        let (metrics, shadow) = (self.metrics.clone(), self.shadow.clone());
        let (credentials, ledgers) = (self.bound.credentials(), self.ledgers.clone());
        let (live, layer) = (self.live.clone(), self.layer.clone());
        Reloading {
            plan,
            engine,
            entrance,
            layer,
            directory,
            ledgers,
            live,
            seat,
            credentials,
            metrics,
            shadow,
        }
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// The engine under it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Says what it protects, with which guarantee, on which store, and what is dangerous: on standard output, or where log lines
    /// are JSON, in log lines.
    pub async fn announce(&self) {
        let store = &self.store;
        let desk = self.desk.as_ref().map(Desk::address);
        let hazards = store.hazards().await;
        let said = announce::announce(&self.plan, self.address(), desk, store.capabilities(), hazards);
        match self.plan.log {
            Form::Text => {
                let said = said.text(Screen::of_stdout().width);
                say(&format!("semel {}\n\n{said}", env!("CARGO_PKG_VERSION")));
            }
            Form::Json => said.log(),
        }
    }

    /// Serves until `stop`, then ends what runs within the drain time, in an orderly way.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self { plan, bound, engine, store, entrance, desk, is_draining, metrics, .. } = self;
        let drain = plan.listen.drain;
        let clock = SystemClock;
        let mut asked_at = None;
        let (leave, left) = oneshot::channel::<()>();
        let served = desk.map(|desk| tokio::spawn(desk.run(async { drop(left.await) })));
        let rotation = match &plan.keeping.hashing.next {
            Next::Secret(next) => {
                let timeout = plan.keeping.settings.store_timeout;
                Some(tokio::spawn(rotation::run(Arc::clone(&store), timeout, next.clone())))
            }
            Next::None | Next::Withdrawn => None,
        };
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
        if let Some(rotation) = rotation {
            // Each of its steps is one write, and whoever comes next takes it up.
            rotation.abort();
            let _ = rotation.await;
        }
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
                "the drain time ended before all requests had; the outcome of what was cut off is unknown"
            );
        } else {
            info!("stopped; every request has ended");
        }
    }
}

/// Where a running gateway takes a new plan.
pub struct Reloading {
    plan: Plan,
    engine: Engine,
    entrance: Entrance,
    layer: Layer,
    directory: Directory,
    ledgers: Ledgers,
    live: Live,
    seat: Option<Seat>,
    credentials: Option<Credentials>,
    metrics: Metrics,
    shadow: Tally,
}

impl Reloading {
    /// Has every request from now on served under `plan`, and no request that has begun; and every handshake from now on go by
    /// the files of TLS that it names, as they are now. Gives back what of it cannot change before the next start, and was kept
    /// as it is. On an error nothing has changed.
    pub async fn take(&mut self, plan: Plan) -> Result<Vec<&'static str>, String> {
        let listen = self.plan.listen.renewed(&plan.listen);
        plan.check_certificates(&listen)?;
        let shown =
            read_anew(self.credentials.as_ref(), plan.listen.tls.as_ref(), plan.listen.clients.as_ref())?;
        let ledgers = self.ledgers.renewed(&plan)?;
        let sides = Sides::of(&plan, &ledgers, &self.metrics, Some(&self.live)).await?;
        let (routes, live) = (sides.routes.clone(), sides.live.clone());
        let seated = match (&self.seat, &plan.admin) {
            (Some(seat), Some(admin)) => {
                let shown = read_anew(seat.credentials(), admin.tls.as_ref(), None)?;
                Some((seat, seat.made(&admin.options)?, shown))
            }
            _ => None,
        };
        // First, since routes are joined only to an engine that knows whom to ask about them.
        let before = self.directory.replace(routes);
        let joined = sides.joined(&plan, &self.engine, &self.metrics, &self.shadow, Some(&self.layer));
        let (way, layer) = joined.map_err(|error| {
            self.directory.replace(before);
            format!("{error}. Keys of [sealing] are read at a start only")
        })?;
        // Nothing fails from here on.
        if let Some((seat, made, shown)) = seated {
            seat.replace(made);
            if let Some((credentials, fresh)) = shown {
                credentials.replace(fresh);
            }
        }
        if let Some((credentials, fresh)) = shown {
            credentials.replace(fresh);
        }
        self.plan.listen = listen;
        self.plan.listen.prefix.replace(&plan.prefix);
        self.plan.listen.proxies.replace(plan.is_proxy());
        if let (Some(old), Some(new)) = (&mut self.plan.admin, &plan.admin) {
            old.renew(new);
        }
        self.ledgers = ledgers;
        self.live = live;
        self.layer = layer;
        self.entrance.replace(way);
        // What is in use stays what is compared with, or the second reload would not tell.
        Ok(plan.held_back(&self.plan))
    }
}

/// The files of TLS as they are now, for a socket that speaks it and is to go on with it.
fn read_anew<'c>(
    credentials: Option<&'c Credentials>,
    tls: Option<&listen::Tls>,
    clients: Option<&listen::Clients>,
) -> Result<Option<(&'c Credentials, Fresh)>, String> {
    let (Some(credentials), Some(tls)) = (credentials, tls) else { return Ok(None) };
    let fresh = Fresh::read(tls, clients).map_err(|error| error.to_string())?;
    Ok(Some((credentials, fresh)))
}

/// Reads the configuration anew: a plan, or everything that is wrong.
pub type Reread = dyn Fn() -> Result<Plan, Vec<Mistake>> + Send + Sync;

/// Serves until the process is asked to end; a second time ends it at once. Takes a new plan from `reread`, where there is
/// one, whenever the process is asked to.
pub async fn run(plan: Plan, reread: Option<Box<Reread>>) -> Result<ExitCode, String> {
    // A reload that is asked for while the store opens is done once it is open, and ends nothing.
    let hangups = reread.map(|reread| (reread, signals::Reloads::new()));
    let gateway = Gateway::open(plan).await?;
    // Before anybody is told that there is a process to signal. Until then it ends as any process does: nothing is under way.
    let (to_drain, once) = (signals::asked_to_end(), signals::asked_to_end());
    let reloads = hangups.map(|(reread, asked)| (gateway.reloading(), reread, asked));
    gateway.announce().await;
    let stop = async {
        to_drain.await;
        info!("stopping: waiting for running requests to end");
    };
    let served = gateway.run(stop);
    let twice = async {
        once.await;
        signals::asked_to_end().await;
    };
    tokio::select! {
        () = served => Ok(ExitCode::SUCCESS),
        () = twice => {
            warn!("asked to stop twice: stopping now; the outcome of running requests is unknown as soon as their leases end");
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
            Ok(plan) => {
                let operations = plan.operations.clone();
                match reloading.take(plan).await {
                    Ok(held) => tell_taken(&operations, &held),
                    Err(why) => {
                        error!(
                            "the configuration was read again and cannot be used; the old one stays in force: {why}"
                        );
                    }
                }
            }
            Err(mistakes) => {
                for mistake in &mistakes {
                    error!("{mistake}");
                }
                error!(
                    mistakes = mistakes.len(),
                    "the configuration has mistakes; the old one stays in force"
                );
            }
        }
    }
}

/// Tells what holds from now on, and what does not yet.
fn tell_taken(operations: &[Operation], held: &[&str]) {
    info!("the configuration was read again, and applies to every new request");
    for operation in operations {
        if let Some(callers) = operation.callers() {
            info!(operation = operation.title(), "{callers}");
        }
    }
    for part in held {
        warn!("{part} has changed; this takes effect at the next start");
    }
}

/// Prints, and does not mind where nobody reads.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
}
