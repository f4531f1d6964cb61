use clap::Parser;
use std::path::PathBuf;

/// How the program calls itself.
pub(crate) const UPSTREAM: &str = "--upstream";
pub(crate) const LOAD: &str = "--load";

/// The cost of the gateway, compared with the upstream alone and with nginx as a plain proxy.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask bench http", args_override_self = true)]
pub(crate) struct Options {
    /// How many clients ask at once
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "1,64")]
    pub(crate) connections: Vec<u64>,
    /// How long each subject runs, in turns
    #[arg(long, value_name = "N", default_value = "10", default_value_if("quick", "true", "2"))]
    pub(crate) seconds: u64,
    /// How many records a file holds whose gateway is weighed, 0 for none
    #[arg(long, value_name = "N", default_value = "1000000", default_value_if("quick", "true", "100000"))]
    pub(crate) records: u64,
    /// Only what has this in its name, for a profiler
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// The program to measure, if not that of this build
    #[arg(long, value_name = "FILE", default_value_os_t = built_program(), hide_default_value = true)]
    pub(crate) semel: PathBuf,
    /// As --seconds 2 --records 100000
    #[arg(long)]
    pub(crate) quick: bool,
    /// Be the upstream
    #[arg(long, hide = true)]
    pub(crate) upstream: bool,
    /// Be the clients
    #[arg(long, hide = true)]
    pub(crate) load: bool,
}

/// `target/dist/semel`, beside `target/dist/examples/http`.
fn built_program() -> PathBuf {
    let here = std::env::current_exe().unwrap_or_default();
    here.ancestors().nth(2).map(|folder| folder.join("semel")).unwrap_or_default()
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
