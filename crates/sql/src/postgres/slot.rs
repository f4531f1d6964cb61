//! Connections that are opened when needed, and replaced when they break or stop answering.

use super::address::Address;
use super::connecting::CONNECTING;
use super::fault::Fault;
use super::pulse::PulseSettings;
use super::session::{Parameter, Session};
use crate::clock::uptime;
use semel_core::store::{Error, Kind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

/// How long a server that refused a connection is not tried again, at first and at most. It doubles with each
/// refusal.
const PAUSE: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(1));
/// How long after the last replacement a connection that does not answer is replaced, by the number of others
/// that do not answer either. Beyond that it is not: if the standby that commits wait for is missing, the server
/// keeps each of these connections until it is back, even if they are closed here.
const REPLACED_AFTER: [Duration; SILENT_MAX] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How many connections that do not answer are kept beside the one for new calls.
const SILENT_MAX: usize = 2;

/// A parameter that a task can own.
pub(super) type OwnedParameter = (Box<dyn ToSql + Sync + Send>, Type);

pub(super) fn owned(value: impl ToSql + Sync + Send + 'static, of: Type) -> OwnedParameter {
    (Box::new(value), of)
}

/// A connection that is opened when needed, and replaced when it breaks or stops answering.
///
/// At most three are open here at a time: one that is used or being opened, and two that no longer answer. One on which a write waits is kept until it answers, because it may wait for a standby; others are closed
/// when their calls have ended. A connection that still answers is only slow: to close it would put its calls in
/// doubt, and a replacement would add a login to an overloaded server.
pub(super) struct Slot {
    shared: Arc<Shared>,
}

struct Shared {
    address: Arc<Address>,
    /// How long a connection may be silent while a call waits.
    patience: Duration,
    held: Mutex<State>,
    changed: Arc<Notify>,
}

#[derive(Default)]
struct State {
    /// The connection for new calls.
    session: Option<Arc<Session>>,
    /// Those that no longer answer, at most [`SILENT_MAX`]. They get no new calls.
    silent: Vec<Arc<Session>>,
    /// The task that opens the next one.
    opening: Option<AbortHandle>,
    /// How many were begun. A task whose number is lower is no longer awaited.
    openings: u64,
    /// Why the last attempt failed, remembered until the next one may begin.
    refusal: Option<Fault>,
    refusals: u32,
    /// By the uptime.
    open_not_before: Duration,
    replaced_at: Option<Duration>,
}

/// What a call does next.
enum Next {
    Use(Arc<Session>),
    Refuse(Error),
    /// Decide again after a change, or this time.
    Wait(Duration),
}

/// A connection for one call.
pub(super) struct CallConnection {
    shared: Arc<Shared>,
    session: Arc<Session>,
    _call: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(opening) = self.shared.held().opening.take() {
            opening.abort();
        }
    }
}

impl Slot {
    /// A connection that is replaced if nothing comes for the address's own patience.
    pub(super) fn new(address: &Arc<Address>) -> Self {
        Self::with_patience(address, address.silent_after)
    }

    /// `patience`: for how long nothing may come while a call waits.
    pub(super) fn with_patience(address: &Arc<Address>, patience: Duration) -> Self {
        let patience = patience.min(address.answer_timeout);
        let (address, held, changed) = (Arc::clone(address), Mutex::default(), Arc::default());
        Self { shared: Arc::new(Shared { address, patience, held, changed }) }
    }

    /// A connection that is not known to be broken or silent, to a server that is not known to be replaced.
    /// One that is missing is opened by a task, which concurrent callers share and no caller cancels.
    pub(super) async fn seat(&self) -> Result<CallConnection, Error> {
        loop {
            // Registered before the check, so that later changes wake this again.
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let session = match self.shared.choose() {
                Next::Use(session) => session,
                Next::Refuse(error) => return Err(error),
                Next::Wait(at_most) => {
                    drop(timeout(at_most, changed).await);
                    continue;
                }
            };
            let silence = session.pulse.silent_in().unwrap_or(self.shared.patience);
            let call = timeout(silence, Arc::clone(&session.calls).acquire_owned()).await;
            if let Ok(Ok(call)) = call {
                return Ok(CallConnection { shared: Arc::clone(&self.shared), session, _call: call });
            }
        }
    }

    pub(super) async fn session(&self) -> Result<Arc<Session>, Error> {
        self.seat().await.map(|seat| Arc::clone(&seat.session))
    }

    /// Whether a write was given up on the connection for new calls, and nothing has come there since.
    pub(super) fn is_stuck(&self) -> bool {
        self.shared.held().session.as_ref().is_some_and(|session| session.pulse.is_overdue())
    }

    /// Whether a call would be sent at once.
    pub(super) fn is_ready(&self) -> bool {
        let held = self.shared.held();
        held.session.as_ref().is_some_and(|session| {
            self.shared.is_good(session)
                && !session.pulse.is_silent()
                && session.calls.available_permits() > 0
        })
    }

    /// Returns when the connection has been silent for too long although a call waits. Its replacement has
    /// begun then.
    pub(super) async fn silence(&self) {
        loop {
            let left = self.shared.held().session.as_ref().and_then(|session| session.pulse.silent_in());
            match left {
                Some(Duration::ZERO) => {
                    self.shared.choose();
                    return;
                }
                left => sleep(left.unwrap_or(self.shared.patience)).await,
            }
        }
    }

    /// Drops a connection that broke, or leads to a server that takes no writes.
    pub(super) fn discard(&self, session: &Arc<Session>) {
        self.shared.discard(session);
    }

    /// Drops the connection for new calls.
    pub(super) fn discard_current(&self) {
        self.shared.held().session = None;
    }

    /// Runs a statement that changes nothing. A broken connection is replaced once.
    pub(super) async fn read(&self, sql: &str, parameters: Vec<OwnedParameter>) -> Result<Vec<Row>, Fault> {
        let parameters = Arc::new(parameters);
        let mut tries = 0;
        loop {
            let seat = self.seat().await.map_err(|error| unconnected(&error))?;
            let (sql, parameters) = (sql.to_owned(), Arc::clone(&parameters));
            let reading = tokio::spawn(async move { seat.read(&sql, &borrowed(&parameters)).await });
            let stopped =
                |_| ReadFault { fault: Fault::new(Kind::Unavailable, "the runtime stops"), is_broken: false };
            match reading.await.map_err(stopped).flatten() {
                Ok(rows) => return Ok(rows),
                Err(ReadFault { fault, is_broken }) => {
                    tries += 1;
                    if !is_broken || tries == 2 {
                        return Err(fault);
                    }
                }
            }
        }
    }

    /// Runs a statement that changes something. After an ambiguous error, nothing is repeated.
    pub(super) async fn write(&self, sql: &str, parameters: Vec<OwnedParameter>) -> Result<Vec<Row>, Fault> {
        let seat = self.seat().await.map_err(|error| unconnected(&error))?;
        let sql = sql.to_owned();
        let writing = tokio::spawn(async move { seat.write(&sql, &borrowed(&parameters)).await });
        let stopped = |_| Fault::new(Kind::Ambiguous, "the runtime stops");
        writing.await.map_err(stopped).flatten()
    }
}

fn borrowed(parameters: &[OwnedParameter]) -> Vec<Parameter<'_>> {
    parameters.iter().map(|(value, of)| (&**value as &(dyn ToSql + Sync), of.clone())).collect()
}

impl Shared {
    fn held(&self) -> MutexGuard<'_, State> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_good(&self, session: &Session) -> bool {
        let timelines = self.address.timelines.as_ref();
        !session.is_closed() && !timelines.is_some_and(|timelines| timelines.has_replaced(session.origin))
    }

    fn choose(self: &Arc<Self>) -> Next {
        let now = uptime();
        let mut held = self.held();
        held.session.take_if(|session| !self.is_good(session));
        let is_replaced = held.session.is_some();
        held.silent.retain(|silent| self.is_good(silent) && !(is_replaced && silent.pulse.is_idle()));
        self.restore(&mut held);
        if let Some(session) = &held.session {
            if !session.pulse.is_silent() {
                return Next::Use(Arc::clone(session));
            }
            session.pulse.suspect();
            let after = REPLACED_AFTER.get(held.silent.len());
            let ready_at = held.replaced_at.zip(after).map(|(at, after)| at + *after);
            let may_be_replaced = after.is_some() && ready_at.is_none_or(|at| now >= at);
            if !may_be_replaced && session.pulse.is_overdue() {
                return Next::Refuse(self.stuck(held.silent.len() + 1));
            }
            if !may_be_replaced {
                // Until a call on one of them ends, or it answers.
                return Next::Wait(ready_at.map_or(PAUSE.0, |at| at.saturating_sub(now)).max(PAUSE.0));
            }
            held.replaced_at = Some(now);
            let session = held.session.take();
            held.silent.extend(session);
        }
        // One that has not taken itself out was on a runtime that has ended.
        held.opening.take_if(|opening| opening.is_finished());
        if held.opening.is_some() {
            return Next::Wait(self.patience);
        }
        if now < held.open_not_before {
            if let Some(refusal) = &held.refusal {
                return Next::Refuse(refusal.error(CONNECTING));
            }
            return Next::Wait(held.open_not_before.saturating_sub(now));
        }
        held.openings += 1;
        let opening = tokio::spawn(Arc::clone(self).open(held.openings, held.silent.clone()));
        held.opening = Some(opening.abort_handle());
        Next::Wait(self.patience)
    }

    /// Uses a connection again that was silent and has answered, unless it was replaced meanwhile.
    fn restore(&self, held: &mut State) {
        let answers = |silent: &Arc<Session>| self.is_good(silent) && !silent.pulse.is_silent();
        if held.session.is_none()
            && let Some(at) = held.silent.iter().position(answers)
        {
            held.session = Some(held.silent.remove(at));
            // The task's connection is not needed any more.
            if let Some(opening) = held.opening.take() {
                opening.abort();
            }
            held.openings += 1;
        }
    }

    /// Opens a connection, unless a silent one answers first.
    async fn open(self: Arc<Self>, number: u64, silent: Vec<Arc<Session>>) {
        let pulse = PulseSettings { patience: self.patience, changed: Arc::clone(&self.changed) };
        let opened = tokio::select! {
            opened = Session::open(&self.address, &pulse, None) => Some(opened),
            () = self.answers(&silent) => None,
        };
        let mut held = self.held();
        if held.openings != number {
            return;
        }
        held.opening = None;
        match opened {
            None => self.restore(&mut held),
            Some(Ok(session)) => {
                held.session = Some(Arc::new(session));
                (held.refusal, held.refusals) = (None, 0);
            }
            Some(Err(error)) => {
                let cause = std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
                let pause = PAUSE.0.saturating_mul(1 << held.refusals.min(8)).min(PAUSE.1);
                held.refusal = Some(Fault::of_connecting(&error, cause));
                held.refusals += 1;
                held.open_not_before = uptime() + pause;
            }
        }
        drop(held);
        self.changed.notify_waiters();
    }

    /// Returns when one of the silent connections answers.
    async fn answers(&self, silent: &[Arc<Session>]) {
        let heard: Vec<u64> = silent.iter().map(|silent| silent.pulse.suspect()).collect();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if silent.iter().zip(&heard).any(|(silent, heard)| silent.pulse.suspect() > *heard) {
                return;
            }
            changed.await;
        }
    }

    fn discard(&self, session: &Arc<Session>) {
        let mut held = self.held();
        held.session.take_if(|kept| Arc::ptr_eq(kept, session));
        held.silent.retain(|kept| !Arc::ptr_eq(kept, session));
        drop(held);
        self.changed.notify_waiters();
    }
}

struct ReadFault {
    fault: Fault,
    /// The connection is gone, and another one may answer.
    is_broken: bool,
}

impl CallConnection {
    async fn read(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, ReadFault> {
        let _waiting = self.session.pulse.begin();
        let fault = match self.ask(sql, parameters).await {
            CallResult::Answered(rows) => return Ok(rows),
            CallResult::Unanswered => {
                if self.session.pulse.is_silent() {
                    // Nothing else will come on it.
                    self.shared.discard(&self.session);
                }
                let fault = self.shared.unanswered(Kind::Unavailable);
                return Err(ReadFault { fault, is_broken: false });
            }
            CallResult::Failed(error) => {
                let fault = Fault::of_read(&error);
                let is_usable = error.as_db_error().is_some() && !self.session.is_closed();
                if is_usable && fault.kind != Kind::ReadOnly {
                    return Err(ReadFault { fault, is_broken: false });
                }
                fault
            }
        };
        self.shared.discard(&self.session);
        Err(ReadFault { fault, is_broken: true })
    }

    pub(super) async fn write(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, Fault> {
        let _waiting = self.session.pulse.begin();
        let warnings = self.session.warnings();
        let fault = match self.ask(sql, parameters).await {
            // A commit whose wait for the standby an operator cancelled is acknowledged with a warning.
            CallResult::Answered(_) if self.session.warnings() != warnings => {
                Fault::new(Kind::Ambiguous, "the server sent a warning with its answer")
            }
            CallResult::Answered(rows) => return Ok(rows),
            CallResult::Unanswered => {
                // Its commit may wait for a standby. If the connection were closed, the server would go on waiting,
                // and each replacement would add another one.
                self.session.pulse.give_up();
                return Err(self.shared.unanswered(Kind::Ambiguous));
            }
            CallResult::Failed(error) => Fault::of_write(&error),
        };
        if matches!(fault.kind, Kind::Ambiguous | Kind::ReadOnly) {
            self.shared.discard(&self.session);
        }
        Err(fault)
    }

    async fn ask(&self, sql: &str, parameters: &[Parameter<'_>]) -> CallResult {
        let answered = timeout(self.shared.address.answer_timeout, self.session.query(sql, parameters)).await;
        match answered {
            Ok(Ok(rows)) => CallResult::Answered(rows),
            Ok(Err(error)) => CallResult::Failed(error),
            Err(_) => CallResult::Unanswered,
        }
    }
}

enum CallResult {
    Answered(Vec<Row>),
    Failed(tokio_postgres::Error),
    /// Not within the time for an answer.
    Unanswered,
}

impl Shared {
    /// No connection answers, and no more are opened for now.
    fn stuck(&self, connections: usize) -> Error {
        let cause = format!(
            "{connections} connections have not answered within {:?}; if commits wait for a standby \
             (synchronous_standby_names), check that it is connected",
            self.address.answer_timeout
        );
        Error::new(Kind::Unavailable, CONNECTING).because(cause)
    }

    fn unanswered(&self, kind: Kind) -> Fault {
        Fault::new(kind, format!("the server did not answer within {:?}", self.address.answer_timeout))
    }
}

pub(super) fn unconnected(error: &Error) -> Fault {
    let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    Fault::of_connecting(error, format!("no connection: {cause}"))
}
