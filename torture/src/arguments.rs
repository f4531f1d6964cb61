//! What the program can be told.
//!
//! What lives here: the command line. What must never: a default that hides what is being tortured.

use crate::place::{Address, Failure, Place};
use crate::sabotage::Sabotage;
use crate::worker::Orders;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const HELP: &str = "usage: cargo xtask crash [--store URL] [--rounds N] [--seed S] [--lose-unsynced]

  --store URL       a store that does not exist yet (default: a file in a new temporary directory). On a server each run makes a store
                    of its own, named after its seed, and leaves it there; `postgres` is the server of `cargo xtask services`
  --rounds N        how many times workers are started and killed (default 50)
  --seed S          what chance follows from (default: the time of day; every run prints its own)
  --lose-unsynced   after most kills take back writes that were not synced, as a power cut may (a store of files, Linux, needs cc)";

/// What a judge is told.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) address: Option<Address>,
    pub(crate) rounds: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) lose_unsynced: bool,
    pub(crate) sabotage: Option<Sabotage>,
}

/// Who this process is.
#[derive(Debug)]
pub(crate) enum Role {
    /// Runs commands until it is killed.
    Worker(Orders),
    /// Kills, and audits.
    Judge(Case),
}

pub(crate) fn read(arguments: &[String]) -> Result<Role, Failure> {
    let (role, rest) = match arguments.split_first() {
        Some((first, rest)) if first == "worker" => ("worker", rest),
        Some((first, rest)) if first == "judge" => ("judge", rest),
        _ => ("judge", arguments),
    };
    let mut given = Given::default();
    let mut rest = rest.iter();
    while let Some(name) = rest.next() {
        if name == "--lose-unsynced" {
            given.lose_unsynced = true;
            continue;
        }
        if name == "--looks" && role == "worker" {
            given.looks = true;
            continue;
        }
        let value = rest.next().ok_or_else(|| format!("`{name}` needs a value, or is not known"))?;
        let number = || value.parse::<u64>().map_err(|_| format!("`{name}` needs a number, not `{value}`"));
        match (name.as_str(), role) {
            ("--store", _) => given.address = Some(Address::read(value)?),
            ("--seed", _) => given.seed = Some(number()?),
            ("--rounds", "judge") => given.rounds = Some(number()?),
            ("--sabotage", _) => {
                let known =
                    Sabotage::by_name(value).ok_or_else(|| format!("no sabotage is called `{value}`"))?;
                given.sabotage = Some(known);
            }
            ("--round", "worker") => given.round = number()?,
            ("--run", "worker") => given.run.clone_from(value),
            ("--millis", "worker") => given.life = Duration::from_millis(number()?),
            ("--beside", "worker") => given.beside = Some(PathBuf::from(value)),
            _ => return Err(format!("`{name}` is not known").into()),
        }
    }
    if role == "worker" { given.worker() } else { Ok(Role::Judge(given.judge()?)) }
}

#[derive(Default)]
struct Given {
    address: Option<Address>,
    seed: Option<u64>,
    rounds: Option<u64>,
    lose_unsynced: bool,
    sabotage: Option<Sabotage>,
    round: u64,
    run: String,
    life: Duration,
    beside: Option<PathBuf>,
    looks: bool,
}

impl Given {
    fn judge(self) -> Result<Case, Failure> {
        let Self { address, seed, lose_unsynced, sabotage, .. } = self;
        let rounds = self.rounds.unwrap_or(50);
        if rounds == 0 {
            return Err("no rounds prove nothing".into());
        }
        if sabotage == Some(Sabotage::NoSync) && !lose_unsynced {
            return Err(
                "a kill loses nothing that was written, synced or not: no-sync needs --lose-unsynced".into(),
            );
        }
        let is_on_server = address.as_ref().is_some_and(|address| address.file().is_none());
        if is_on_server && lose_unsynced {
            return Err("--lose-unsynced takes back what a process wrote to files; this store is on a server, whose files the \
                        processes do not write"
                .into());
        }
        if is_on_server && sabotage == Some(Sabotage::Forget) {
            return Err("the sabotage `forget` removes a store's files; this store is on a server".into());
        }
        Ok(Case { address, rounds, seed, lose_unsynced, sabotage })
    }

    fn worker(self) -> Result<Role, Failure> {
        let Self { address, seed, sabotage, round, run, life, beside, looks, .. } = self;
        let (Some(address), Some(beside), Some(seed)) = (address, beside, seed) else {
            return Err("a worker is started by the judge".into());
        };
        let place = Place { address, beside };
        Ok(Role::Worker(Orders { place, seed, round, run, life, looks, sabotage }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(arguments: &[&str]) -> Result<Role, Failure> {
        read(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_store_that_cannot_be_tortured_is_refused() {
        for url in ["mysql://localhost/semel", "semel.db", "sqlite:", "memory:"] {
            let error = told(&["--store", url]).expect_err("refused").to_string();
            assert!(error.contains("store") || error.contains("file"), "{error}");
        }
    }

    #[test]
    fn a_power_cut_of_a_servers_files_is_refused() {
        let server = "postgres://semel@localhost/semel";
        assert!(matches!(told(&["--store", server]), Ok(Role::Judge(_))));
        for more in [&["--lose-unsynced"][..], &["--sabotage", "forget"]] {
            let error = told(&[&["--store", server], more].concat()).expect_err("refused").to_string();
            assert!(error.contains("on a server"), "{error}");
        }
    }

    #[test]
    fn runs_on_one_server_do_not_meet() {
        let address = Address::read("postgres://semel@localhost/semel?sslmode=disable").expect("a store");
        let apart = address.apart("torture_7").url().to_string();
        assert_eq!(apart, "postgres://semel@localhost/semel?sslmode=disable&schema=torture_7");
        let named = Address::read("postgres://semel@localhost/semel?schema=own").expect("a store");
        assert_eq!(named.apart("torture_7").url(), named.url());
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for arguments in
            [&["--fast"][..], &["--rounds"], &["--rounds", "many"], &["--rounds", "0"], &["--x", "1"]]
        {
            assert!(told(arguments).is_err(), "{arguments:?}");
        }
    }

    #[test]
    fn a_sabotage_that_a_kill_cannot_show_is_refused_without_a_power_cut() {
        assert!(told(&["--sabotage", "no-sync"]).is_err());
        assert!(told(&["--sabotage", "no-sync", "--lose-unsynced"]).is_ok());
    }
}
