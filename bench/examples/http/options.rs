use std::path::PathBuf;

/// What is printed for `--help`.
pub(crate) const HELP: &str = "cargo xtask bench http [options]
  --connections N,…  how many clients ask at once                   1,64
  --seconds N        how long each subject runs, in turns           10
  --records N        how many records a file holds whose gateway is weighed, 0 for none   1000000
  --only NAME        only what has this in its name, for a profiler
  --semel FILE       the program to measure                         that of this build
  --quick            --seconds 2 --records 100000";

/// How the program calls itself.
pub(crate) const UPSTREAM: &str = "--upstream";
pub(crate) const LOAD: &str = "--load";

pub(crate) struct Options {
    pub(crate) connections: Vec<u64>,
    pub(crate) seconds: u64,
    pub(crate) records: u64,
    pub(crate) only: Option<String>,
    pub(crate) semel: PathBuf,
}

/// The role of this process.
pub(crate) enum Part {
    Help,
    Upstream,
    Load,
    All(Options),
}

impl Part {
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let here = std::env::current_exe().map_err(|error| error.to_string())?;
        // `target/dist/examples/http` and `target/dist/semel`.
        let semel = here.ancestors().nth(2).map(|folder| folder.join("semel")).unwrap_or_default();
        let mut options =
            Options { connections: vec![1, 64], seconds: 10, records: 1_000_000, only: None, semel };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} takes a value\n\n{HELP}"));
            match name.as_str() {
                "--help" => return Ok(Self::Help),
                UPSTREAM => return Ok(Self::Upstream),
                LOAD => return Ok(Self::Load),
                "--quick" => (options.seconds, options.records) = (2, 100_000),
                "--connections" => {
                    options.connections = value()?.split(',').map(number).collect::<Result<_, _>>()?;
                }
                "--seconds" => options.seconds = number(&value()?)?,
                "--records" => options.records = number(&value()?)?,
                "--only" => options.only = Some(value()?),
                "--semel" => options.semel = value()?.into(),
                _ => return Err(format!("there is no option {name}\n\n{HELP}")),
            }
        }
        Ok(Self::All(options))
    }
}

impl Options {
    /// The command line that repeats this run.
    pub(crate) fn command_line(&self) -> String {
        let connections: Vec<_> = self.connections.iter().map(u64::to_string).collect();
        let only = self.only.as_ref().map_or_else(String::new, |only| format!(" --only {only}"));
        format!(
            "cargo xtask bench http --connections {} --seconds {} --records {}{only}",
            connections.join(","),
            self.seconds,
            self.records
        )
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}
