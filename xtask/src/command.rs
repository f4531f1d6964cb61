//! The table of commands: their names and their help.

use std::fmt::Write as _;

use crate::failure::Failure;
use crate::{bench, campaign, crash, dist, fuzz, model, mutants, services, sim, test, tidy, tools, torture};

struct Command {
    name: &'static str,
    arguments: &'static str,
    about: &'static str,
    run: fn(&[String]) -> Result<(), Failure>,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "test",
        arguments: "[--fast]",
        about: "everything that CI runs: tidy, then every test; --fast: without the slow test programs",
        run: test::run,
    },
    Command { name: "tidy", arguments: "", about: "project rules, lints, format, docs", run: tidy::run },
    Command {
        name: "tools",
        arguments: "",
        about: "install the programs that tests use: curl, nginx, a browser …",
        run: tools::run,
    },
    Command {
        name: "services",
        arguments: "up|down|status [name…]",
        about: "private servers for the tests: PostgreSQL with a standby and PgBouncer, Redis, a cluster, Valkey; `up --export` for a shell, `status --json`",
        run: services::run,
    },
    Command {
        name: "dist",
        arguments: "[--program FILE] [--out DIR] [--quick]",
        about: "build the program and pack it: tarball, .deb, container context, checksums (target/packages); --program: pack this one; --quick: compress less",
        run: dist::run,
    },
    Command {
        name: "model",
        arguments: "[args…]",
        about: "the model checker, optimised; arguments are passed to it",
        run: model::run,
    },
    Command {
        name: "crash",
        arguments: "[transactions | patterns | args…]",
        about: "kill -9 and power cuts, audited; arguments are passed to it; `transactions`: local commands, `patterns`: those in the caller's transaction, 100 rounds on SQLite and 30 on PostgreSQL",
        run: crash::run,
    },
    Command {
        name: "torture",
        arguments: "[--seconds N] [--scenario NAME | --all]",
        about: "floods of clients against the gateway, while an honest one is served; arguments are passed to it",
        run: torture::run,
    },
    Command {
        name: "sim",
        arguments: "[--seed N] [--runs M]",
        about: "seeded histories of the engine, optimised",
        run: sim::run,
    },
    Command {
        name: "campaign",
        arguments: "[--seed N] [--only PART,…]",
        about: "what a test run does in small, at full size and from a new seed: model, histories, sabotages, contract, storms, crash, transactions, patterns, outages, floods",
        run: campaign::run,
    },
    Command {
        name: "fuzz",
        arguments: "[target] [--seconds N]",
        about: "one or every fuzz target, N seconds each (default 60)",
        run: fuzz::run,
    },
    Command {
        name: "mutants",
        arguments: "[file…]",
        about: "check that a test fails for each small code change (default: machine, key, fingerprint)",
        run: mutants::run,
    },
    Command {
        name: "bench",
        arguments: "[name | store [args…] | http [args…]]",
        about: "the benchmarks, or one; `store`: compared with a bare log; `stores`: with manual SQL; `transactions`: with the same transaction without Semel; `http`: with nginx (`http --help`); `peers`: with another library",
        run: bench::run,
    },
];

/// Runs the command that the first argument names.
pub(crate) fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let Some((name, rest)) = arguments.split_first() else {
        println!("{}", help());
        return Ok(());
    };
    if matches!(name.as_str(), "help" | "--help" | "-h") {
        println!("{}", help());
        return Ok(());
    }
    match COMMANDS.iter().find(|command| command.name == name) {
        Some(command) => (command.run)(rest),
        None => Err(Failure::Usage(format!("unknown command `{name}`"))),
    }
}

/// The table of commands as text.
pub(crate) fn help() -> String {
    let mut text = String::from("usage: cargo xtask <command>\n");
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.arguments);
        let _ = write!(text, "\n  {call:<28} {}", command.about);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_is_a_usage_error_that_names_it() {
        let answer = dispatch(&["frobnicate".to_owned()]);
        assert_eq!(answer, Err(Failure::Usage("unknown command `frobnicate`".to_owned())));
    }

    #[test]
    fn every_command_has_one_line_of_help() {
        let help = help();
        for command in COMMANDS {
            let lines = help.lines().filter(|line| line.trim_start().starts_with(command.name)).count();
            assert_eq!(lines, 1, "{}", command.name);
            assert!(!command.about.is_empty());
        }
    }
}
