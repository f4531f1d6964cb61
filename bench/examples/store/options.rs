use clap::Parser;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The argument with which the program calls itself, followed by a file.
pub(crate) const RESIDENT: &str = "--resident";

/// The cost of the embedded store and the engine, compared with a bare log that syncs as often.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench store", args_override_self = true)]
pub(crate) struct Options {
    /// How many records the file holds before
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "0,1000000,3000000",
        default_value_if("quick", "true", "0,100000")
    )]
    pub(crate) records: Vec<u64>,
    /// How many ask at once
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,64,512",
        default_value_if("quick", "true", "64,512")
    )]
    pub(crate) tasks: Vec<u64>,
    /// How long each subject runs, in turns
    #[arg(long, value_name = "N", default_value = "4", default_value_if("quick", "true", "2"))]
    pub(crate) seconds: f64,
    /// How many records the sweep finds due
    #[arg(long, value_name = "N", default_value = "100000", default_value_if("quick", "true", "20000"))]
    pub(crate) due: u64,
    /// Nothing but claim and finish by this subject (log, store, engine), for a profiler
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// As --records 0,100000 --tasks 64,512 --seconds 2 --due 20000
    #[arg(long)]
    quick: bool,
    /// Measure the memory of a process that has this file open
    #[arg(long, value_name = "FILE", hide = true)]
    pub(crate) resident: Option<PathBuf>,
}

impl Options {
    /// The command line that repeats this run.
    pub(crate) fn command_line(&self) -> String {
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let mut line = String::from("cargo xtask bench store");
        let _ = write!(line, " --records {} --tasks {}", list(&self.records), list(&self.tasks));
        let _ = write!(line, " --seconds {} --due {}", self.seconds, self.due);
        if let Some(only) = &self.only {
            let _ = write!(line, " --only {only}");
        }
        line
    }
}
