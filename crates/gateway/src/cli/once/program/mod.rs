//! The program: started, watched, stopped, and how it ended.

mod child;
pub(in crate::cli) mod exec;
mod output;
pub(super) mod signals;
pub(super) mod tail;

use child::{Ended, Started, Takeover};
use output::{EndedOutput, Output};
use rustix::process::{Pid, Signal, kill_process_group};
use semel::Attempt;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::sync::{broadcast, oneshot, watch};
use tokio::time::{interval, sleep};

/// How long the program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(10);
/// How often the lease is checked.
const LEASE_CHECKED_EVERY: Duration = Duration::from_millis(250);
/// This program. Also if its file was replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What to run.
pub(super) struct Program {
    pub(super) command: Vec<OsString>,
    pub(super) key: String,
    pub(super) keep: usize,
    pub(super) timeout: Duration,
    /// Whether the program is stopped when another call may take over.
    pub(super) stops_without_lease: bool,
}

/// A program that is not running any more.
pub(super) struct Run {
    pub(super) end: End,
    /// Standard output and standard error, if it was started.
    pub(super) outputs: Option<[EndedOutput; 2]>,
}

/// How it ended.
#[derive(Debug)]
pub(super) enum End {
    /// It never began.
    NotStarted(NotStarted),
    /// By itself.
    Exited(i32),
    /// By this signal.
    Killed(i32),
    /// It was stopped, because its time was over.
    TimedOut,
    /// It was stopped, because another call may have taken over.
    LeaseLost,
    /// It has ended, and the system does not say how.
    Lost,
}

/// Why it never began.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// The system could not execute it.
    Exec(io::Error),
    /// This process could not prepare it.
    Prepare(io::Error),
    /// A signal came first.
    Interrupted,
}

impl Run {
    fn not_started(why: NotStarted) -> Self {
        Self { end: End::NotStarted(why), outputs: None }
    }
}

impl Program {
    /// Runs it to its end.
    pub(super) async fn run(&self, attempt: &Attempt, mut signals: broadcast::Receiver<Signal>) -> Run {
        let (started, mut ended) = match self.start(attempt) {
            Ok(receivers) => receivers,
            Err(error) => return Run::not_started(NotStarted::Prepare(error)),
        };
        let lost = || io::Error::other("the thread that starts it has ended");
        let started = started.await.unwrap_or_else(|_| Err(lost()));
        let Started { id, stdout, stderr } = match started {
            Ok(started) => started,
            Err(error) => return Run::not_started(NotStarted::Prepare(error)),
        };
        let (end, has_ended) = watch::channel(false);
        let outputs = [
            Output::begin(stdout.into(), self.keep, has_ended.clone(), io::stdout()),
            Output::begin(stderr.into(), self.keep, has_ended, io::stderr()),
        ];
        let [Ok(stdout), Ok(stderr)] = outputs else {
            // It may have had its effect already.
            send(id, Signal::KILL);
            return Run { end: End::Lost, outputs: None };
        };
        let (ended, stopped) = self.watch(id, &mut ended, attempt, &mut signals).await;
        let _ = end.send(true);
        let outputs = Some([stdout.end().await, stderr.end().await]);
        Run { end: ending(ended, stopped), outputs }
    }

    fn start(
        &self,
        attempt: &Attempt,
    ) -> io::Result<(oneshot::Receiver<io::Result<Started>>, oneshot::Receiver<Ended>)> {
        let (from_child, to_parent) = io::pipe()?;
        let mut command = Command::new(THIS_PROGRAM);
        command
            .args([exec::CHILD, &std::process::id().to_string()])
            .args(&self.command)
            .env("SEMEL_OPERATION_ID", attempt.operation_id().to_string())
            .env("SEMEL_ATTEMPT", attempt.number().to_string())
            .env("SEMEL_FENCE", attempt.fence().to_string())
            .env("SEMEL_KEY", &self.key)
            .stdin(Stdio::from(to_parent))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // So that a signal reaches what the program has started, and a terminal's signals come only from here.
            .process_group(0);
        child::start(command, from_child)
    }

    /// Waits for the program's end. Returns also why it was stopped, if it was.
    async fn watch(
        &self,
        id: Pid,
        ended: &mut oneshot::Receiver<Ended>,
        attempt: &Attempt,
        signals: &mut broadcast::Receiver<Signal>,
    ) -> (Option<Ended>, Option<End>) {
        let mut stopped = None;
        let mut is_killed = false;
        let mut timer = Box::pin(sleep(self.timeout));
        let mut lease = interval(LEASE_CHECKED_EVERY);
        loop {
            tokio::select! {
                biased;
                child = &mut *ended => return (child.ok(), stopped),
                signal = signals::next(signals) => send(id, signal),
                () = &mut timer, if !is_killed => {
                    if stopped.is_none() {
                        stopped = Some(End::TimedOut);
                        timer.set(sleep(GRACE));
                        send(id, Signal::TERM);
                    } else {
                        is_killed = true;
                        send(id, Signal::KILL);
                    }
                }
                _ = lease.tick(), if self.stops_without_lease && stopped.is_none() => {
                    if attempt.check().is_err() {
                        stopped = Some(End::LeaseLost);
                        timer.set(sleep(GRACE));
                        send(id, Signal::TERM);
                    }
                }
            }
        }
    }
}

/// Sends a signal to the program and to what it has started in its process group. The child was not waited for yet, so
/// the ID is still its own.
fn send(id: Pid, signal: Signal) {
    // It may have ended by now.
    let _ = kill_process_group(id, signal);
}

fn ending(ended: Option<Ended>, stopped: Option<End>) -> End {
    let Some(Ended { mut child, takeover }) = ended else { return End::Lost };
    let status = child.wait();
    match takeover {
        Takeover::Failed(number) => {
            return End::NotStarted(NotStarted::Exec(io::Error::from_raw_os_error(number)));
        }
        Takeover::Never => return End::NotStarted(NotStarted::Interrupted),
        Takeover::Done => {}
    }
    if let Some(stopped) = stopped {
        return stopped;
    }
    let Ok(status) = status else { return End::Lost };
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exited(code),
        (None, Some(signal)) => End::Killed(signal),
        (None, None) => End::Lost,
    }
}
