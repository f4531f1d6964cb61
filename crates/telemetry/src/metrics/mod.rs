//! The gateway's metrics in Prometheus format. Labels are bounded and contain no keys and no paths with IDs.

mod census;
mod family;
mod inboxes;
mod process;
mod watching;

pub use census::Census;
pub use watching::outcome;

use crate::trace;
use family::{Counters, Gauges, Histogram, Histograms, InProgress, REQUEST_BOUNDS, STORE_BOUNDS, seconds};
use http::StatusCode;
use process::Process;
use semel::core::record::StateName;
use semel::core::time::Time;
use semel::{Call, Resolver};
use semel_http::{Code, Routes};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

const CALLS: [Call; 9] = [
    Call::Insert,
    Call::Swap,
    Call::Remove,
    Call::Get,
    Call::Find,
    Call::Due,
    Call::Count,
    Call::Page,
    Call::Beat,
];

/// The label of refusals whose problem has no code: 408, 414 and 431.
const UNCODED: &str = "none";

/// What the time of a request is counted under: its attempt ran, it got a stored outcome, or anything else.
const RAN: &str = "ran";
const REPLAYED: &str = "replayed";

/// The label for everything without its own name.
const OTHER: &str = "other";

/// The kinds that the parts of a gateway count by. Their series exist from the start.
#[derive(Debug, Clone, Copy, Default)]
pub struct Kinds<'a> {
    /// Why a request to the upstream has no complete response.
    pub upstream_errors: &'a [&'static str],
    /// Why a request to the admin address was refused.
    pub admin_refusals: &'a [&'static str],
}

/// The counts since the process started. Cheap to clone; clones share their numbers.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Series>);

#[derive(Debug)]
struct Series {
    began: Time,
    /// The names of operations.
    routes: RwLock<Option<Routes>>,
    claims: Counters,
    refusals: Counters,
    replays: Counters,
    mismatches: Counters,
    shadow: Counters,
    request_took: [(&'static str, Histograms); 3],
    responses: Counters,
    upstream_took: Histograms,
    upstream_errors: Counters,
    under_way: InProgress,
    ended: Counters,
    reconciled: Counters,
    expired: Counters,
    purged: Counters,
    store_took: [Histogram; CALLS.len()],
    store_errors: Counters,
    lease_losses: Counters,
    fenced: Counters,
    quota: Counters,
    alarms: Counters,
    sweep_lag_micros: AtomicU64,
    swept_millis: AtomicU64,
    is_clock_trusted: AtomicBool,
    census: StoreCounts,
    process: Process,
    spans: OnceLock<Arc<trace::Counts>>,
}

/// The counts of the store.
#[derive(Debug, Default)]
struct StoreCounts {
    is_up: AtomicU64,
    looked_millis: AtomicU64,
    walked_millis: AtomicU64,
    states: Gauges,
    unknown: Gauges,
    oldest_unknown: Gauges,
    bytes: Gauges,
    records: Gauges,
    hazards: Gauges,
    inboxes: inboxes::Inboxes,
}

impl Metrics {
    /// Empty counts, for a process that started at this time.
    pub fn new(began: Time, kinds: Kinds<'_>) -> Self {
        let numbers = Series {
            began,
            routes: RwLock::default(),
            claims: Counters::default(),
            refusals: Counters::default(),
            replays: Counters::default(),
            mismatches: Counters::default(),
            shadow: Counters::default(),
            request_took: [RAN, REPLAYED, OTHER].map(|outcome| (outcome, Histograms::new(REQUEST_BOUNDS))),
            responses: Counters::default(),
            upstream_took: Histograms::new(REQUEST_BOUNDS),
            upstream_errors: Counters::default(),
            under_way: InProgress::default(),
            ended: Counters::default(),
            reconciled: Counters::default(),
            expired: Counters::default(),
            purged: Counters::default(),
            store_took: CALLS.map(|_| Histogram::new(STORE_BOUNDS)),
            store_errors: Counters::default(),
            lease_losses: Counters::default(),
            fenced: Counters::default(),
            quota: Counters::default(),
            alarms: Counters::default(),
            sweep_lag_micros: AtomicU64::default(),
            swept_millis: AtomicU64::default(),
            is_clock_trusted: AtomicBool::new(true),
            census: StoreCounts::default(),
            process: Process::new(began, kinds.admin_refusals),
            spans: OnceLock::new(),
        };
        numbers.purged.init(&[]);
        numbers.lease_losses.init(&[]);
        for code in Code::ALL {
            numbers.refusals.init(&[("code", code.as_str())]);
        }
        numbers.refusals.init(&[("code", UNCODED)]);
        for kind in kinds.upstream_errors {
            numbers.upstream_errors.init(&[("kind", kind)]);
        }
        for by in [Resolver::Reconciler, Resolver::Operator] {
            for state in watching::RESOLVED {
                numbers.reconciled.init(&[("state", state.as_str()), ("by", watching::name_of(by))]);
            }
        }
        for call in CALLS {
            numbers.store_errors.init(&[("call", call.name())]);
        }
        for differs in ["true", "false"] {
            numbers.fenced.init(&[("differs", differs)]);
        }
        for alarm in watching::ALARMS {
            numbers.alarms.init(&[("what", alarm)]);
        }
        Self(Arc::new(numbers))
    }

    /// Also shows the counts of spans.
    pub fn count_spans(&self, counts: &Arc<trace::Counts>) {
        // There is one tracer in a process.
        let _ = self.0.spans.set(Arc::clone(counts));
    }

    /// Also shows the sweeper, as one that has done nothing since the process started.
    pub fn expect_sweeps(&self) {
        self.0.swept_millis.store(self.0.began.as_millis(), Ordering::Relaxed);
    }

    /// Uses the labels of `routes` for operations from now on.
    pub fn call_by(&self, routes: &Routes) {
        let numbers = &self.0;
        for label in routes.labels() {
            numbers.replays.init(&[("operation", label)]);
            numbers.expired.init(&[("operation", label)]);
            numbers.under_way.add(label, 0);
            for (_, took) in &numbers.request_took {
                took.init(label);
            }
            numbers.upstream_took.init(label);
            numbers.ended.init(&[("operation", label), ("state", StateName::Unknown.as_str())]);
            for class in ["2xx", "4xx", "5xx"] {
                numbers.responses.init(&[("operation", label), ("class", class)]);
            }
        }
        *numbers.routes.write().unwrap_or_else(PoisonError::into_inner) = Some(routes.clone());
    }

    /// Passes the label of an operation to `count`; a record may name it by a client's path.
    fn with_label<T>(&self, operation: &str, count: impl FnOnce(&str) -> T) -> T {
        let routes = self.0.routes.read().unwrap_or_else(PoisonError::into_inner);
        count(routes.as_ref().map_or(OTHER, |routes| routes.label(operation)))
    }

    /// The name of an operation in logs and labels: its configured name, its route's template, or `other`.
    pub fn label_of(&self, operation: &str) -> String {
        self.with_label(operation, str::to_owned)
    }

    /// A request was answered; `outcome` as in the request log.
    pub fn answered(&self, operation: &str, outcome: &str, status: StatusCode, took: Duration) {
        self.responded(operation, status);
        let [named @ .., (_, others)] = &self.0.request_took;
        let histograms = named.iter().find(|(name, _)| *name == outcome).map_or(others, |(_, named)| named);
        histograms.record(operation, took);
    }

    /// A request to the admin address was refused; `None` if it could not even be read.
    pub fn refused_at_admin(&self, kind: Option<&'static str>) {
        self.0.process.refused(kind);
    }

    /// The configuration was read again: when, or `None` if it cannot be used.
    pub fn reloaded(&self, at: Option<Time>) {
        self.0.process.reloaded(at);
    }

    /// The certificates in use, and when the first of each chain expires.
    pub fn show_certificates(&self, expiries: &[(&'static str, Time)]) {
        self.0.process.show_certificates(expiries);
    }

    /// A request got no further than its connection.
    pub fn refused_unrouted(&self, code: Option<Code>, status: StatusCode) {
        self.refused(code);
        self.responded(OTHER, status);
    }

    fn responded(&self, operation: &str, status: StatusCode) {
        let class = match status.as_u16() / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.0.responses.add(&[("operation", operation), ("class", class)]);
    }

    /// A request was refused before or after the layer, which reports its own refusals.
    pub fn refused(&self, code: Option<Code>) {
        self.0.refusals.add(&[("code", code.map_or(UNCODED, Code::as_str))]);
    }

    /// The upstream answered or failed.
    pub fn upstream_took(&self, operation: &str, took: Duration) {
        self.0.upstream_took.record(operation, took);
    }

    /// The upstream sent no complete response.
    pub fn upstream_failed(&self, kind: &'static str) {
        self.0.upstream_errors.add(&[("kind", kind)]);
    }

    /// All metrics in Prometheus format. `under_way`: how many attempts are running on this node.
    pub fn text(&self, under_way: usize) -> String {
        let mut text = String::new();
        self.write_process(&mut text);
        self.write_requests(&mut text);
        self.write_attempts(under_way, &mut text);
        self.write_store(&mut text);
        text
    }

    fn write_process(&self, text: &mut String) {
        let labels = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
        gauge("semel_build_info", "The version that is running.", &labels, "1", text);
        let began = millis(self.0.began.as_millis());
        gauge("process_start_time_seconds", "When the process started.", "", &began, text);
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Memory in use.", "", &bytes.to_string(), text);
        }
        self.0.process.write(text);
        let name = "semel_spans_total";
        let help = "Spans by result: sent, dropped because the queue was full, or failed to be sent.";
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} counter\n");
        if let Some(spans) = self.0.spans.get() {
            let counts = [("dropped", &spans.dropped), ("failed", &spans.failed), ("sent", &spans.sent)];
            for (kind, count) in counts {
                let _ = writeln!(text, "{name}{{what=\"{kind}\"}} {}", count.load(Ordering::Relaxed));
            }
        }
    }

    fn write_requests(&self, text: &mut String) {
        let numbers = &self.0;
        let families: [(&Counters, &str, &str); 6] = [
            (&numbers.claims, "idempotency_claims_total", "Requests on protected routes, by outcome."),
            (&numbers.refusals, "idempotency_refusals_total", "Requests that were refused, by code."),
            (&numbers.replays, "idempotency_replays_total", "Requests that got a stored outcome."),
            (
                &numbers.mismatches,
                "idempotency_fingerprint_mismatch_total",
                "Keys reused with another payload, by the caller's hash.",
            ),
            (
                &numbers.shadow,
                "idempotency_shadow_total",
                "Requests in shadow mode, by what protection would have done.",
            ),
            (
                &numbers.quota,
                "idempotency_quota_refusals_total",
                "New keys refused by a quota, by the caller's hash.",
            ),
        ];
        for (family, name, help) in families {
            family.write(name, help, text);
        }
        let help = "Responses to requests, by operation and class of the status.";
        numbers.responses.write("semel_responses_total", help, text);
        let help = "How long requests took, from their head to the head of the response.";
        family::write_head("semel_request_seconds", help, text);
        for (outcome, took) in &numbers.request_took {
            took.write_series("semel_request_seconds", Some(("outcome", outcome)), text);
        }
        let help =
            "How long the upstream took, from a request to the head of its response or to its failure.";
        numbers.upstream_took.write("semel_upstream_seconds", help, text);
        let help = "Requests to the upstream without a complete response, by kind of error.";
        numbers.upstream_errors.write("semel_upstream_errors_total", help, text);
    }

    fn write_attempts(&self, under_way: usize, text: &mut String) {
        let numbers = &self.0;
        let help = "Attempts that are running on this node.";
        numbers.under_way.write("idempotency_in_progress", help, text);
        let help =
            "Attempts that this node has not finished: running ones, and those that wait for the store.";
        gauge("idempotency_attempts_under_way", help, "", &under_way.to_string(), text);
        let families: [(&Counters, &str, &str); 5] = [
            (
                &numbers.ended,
                "idempotency_attempts_total",
                "Attempts that ended, by resulting state; UNKNOWN includes owners that went silent.",
            ),
            (
                &numbers.reconciled,
                "idempotency_reconciled_total",
                "Unknown outcomes that were resolved, by resulting state and by whom.",
            ),
            (&numbers.lease_losses, "idempotency_lease_losses_total", "Attempts that lost their lease."),
            (
                &numbers.fenced,
                "idempotency_fenced_writes_total",
                "Outcomes that were refused; differs=true is a conflict that somebody has to look at.",
            ),
            (&numbers.alarms, "idempotency_alarms_total", "Events that should never happen, by kind."),
        ];
        for (family, name, help) in families {
            family.write(name, help, text);
        }
    }

    fn write_store(&self, text: &mut String) {
        let numbers = &self.0;
        let families: [(&Counters, &str, &str); 3] = [
            (&numbers.expired, "idempotency_expired_total", "Outcomes that expired."),
            (&numbers.purged, "idempotency_purged_total", "Records removed."),
            (&numbers.store_errors, "idempotency_store_errors_total", "Calls to the store that failed."),
        ];
        for (family, name, help) in families {
            family.write(name, help, text);
        }
        let took = "idempotency_store_seconds";
        let _ = write!(text, "# HELP {took} How long calls to the store took.\n# TYPE {took} histogram\n");
        for (call, histogram) in CALLS.iter().zip(&numbers.store_took) {
            histogram.write(took, &[("call", call.name())], text);
        }
        let trusted = u8::from(numbers.is_clock_trusted.load(Ordering::Relaxed)).to_string();
        let help = "Whether the clock is trusted: 0 if it jumped, or contradicts what the store remembers.";
        gauge("idempotency_clock_trusted", help, "", &trusted, text);
        let lag = seconds(numbers.sweep_lag_micros.load(Ordering::Relaxed));
        let help = "How long the most overdue record had been due when it was last swept.";
        gauge("idempotency_sweep_lag_seconds", help, "", &lag, text);
        let counted = &numbers.census;
        let up = counted.is_up.load(Ordering::Relaxed).to_string();
        gauge("idempotency_store_up", "Whether the store answered when it was last asked.", "", &up, text);
        let moments = [
            (
                &numbers.swept_millis,
                "idempotency_swept_timestamp_seconds",
                "When the sweeper last finished a chunk of due records, or when the process started.",
            ),
            (
                &counted.looked_millis,
                "idempotency_store_counted_timestamp_seconds",
                "When idempotency_store_records and idempotency_unknown were last counted.",
            ),
            (
                &counted.walked_millis,
                "idempotency_records_counted_timestamp_seconds",
                "When idempotency_records was last counted.",
            ),
        ];
        for (moment, name, help) in moments {
            let moment = moment.load(Ordering::Relaxed);
            // Zero means never, not 1970.
            if moment > 0 {
                gauge(name, help, "", &millis(moment), text);
            }
        }
        let families = [
            (&counted.states, "idempotency_store_records", "Records in the store, by state."),
            (&counted.unknown, "idempotency_unknown", "Records with an unknown outcome."),
            (
                &counted.oldest_unknown,
                "idempotency_unknown_oldest_timestamp_seconds",
                "Since when the outcome is unknown that is unknown for longest.",
            ),
            (&counted.records, "idempotency_records", "Records in the store, by operation and state."),
            (&counted.bytes, "idempotency_store_bytes", "The size of the store: its data, and its log."),
            (&counted.hazards, "idempotency_store_hazards", "Hazards in the store's settings."),
        ];
        for (family, name, help) in families {
            family.write(name, help, text);
        }
        counted.inboxes.write(text);
    }
}

fn gauge(name: &str, help: &str, labels: &str, value: &str, text: &mut String) {
    let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{labels} {value}\n");
}

/// Milliseconds as seconds.
fn millis(millis: u64) -> String {
    seconds(millis.saturating_mul(1_000))
}

/// The memory of this process, if the system reports it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}
