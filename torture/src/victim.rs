//! A worker process, from its start to its end.
//!
//! What lives here: how a worker is started, watched and killed. What must never: a worker that outlives its judge.

use crate::evidence::Violation;
use crate::place::Failure;
use crate::power::Power;
use crate::worker::Orders;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long a worker may take to open its store, on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A worker process.
pub(crate) struct Victim {
    child: Child,
    pub(crate) run: String,
    ready: Receiver<()>,
    errors: PathBuf,
}

impl Victim {
    pub(crate) fn start(orders: &Orders, power: Option<&Power>) -> Result<Self, Failure> {
        let Orders { place, seed, round, run, life, looks, sabotage } = orders;
        let errors = place.errors(run);
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["worker", "--store", &place.address.url().to_string(), "--run", run])
            .args(["--seed", &seed.to_string(), "--round", &round.to_string()])
            .args(["--millis", &life.as_millis().to_string(), "--beside"])
            .arg(&place.beside)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(&errors)?);
        if *looks {
            command.arg("--looks");
        }
        if let Some(sabotage) = sabotage {
            command.args(["--sabotage", sabotage.name()]);
        }
        if let Some(power) = power {
            power.put_under(&mut command);
        }
        let mut child = command.spawn()?;
        let (tell, ready) = channel();
        if let Some(output) = child.stdout.take() {
            thread::spawn(move || {
                let mut line = String::new();
                if BufReader::new(output).read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                    let _ = tell.send(());
                }
            });
        }
        Ok(Self { child, run: run.clone(), ready, errors })
    }

    /// Waits until it takes commands, or has ended.
    pub(crate) fn wait_until_ready(&self) {
        let _ = self.ready.recv_timeout(PATIENCE);
    }

    /// Kills it. `false` where it had ended by itself, as it may when its life is over.
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

    /// Lets it end by itself.
    pub(crate) fn let_end(&mut self) -> Result<(), Failure> {
        let status = self.child.wait()?;
        self.read_errors()?;
        let ended = format!("worker {} ended by itself: {status}", self.run);
        if status.success() { Ok(()) } else { Err(Violation::new(ended).into()) }
    }

    /// Whatever it had to say, a panic above all, is something that must not have happened.
    fn read_errors(&self) -> Result<(), Failure> {
        let said = std::fs::read_to_string(&self.errors)?;
        if said.is_empty() {
            std::fs::remove_file(&self.errors)?;
            return Ok(());
        }
        let lines = said.lines().map(str::to_owned).collect();
        Err(Violation { what: format!("worker {} complained", self.run), lines }.into())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
