//! Starts and stops a gateway from a plan: which part is wired to which, and in which order.

mod admin_address;
mod alarms;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) mod allocator;
mod announce;
pub mod demo;
mod error;
mod ledgers;
mod lines;
mod pipeline;
mod repeated;
mod requests;
mod rotation;
mod routes;
mod signals;
mod stack;
mod starting;
pub(crate) mod storage;

use crate::callbacks::Directory;
use crate::caller_rules::CallerRules;
use crate::config::{ConfigError, Next, Operation, Plan};
use crate::{terminal, unsealed};
use admin_address::{AdminHandle, AdminServer};
pub use error::ServeError;
use ledgers::Ledgers;
use pipeline::PipelineHandle;
use requests::Requests;
use semel::core::store::{Clock as _, OpenOptions, Store};
use semel::core::time::Time;
use semel::{BuildError, Clock as _, Engine, Observer, SystemClock, secrets};
use semel_admin::AccessRefusal;
use semel_admin::shadow::Tally;
use semel_http::Layer;
use semel_proxy::listen::{self, Bound, Credentials, LoadedTls};
use semel_proxy::upstream::UpstreamError;
use semel_telemetry::logging::Form;
use semel_telemetry::metrics::{Census, Kinds, Metrics};
use stack::Stack;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// A gateway with its address bound and its store open.
pub struct Gateway {
    plan: Plan,
    bound: Bound,
    engine: Engine,
    store: Arc<dyn Store>,
    pipeline: PipelineHandle,
    layer: Layer,
    directory: Directory,
    ledgers: Ledgers,
    caller_rules: CallerRules,
    admin_address: Option<AdminServer>,
    is_draining: Arc<AtomicBool>,
    metrics: Metrics,
    shadow: Tally,
    /// The codes of the hazards in the start-up text, if it was printed.
    announced: Option<BTreeSet<&'static str>>,
}

/// Metrics in which every kind of error and refusal has a series.
fn new_metrics() -> Metrics {
    let kinds = Kinds {
        upstream_errors: &UpstreamError::ALL.map(UpstreamError::name),
        admin_refusals: &AccessRefusal::ALL.map(AccessRefusal::name),
    };
    Metrics::new(SystemClock.now(), kinds)
}

impl Gateway {
    /// Opens the store and binds the address. Clients that connect are served as soon as it [runs](Self::run).
    pub async fn open(plan: Plan) -> Result<Self, ServeError> {
        // The address comes first: it fails most often, and then nothing else was changed.
        plan.listen.prefix.replace(&plan.prefix);
        plan.listen.proxies.replace(plan.is_proxy());
        let metrics = new_metrics();
        let requests = Requests::new(metrics.clone(), plan.logs_requests);
        let listen = listen::Options { refusals: requests.refusals(), ..plan.listen.clone() };
        let mut bound = Some(bind(&plan, &listen, &metrics).await?);
        check_certificates(&plan, &plan.listen)?;
        let ledgers = Ledgers::new(&plan)?;
        let stack = Stack::of(&plan, &ledgers, &metrics, None).await?;
        let caller_rules = stack.caller_rules.clone();
        let options = OpenOptions {
            request_timeout: Some(plan.storage.settings.request_timeout),
            ..OpenOptions::default()
        };
        // While it waits for the store, nothing can be answered: clients are refused, and do not hang.
        let store = starting::open(&plan.store, &options, &SystemClock, || bound = None).await?;
        let (bound, admin_address) = match bound {
            Some(bound) => bound,
            None => bind(&plan, &listen, &metrics).await?,
        };
        let next = &plan.storage.hashing.next;
        if *next == Next::Withdrawn {
            let timeout = plan.storage.settings.store_timeout;
            rotation::withdraw(secrets::Bounded::new(&*store, &SystemClock, timeout)).await?;
        }
        if let Some(tracer) = &plan.tracer {
            metrics.count_spans(tracer.counts());
        }
        if !plan.storage.settings.sweep.every.is_zero() {
            metrics.expect_sweeps();
        }
        let shadow = Tally::new(SystemClock.now());
        let observers: Vec<Arc<dyn Observer>> =
            vec![Arc::new(alarms::Alarms::new(metrics.clone())), Arc::new(metrics.clone())];
        let directory = Directory::new(stack.routes.clone());
        let probe_directory = directory.clone();
        let builder =
            storage::builder(&plan.store, &plan.storage, plan.quotas.clone(), plan.sealing.clone(), &store)?
                .observer(observers)
                .reconcilers(move |operation| probe_directory.reconciler_of(operation));
        let engine = builder.build().await;
        let engine = engine.map_err(|error| match error {
            BuildError::Secrets(secrets::Error::Missing(_)) if *next == Next::None => {
                ServeError::NoSecret(plan.store.clone(), error)
            }
            error => ServeError::Engine(plan.store.clone(), error),
        })?;
        if plan.sealing.is_none() {
            let timeout = plan.storage.settings.store_timeout;
            unsealed::warn_if_sealed_by_others(&*store, SystemClock.now(), timeout).await;
        }
        let is_draining = Arc::new(AtomicBool::new(false));
        let admin_address = admin_address
            .zip(plan.admin.as_ref())
            .map(|(bound, admin)| {
                let limits = admin_address::response_limits(&directory, &plan.upstream);
                AdminServer::open(bound, admin, &engine, &metrics, &shadow, &is_draining, limits)
            })
            .transpose()?;
        show_certificates(
            &metrics,
            bound.credentials().as_ref(),
            admin_address.as_ref().and_then(AdminServer::credentials).as_ref(),
        );
        let (pipeline, layer) = stack.joined(&plan, &engine, &metrics, &shadow, None)?;
        let pipeline = PipelineHandle::new(pipeline, plan.tracer.clone(), requests);
        Ok(Self {
            plan,
            bound,
            engine,
            store,
            pipeline,
            layer,
            directory,
            ledgers,
            caller_rules,
            admin_address,
            is_draining,
            metrics,
            shadow,
            announced: None,
        })
    }

    /// Applies new plans while the gateway runs.
    pub fn reloading(&self) -> Reloading {
        let (plan, engine, pipeline) = (self.plan.clone(), self.engine.clone(), self.pipeline.clone());
        let (admin_handle, directory) =
            (self.admin_address.as_ref().map(AdminServer::admin_handle), self.directory.clone());
        let (metrics, shadow) = (self.metrics.clone(), self.shadow.clone());
        let (credentials, ledgers) = (self.bound.credentials(), self.ledgers.clone());
        let (caller_rules, layer) = (self.caller_rules.clone(), self.layer.clone());
        Reloading {
            plan,
            engine,
            pipeline,
            layer,
            directory,
            ledgers,
            caller_rules,
            admin_handle,
            credentials,
            metrics,
            shadow,
        }
    }

    /// Where clients reach it.
    pub fn address(&self) -> SocketAddr {
        self.bound.address()
    }

    /// Where operators reach it, if it has an admin address.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address.as_ref().map(AdminServer::address)
    }

    /// The engine under it.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Prints what it protects, with which guarantee, on which store, and what is dangerous: to standard output, or as
    /// log lines if the log is JSON.
    pub async fn announce(&mut self) {
        let store = &self.store;
        let admin_address = self.admin_address.as_ref().map(AdminServer::address);
        let hazards = announce::hazards(&**store).await;
        let announcement =
            announce::announce(&self.plan, self.address(), admin_address, store.capabilities(), &hazards);
        self.announced = Some(hazards.into_iter().map(|hazard| hazard.code).collect());
        match self.plan.log {
            Form::Text => {
                let announcement = announcement.text(terminal::width());
                say(&format!("semel {}\n\n{announcement}", env!("CARGO_PKG_VERSION")));
            }
            Form::Json => announcement.log(),
        }
    }

    /// Serves until `stop`, then lets running requests finish within the drain time.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        let Self {
            plan, bound, engine, store, pipeline, admin_address, is_draining, metrics, announced, ..
        } = self;
        let drain = plan.listen.drain;
        let clock = SystemClock;
        let mut asked_at = None;
        let (leave, left) = oneshot::channel::<()>();
        let served =
            admin_address.map(|admin_address| tokio::spawn(admin_address.run(async { drop(left.await) })));
        let rotation = match &plan.storage.hashing.next {
            Next::Secret(next) => {
                let timeout = plan.storage.settings.store_timeout;
                Some(tokio::spawn(rotation::run(Arc::clone(&store), timeout, next.clone())))
            }
            Next::None | Next::Withdrawn => None,
        };
        // If the store does not answer, nothing is counted.
        let census = served.as_ref().map(|_| {
            let (store, clock) = (Arc::clone(engine.store()), Arc::new(SystemClock));
            tokio::spawn(Census { store, metrics, clock, announced }.run())
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
        let drained = bound.serve(pipeline, stop).await;
        let took = asked_at.map_or(Duration::ZERO, |at| clock.uptime().saturating_sub(at));
        // Requests whose clients left are still running: they get at least a moment to store their outcome.
        let farewell = engine.shutdown(drain.saturating_sub(took).max(Duration::from_secs(1))).await;
        if let Some(rotation) = rotation {
            // Each step is one write, and the next node can continue.
            rotation.abort();
            let _ = rotation.await;
        }
        // The admin address stays open until the end.
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
                "the drain time ended before all requests did; the outcome of those that were cut off is unknown"
            );
        } else {
            info!("stopped; every request has ended");
        }
        if farewell.lost_claims > 0 {
            warn!(
                claims = farewell.lost_claims,
                "the store did not acknowledge some claims, and they were not found again before the end; nothing was sent under \
                 them, but those that are in the store run into their leases"
            );
        }
    }
}

/// Applies a new plan to a running gateway.
pub struct Reloading {
    plan: Plan,
    engine: Engine,
    pipeline: PipelineHandle,
    layer: Layer,
    directory: Directory,
    ledgers: Ledgers,
    caller_rules: CallerRules,
    admin_handle: Option<AdminHandle>,
    credentials: Option<Credentials>,
    metrics: Metrics,
    shadow: Tally,
}

impl Reloading {
    /// Serves every new request under `plan`, and uses its TLS files as they are now for every new handshake. Running
    /// requests are not affected. Returns the settings that cannot change before the next start and were kept. On an
    /// error, nothing has changed.
    pub async fn take(&mut self, plan: Plan) -> Result<Vec<&'static str>, ServeError> {
        let listen = self.plan.listen.renewed(&plan.listen);
        check_certificates(&plan, &listen)?;
        let shown =
            read_anew(self.credentials.as_ref(), plan.listen.tls.as_ref(), plan.listen.clients.as_ref())?;
        let ledgers = self.ledgers.renewed(&plan)?;
        let stack = Stack::of(&plan, &ledgers, &self.metrics, Some(&self.caller_rules)).await?;
        let (routes, caller_rules) = (stack.routes.clone(), stack.caller_rules.clone());
        let new_admin = match (&self.admin_handle, &plan.admin) {
            (Some(admin_handle), Some(admin)) => {
                let shown = read_anew(admin_handle.credentials(), admin.tls.as_ref(), None)?;
                let limits = admin_address::response_limits(&self.directory, &plan.upstream);
                Some((admin_handle, admin_handle.build(&admin.options, limits)?, shown))
            }
            _ => None,
        };
        // First, because routes need an engine that knows their reconcilers.
        let before = self.directory.replace(routes);
        let joined = stack.joined(&plan, &self.engine, &self.metrics, &self.shadow, Some(&self.layer));
        let (pipeline, layer) = joined.map_err(|error| {
            self.directory.replace(before);
            ServeError::RoutesOfReload(error)
        })?;
        // Nothing fails from here on.
        if let Some((admin_handle, build, shown)) = new_admin {
            admin_handle.replace(build);
            if let Some((credentials, fresh)) = shown {
                credentials.replace(fresh);
            }
        }
        if let Some((credentials, fresh)) = shown {
            credentials.replace(fresh);
        }
        let admin_credentials = self.admin_handle.as_ref().and_then(AdminHandle::credentials);
        show_certificates(&self.metrics, self.credentials.as_ref(), admin_credentials);
        self.plan.listen = listen;
        self.plan.listen.prefix.replace(&plan.prefix);
        self.plan.listen.proxies.replace(plan.is_proxy());
        if let (Some(old), Some(new)) = (&mut self.plan.admin, &plan.admin) {
            old.renew(new);
        }
        self.ledgers = ledgers;
        self.caller_rules = caller_rules;
        self.layer = layer;
        self.pipeline.replace(pipeline);
        // Settings in use stay the reference; otherwise, a second reload would not report them.
        Ok(plan.held_back(&self.plan))
    }
}

/// Binds the address for clients, and the admin address if there is one.
async fn bind(
    plan: &Plan,
    listen: &listen::Options,
    metrics: &Metrics,
) -> Result<(Bound, Option<Bound>), ServeError> {
    let bound = Bound::bind(listen).await?;
    let admin = match &plan.admin {
        Some(admin) => Some(admin_address::bind(admin, metrics).await?),
        None => None,
    };
    Ok((bound, admin))
}

/// Refuses rules by certificate if the running listener does not ask for certificates.
fn check_certificates(plan: &Plan, listen: &listen::Options) -> Result<(), ServeError> {
    let asks_for_certificates = listen.tls.is_some() && listen.clients.is_some();
    let needed = plan.needs_client_certificates() && !asks_for_certificates;
    if needed { Err(ServeError::NoClientCertificates) } else { Ok(()) }
}

/// When the certificates in use expire.
fn show_certificates(metrics: &Metrics, listen: Option<&Credentials>, admin: Option<&Credentials>) {
    let shown = [("listen", listen), ("admin", admin)];
    let expiries: Vec<_> = shown
        .into_iter()
        .filter_map(|(used, credentials)| Some((used, first_expiry(credentials?)?)))
        .collect();
    metrics.show_certificates(&expiries);
}

/// When the first certificate of the chain expires, if that can be read.
fn first_expiry(credentials: &Credentials) -> Option<Time> {
    credentials.chain().iter().filter_map(|certificate| semel_identity::expires_at(certificate)).min()
}

/// The TLS files as they are now, for a socket that keeps using TLS.
fn read_anew<'c>(
    credentials: Option<&'c Credentials>,
    tls: Option<&listen::Tls>,
    clients: Option<&listen::Clients>,
) -> Result<Option<(&'c Credentials, LoadedTls)>, ServeError> {
    let (Some(credentials), Some(tls)) = (credentials, tls) else { return Ok(None) };
    Ok(Some((credentials, LoadedTls::read(tls, clients)?)))
}

/// Reads the configuration again: a plan, or everything that is wrong.
pub type Reread = dyn Fn() -> Result<Plan, Vec<ConfigError>> + Send + Sync;

/// Serves until the process is asked to stop; a second request stops it at once. On each reload signal, takes a new
/// plan from `reread`, if there is one.
pub async fn run(plan: Plan, reread: Option<Box<Reread>>) -> Result<ExitCode, ServeError> {
    // A reload that is requested while the store opens is done afterwards, and stops nothing.
    let hangups = reread.map(|reread| (reread, signals::Reloads::new()));
    let mut gateway = Gateway::open(plan).await?;
    // Before the start-up text tells anybody that there is a process to signal. Until then, a signal ends the process
    // as usual: nothing is running.
    let (to_drain, once) = (signals::shutdown_requested(), signals::shutdown_requested());
    let reloads = hangups.map(|(reread, signals)| (gateway.reloading(), reread, signals));
    gateway.announce().await;
    let stop = async {
        to_drain.await;
        info!("stopping: waiting for running requests to end");
    };
    let served = gateway.run(stop);
    let twice = async {
        once.await;
        signals::shutdown_requested().await;
    };
    tokio::select! {
        // First, so that the second signal is awaited before anybody can notice the first one.
        biased;
        () = twice => {
            warn!("second signal: stopping now; the outcome of running requests is unknown as soon as their \
                leases end");
            Ok(ExitCode::FAILURE)
        }
        () = served => Ok(ExitCode::SUCCESS),
        never = reload(reloads) => match never {},
    }
}

/// Applies new plans as long as it is polled.
async fn reload(reloads: Option<(Reloading, Box<Reread>, signals::Reloads)>) -> Infallible {
    let Some((mut reloading, reread, mut signals)) = reloads else { return std::future::pending().await };
    loop {
        signals.next().await;
        match reread() {
            Ok(plan) => {
                let operations = plan.operations.clone();
                match reloading.take(plan).await {
                    Ok(held) => {
                        reloading.metrics.reloaded(Some(SystemClock.now()));
                        log_applied(&operations, &held);
                    }
                    Err(why) => {
                        reloading.metrics.reloaded(None);
                        error!(
                            "the configuration was read again and cannot be used; the old one stays in force: {why}"
                        );
                    }
                }
            }
            Err(mistakes) => {
                reloading.metrics.reloaded(None);
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

/// Logs what applies from now on, and what does not yet.
fn log_applied(operations: &[Operation], held: &[&str]) {
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

/// Prints, and ignores a closed output.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let printed =
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    // A reader that has seen enough, such as `head`, is no failure.
    if let Err(error) = printed
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        OUTPUT_LOST.store(true, Ordering::Relaxed);
    }
}

/// Whether something that was to be printed could not be.
static OUTPUT_LOST: AtomicBool = AtomicBool::new(false);

/// Whether something that was to be printed could not be: the disk of a file may be full.
pub(crate) fn is_output_lost() -> bool {
    OUTPUT_LOST.load(Ordering::Relaxed)
}
