use std::fmt::Write as _;
use std::path::PathBuf;

/// What is printed for `--help`.
pub(crate) const HELP: &str = "cargo xtask bench store [options]
  --records N,…   how many records the file holds before   0,1000000,3000000
  --tasks N,…     how many ask at once                      1,64,512
  --seconds N     how long each subject runs, in turns      4
  --due N         how many records the sweep finds due      100000
  --only NAME     nothing but claim and finish by this subject (log, store, engine), for a profiler
  --quick         --records 0,100000 --tasks 64,512 --seconds 2 --due 20000";

/// The argument with which the program calls itself, followed by a file.
pub(crate) const RESIDENT: &str = "--resident";

pub(crate) struct Options {
    pub(crate) records: Vec<u64>,
    pub(crate) tasks: Vec<u64>,
    pub(crate) seconds: f64,
    pub(crate) due: u64,
    pub(crate) only: Option<String>,
    pub(crate) resident: Option<PathBuf>,
}

impl Options {
    /// `None` if only help was asked for.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            records: vec![0, 1_000_000, 3_000_000],
            tasks: vec![1, 64, 512],
            seconds: 4.0,
            due: 100_000,
            only: None,
            resident: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} takes a value\n\n{HELP}"));
            match name.as_str() {
                "--help" => return Ok(None),
                "--quick" => {
                    (options.records, options.tasks) = (vec![0, 100_000], vec![64, 512]);
                    (options.seconds, options.due) = (2.0, 20_000);
                }
                "--records" => options.records = numbers(&value()?)?,
                "--tasks" => options.tasks = numbers(&value()?)?,
                RESIDENT => options.resident = Some(value()?.into()),
                "--only" => options.only = Some(value()?),
                "--due" => options.due = number(&value()?)?,
                "--seconds" => {
                    let text = value()?;
                    options.seconds = text.parse().map_err(|_| format!("{text} is no number of seconds"))?;
                }
                _ => return Err(format!("there is no option {name}\n\n{HELP}")),
            }
        }
        Ok(Some(options))
    }

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

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(number).collect()
}
