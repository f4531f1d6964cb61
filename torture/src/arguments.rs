//! The command line.

use crate::sabotage::Sabotage;
use crate::worker::WorkerOptions;
use crate::workspace::Address;
use clap::error::ErrorKind;
use clap::{CommandFactory as _, Error, Parser, value_parser};

/// Kills workers in the middle of commands, and audits the result.
#[derive(Debug, Clone, Parser)]
#[command(bin_name = "cargo xtask crash", no_binary_name = true, args_override_self = true)]
pub(crate) struct JudgeOptions {
    /// A store that does not exist yet (default: a file in a new temporary directory). On a server each run creates a
    /// new store, named after its seed, and leaves it there; `postgres` is the server of `cargo xtask services`
    #[arg(long = "store", value_name = "URL", value_parser = Address::parser())]
    pub(crate) address: Option<Address>,
    /// How many times workers are started and killed
    #[arg(long, value_name = "N", default_value = "50", value_parser = value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,
    /// The seed of all random choices (default: from the clock; every run prints it)
    #[arg(long, value_name = "S")]
    pub(crate) seed: Option<u64>,
    /// After most kills discard writes that were not synced, as a power cut may (a store in files, Linux, needs cc)
    #[arg(long)]
    pub(crate) lose_unsynced: bool,
    /// A deliberate fault, which must be found
    #[arg(long, value_name = "NAME", hide = true)]
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

pub(crate) fn read(arguments: &[String]) -> Result<Role, Error> {
    match arguments.split_first() {
        Some((first, rest)) if first == "worker" => WorkerOptions::try_parse_from(rest).map(Role::Worker),
        Some((first, rest)) if first == "judge" => judge(rest),
        _ => judge(arguments),
    }
}

fn judge(arguments: &[String]) -> Result<Role, Error> {
    let options = JudgeOptions::try_parse_from(arguments)?;
    match options.conflict() {
        None => Ok(Role::Judge(options)),
        Some(conflict) => Err(JudgeOptions::command().error(ErrorKind::ArgumentConflict, conflict)),
    }
}

impl JudgeOptions {
    /// Why these options exclude each other.
    fn conflict(&self) -> Option<&'static str> {
        if self.sabotage == Some(Sabotage::NoSync) && !self.lose_unsynced {
            return Some(
                "a kill loses nothing that was written, synced or not: no-sync needs --lose-unsynced",
            );
        }
        let is_on_server = self.address.as_ref().is_some_and(|address| address.file().is_none());
        if is_on_server && self.lose_unsynced {
            return Some(
                "--lose-unsynced discards writes of the workers to files; this store is on a server",
            );
        }
        if is_on_server && self.sabotage == Some(Sabotage::Forget) {
            return Some("the sabotage `forget` removes a store's files; this store is on a server");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Role, Error> {
        read(&arguments.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_store_that_cannot_be_tortured_is_refused() {
        for url in ["mysql://localhost/semel", "semel.db", "sqlite:", "memory:"] {
            assert!(parse(&["--store", url]).is_err(), "{url}");
            let error = Address::read(url).expect_err("refused").to_string();
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
