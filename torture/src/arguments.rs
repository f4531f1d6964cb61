//! The command line.

use crate::sabotage::Sabotage;
use crate::worker::WorkerOptions;
use crate::workspace::{Address, Failure, Workspace};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "usage: cargo xtask crash [--store URL] [--rounds N] [--seed S] [--lose-unsynced]

  --store URL       a store that does not exist yet (default: a file in a new temporary directory). On a server each run creates a new store,
                    named after its seed, and leaves it there; `postgres` is the server of `cargo xtask services`
  --rounds N        how many times workers are started and killed (default 50)
  --seed S          the seed of all random choices (default: from the clock; every run prints it)
  --lose-unsynced   after most kills discard writes that were not synced, as a power cut may (a store in files, Linux, needs cc)";

/// The options of the judge.
#[derive(Debug, Clone)]
pub(crate) struct JudgeOptions {
    pub(crate) address: Option<Address>,
    pub(crate) rounds: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) lose_unsynced: bool,
    pub(crate) sabotage: Option<Sabotage>,
}

/// The role of this process.
#[derive(Debug)]
pub(crate) enum Role {
    /// Runs commands until it is killed.
    Worker(WorkerOptions),
    /// Kills workers, and audits.
    Judge(JudgeOptions),
}

pub(crate) fn read(arguments: &[String]) -> Result<Role, Failure> {
    let (role, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "worker" => ("worker", rest),
        Some((first, rest)) if first == "judge" => ("judge", rest),
        _ => ("judge", arguments),
    };
    let mut flags = Flags::default();
    let mut rest = rest.iter();
    while let Some(name) = rest.next() {
        if name == "--lose-unsynced" {
            flags.lose_unsynced = true;
            continue;
        }
        if name == "--read-only" && role == "worker" {
            flags.read_only = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("`{name}` needs a value, or is unknown"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{name}` needs a number, not `{value}`"));
        match (name.as_str(), role) {
            ("--store", _) => flags.address = Some(Address::read(value)?),
            ("--seed", _) => flags.seed = Some(number()?),
            ("--rounds", "judge") => flags.rounds = Some(number()?),
            ("--sabotage", _) => {
                let known = Sabotage::by_name(value).ok_or_else(|| format!("unknown sabotage `{value}`"))?;
                flags.sabotage = Some(known);
            }
            ("--round", "worker") => flags.round = number()?,
            ("--run", "worker") => flags.run.clone_from(value),
            ("--millis", "worker") => flags.life = Duration::from_millis(number()?),
            ("--beside", "worker") => flags.beside = Some(PathBuf::from(value)),
            _ => return Err(format!("unknown option `{name}`").into()),
        }
    }
    if role == "worker" { flags.worker() } else { Ok(Role::Judge(flags.judge()?)) }
}

#[derive(Default)]
struct Flags {
    address: Option<Address>,
    seed: Option<u64>,
    rounds: Option<u64>,
    lose_unsynced: bool,
    sabotage: Option<Sabotage>,
    round: u64,
    run: String,
    life: Duration,
    beside: Option<PathBuf>,
    read_only: bool,
}

impl Flags {
    fn judge(self) -> Result<JudgeOptions, Failure> {
        let Self { address, seed, lose_unsynced, sabotage, .. } = self;
        let rounds = self.rounds.unwrap_or(50);
        if rounds == 0 {
            return Err("--rounds must be at least 1".into());
        }
        if sabotage == Some(Sabotage::NoSync) && !lose_unsynced {
            return Err(
                "a kill loses nothing that was written, synced or not: no-sync needs --lose-unsynced".into(),
            );
        }
        let is_on_server = address.as_ref().is_some_and(|address| address.file().is_none());
        if is_on_server && lose_unsynced {
            return Err(
                "--lose-unsynced discards writes of the workers to files; this store is on a server".into()
            );
        }
        if is_on_server && sabotage == Some(Sabotage::Forget) {
            return Err("the sabotage `forget` removes a store's files; this store is on a server".into());
        }
        Ok(JudgeOptions { address, rounds, seed, lose_unsynced, sabotage })
    }

    fn worker(self) -> Result<Role, Failure> {
        let Self { address, seed, sabotage, round, run, life, beside, read_only, .. } = self;
        let (Some(address), Some(beside), Some(seed)) = (address, beside, seed) else {
            return Err("a worker is started by the judge".into());
        };
        let workspace = Workspace { address, beside };
        Ok(Role::Worker(WorkerOptions { workspace, seed, round, run, life, read_only, sabotage }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Role, Failure> {
        read(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_store_that_cannot_be_tortured_is_refused() {
        for url in ["mysql://localhost/semel", "semel.db", "sqlite:", "memory:"] {
            let error = parse(&["--store", url]).expect_err("refused").to_string();
            assert!(error.contains("store") || error.contains("file"), "{error}");
        }
    }

    #[test]
    fn a_power_cut_of_a_servers_files_is_refused() {
        let server = "postgres://semel@localhost/semel";
        assert!(matches!(parse(&["--store", server]), Ok(Role::Judge(_))));
        for more in [&["--lose-unsynced"][..], &["--sabotage", "forget"]] {
            let error = parse(&[&["--store", server], more].concat()).expect_err("refused").to_string();
            assert!(error.contains("on a server"), "{error}");
        }
    }

    #[test]
    fn runs_on_one_server_are_separate() {
        let address = Address::read("postgres://semel@localhost/semel?sslmode=disable").expect("a store");
        let apart = address.apart("torture_7").url().to_string();
        assert_eq!(apart, "postgres://semel@localhost/semel?sslmode=disable&schema=torture_7");
        let named = Address::read("postgres://semel@localhost/semel?schema=own").expect("a store");
        assert_eq!(named.apart("torture_7").url(), named.url());
    }

    #[test]
    fn unknown_arguments_are_refused() {
        for arguments in
            [&["--fast"][..], &["--rounds"], &["--rounds", "many"], &["--rounds", "0"], &["--x", "1"]]
        {
            assert!(parse(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_sabotage_that_needs_power_cuts_is_refused_without_them() {
        assert!(parse(&["--sabotage", "no-sync"]).is_err());
        assert!(parse(&["--sabotage", "no-sync", "--lose-unsynced"]).is_ok());
    }
}
