//! Starts, watches and kills a worker process. No worker outlives its judge.

use crate::evidence::Violation;
use crate::power::Power;
use crate::worker::WorkerOptions;
use crate::workspace::Failure;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long a worker may take to open its store, on the slowest machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// A worker process.
pub(crate) struct Victim {
    child: Child,
    pub(crate) run: String,
    ready: Receiver<()>,
    errors: PathBuf,
}

impl Victim {
    pub(crate) fn start(options: &WorkerOptions, power: Option<&Power>) -> Result<Self, Failure> {
        let WorkerOptions { workspace, seed, round, run, life, read_only, sabotage } = options;
        let errors = workspace.errors(run);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["worker", "--store", &workspace.address.url().to_string(), "--run", run])
            .args(["--seed", &seed.to_string(), "--round", &round.to_string()])
            .args(["--millis", &life.as_millis().to_string(), "--beside"])
            .arg(&workspace.beside)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        if *read_only {
            command.arg("--read-only");
        }
        if let Some(sabotage) = sabotage {
            command.args(["--sabotage", &sabotage.name()]);
        }
        if let Some(power) = power {
            power.put_under(&mut command);
        }
        let mut child = command.spawn()?;
        let (started, ready) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut line = String::new();
                if BufReader::new(output).read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let _ = started.send(());
                }
            });
        }
        Ok(Self { child, run: run.clone(), ready, errors })
    }

    /// Waits until it accepts commands, or has ended.
    pub(crate) fn wait_until_ready(&self) {
        let _ = self.ready.recv_timeout(START_TIMEOUT);
    }

    /// Kills it. `false` if it had already ended, as it may after its lifetime.
    pub(crate) fn kill(&mut self) -> Result<bool, Failure> {
        if let Some(status) = self.child.try_wait()? {
            self.read_errors()?;
            let ended = format!("worker {} ended by itself: {status}", self.run);
            return if status.success() { Ok(false) } else { Err(Violation::new(ended).into()) };
        }
        self.child.kill()?;
        self.child.wait()?;
        self.read_errors()?;
        Ok(true)
    }

    /// Waits until it ends.
    pub(crate) fn let_end(&mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        self.read_errors()?;
        let ended = format!("worker {} ended by itself: {status}", self.run);
        if status.success() { Ok(()) } else { Err(Violation::new(ended).into()) }
    }

    /// Any error output, such as a panic, is a violation.
    fn read_errors(&self) -> Result<(), Failure> {
        let output = std::fs::read_to_string(&self.errors)?;
        if output.is_empty() {
            std::fs::remove_file(&self.errors)?;
            return Ok(());
        }
        let lines = output.lines().map(str::to_owned).collect();
        Err(Violation { message: format!("worker {} printed an error", self.run), lines }.into())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
