use clap::Parser;
use std::num::ParseIntError;

/// The cost of each store, compared with SQL and scripts written by hand.
///
/// Growth: --only postgres --records 0,3000000 --clients 64
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench stores", args_override_self = true)]
pub(crate) struct Options {
    /// How many records the server holds before
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "0")]
    pub(crate) records: Vec<u64>,
    /// How many ask at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,16,64")]
    pub(crate) clients: Vec<u64>,
    /// How long one turn takes; pgbench counts in whole seconds
    #[arg(long, value_name = "N", default_value = "3", value_parser = whole_seconds)]
    pub(crate) seconds: f64,
    /// How many turns each subject has
    #[arg(long, value_name = "N", default_value = "5", value_parser = at_least_one)]
    pub(crate) rounds: u64,
    /// What the store's URL ends with, such as connections=16
    #[arg(long, value_name = "P")]
    pub(crate) parameters: Option<String>,
    /// Instead: a Redis store at full load for N seconds, while the sweeper runs
    #[arg(long, value_name = "N")]
    pub(crate) full: Option<u64>,
    /// With --full: `records_per_second_max`
    #[arg(long, value_name = "N", default_value = "5000")]
    pub(crate) sweep_rate: u32,
    /// Only this store
    #[arg(long, value_name = "NAME", value_parser = ["sqlite", "postgres", "redis"])]
    only: Option<String>,
}

fn at_least_one(text: &str) -> Result<u64, ParseIntError> {
    text.parse::<u64>().map(|number| number.max(1))
}

fn whole_seconds(text: &str) -> Result<f64, ParseIntError> {
    at_least_one(text).map(|number| number as f64)
}

impl Options {
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
