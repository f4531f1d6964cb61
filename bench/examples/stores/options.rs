pub(crate) const HELP: &str = "cargo xtask bench stores [options]
  --records N,…   how many records the server holds before   0
  --clients N,…   how many ask at once                        1,16,64
  --seconds N     how long one turn takes                     3
  --rounds N      how many turns each subject has             5
  --only NAME     only this store: sqlite, postgres, redis
  --parameters P  what the store's URL ends with, such as connections=16
  --full N        instead: a Redis store at full load for N seconds, while the sweeper runs
  --sweep-rate N  with --full: records_per_second_max                        5000
Growth: --only postgres --records 0,3000000 --clients 64";

pub(crate) struct Options {
    pub(crate) records: Vec<u64>,
    pub(crate) clients: Vec<u64>,
    pub(crate) seconds: f64,
    pub(crate) rounds: u64,
    pub(crate) parameters: Option<String>,
    /// For how many seconds a store is kept at full load, instead of comparing.
    pub(crate) full: Option<u64>,
    pub(crate) sweep_rate: u32,
    only: Option<String>,
}

impl Options {
    /// `None` if only help was asked for.
    pub(crate) fn read(mut arguments: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            records: vec![0],
            clients: vec![1, 16, 64],
            seconds: 3.0,
            rounds: 5,
            parameters: None,
            full: None,
            sweep_rate: 5_000,
            only: None,
        };
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} takes a value\n\n{HELP}"));
            match name.as_str() {
                "--help" => return Ok(None),
                "--records" => options.records = numbers(&value()?)?,
                "--clients" => options.clients = numbers(&value()?)?,
                "--parameters" => options.parameters = Some(value()?),
                "--full" => options.full = Some(number(&value()?)?),
                "--sweep-rate" => {
                    options.sweep_rate = number(&value()?)?.try_into().map_err(|_| "too many")?;
                }
                "--rounds" => options.rounds = number(&value()?)?.max(1),
                "--only" => match value()? {
                    store if ["sqlite", "postgres", "redis"].contains(&store.as_str()) => {
                        options.only = Some(store);
                    }
                    other => return Err(format!("there is no store {other} to measure\n\n{HELP}")),
                },
                // pgbench counts in whole seconds.
                "--seconds" => options.seconds = number(&value()?)?.max(1) as f64,
                _ => return Err(format!("there is no option {name}\n\n{HELP}")),
            }
        }
        Ok(Some(options))
    }

    pub(crate) fn measures(&self, store: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == store)
    }

    /// The command line that repeats this run.
    pub(crate) fn command_line(&self) -> String {
        let list = |numbers: &[u64]| numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        let only = self.only.as_ref().map(|only| format!(" --only {only}")).unwrap_or_default();
        let parameters =
            self.parameters.as_ref().map(|given| format!(" --parameters '{given}'")).unwrap_or_default();
        format!(
            "cargo xtask bench stores --records {} --clients {} --seconds {} --rounds {}{only}{parameters}",
            list(&self.records),
            list(&self.clients),
            self.seconds,
            self.rounds
        )
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

fn numbers(text: &str) -> Result<Vec<u64>, String> {
    text.split(',').map(number).collect()
}
