//! Test programs: cargo builds them, this runs them, several at a time.

mod build;
mod lines;
mod one;
mod plan;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::tally::Tally;

pub(crate) use build::build;
use plan::{Next, Plan};

/// A built test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    /// The folder of its package, relative to the root.
    package: String,
    /// Its name, or what it holds the unit tests of.
    name: String,
    file: PathBuf,
    /// Where it runs, as under `cargo test`: the folder of its package.
    folder: PathBuf,
    /// Which of its tests run; none means all.
    arguments: Vec<String>,
}

impl Program {
    /// Runs those tests only that its `arguments` select.
    pub(crate) fn limit(&mut self, arguments: impl FnOnce(&str) -> &'static [&'static str]) {
        self.arguments = arguments(&self.name).iter().map(|&argument| argument.to_owned()).collect();
    }

    fn command(&self, prepare: impl Fn(&mut Command)) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        prepare(&mut command);
        command
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.name, self.package)
    }
}

/// What the programs did.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) tally: Tally,
    /// One line for each program that failed.
    pub(crate) failed: Vec<String>,
}

/// Runs all programs, even after a failure. `prepare` sets their environment.
pub(crate) fn run(programs: Vec<Program>, prepare: impl Fn(&mut Command) + Sync) -> Results {
    let plan = Mutex::new(Plan::new(programs));
    let one_ended = Condvar::new();
    let results = Mutex::new(Results::default());
    let next = || {
        let mut plan = locked(&plan);
        loop {
            match plan.next() {
                Next::Run(program) => return Some(program),
                Next::Nothing => return None,
                Next::WaitForAnEnd => plan = one_ended.wait(plan).unwrap_or_else(PoisonError::into_inner),
            }
        }
    };
    let run_one = |program: &Program| {
        let ended = one::run(program.command(&prepare));
        locked(&results).add(program, ended);
        locked(&plan).ended(program);
        one_ended.notify_all();
    };
    thread::scope(|scope| {
        for _ in 0..plan::SLOTS {
            scope.spawn(|| {
                while let Some(program) = next() {
                    run_one(&program);
                }
            });
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Results {
    /// Runs another command that prints results as test programs do.
    pub(crate) fn run(&mut self, name: &str, command: Command) {
        self.add(&name, one::run(command));
    }

    /// Counts what a program did, and prints one line; if it failed, everything that it printed.
    fn add(&mut self, program: &dyn fmt::Display, ended: io::Result<one::ProgramResult>) {
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                println!("   FAILED             {program}: {error}");
                return self.failed.push(format!("{program}: {error}"));
            }
        };
        let mut tally = Tally::default();
        String::from_utf8_lossy(&ended.output).lines().for_each(|line| tally.read_line(line));
        self.tally.add(tally);
        let seconds = format!("{:.1} s", ended.took.as_secs_f64());
        let Some(why) = ended.failure(tally) else {
            return println!("   ok       {seconds:>8}  {program}: {tally}");
        };
        print!("{}", String::from_utf8_lossy(&ended.output));
        println!("   FAILED   {seconds:>8}  {program}: {why}");
        self.failed.push(format!("{program}: {why}"));
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
