//! `cargo xtask campaign`: everything that a test run does in small, at full size and on new random starts.
//!
//! Each part is also a command of its own. The starts are printed, so that a failure can be repeated.

use crate::failure::Failure;
use crate::report::{Report, Verdict};
use crate::services::TestServers;
use crate::stopwatch;
use crate::{cargo, crash, model, sim, torture};

/// How many storms of each kind of server.
const STORMS: u64 = 10;

struct Part {
    name: &'static str,
    about: &'static str,
    run: fn(u64) -> Result<(), Failure>,
}

const PARTS: &[Part] = &[
    Part { name: "model", about: "every configuration, assumption and seeded bug", run: |_| model::run(&[]) },
    Part {
        name: "histories",
        about: "100,000 histories",
        run: |seed| sim::run(&words(&["--runs", "100000", "--seed", &seed.to_string()])),
    },
    Part {
        name: "sabotages",
        about: "each is caught by the histories",
        run: |_| sim::run(&words(&["--sabotages", "--runs", "20000"])),
    },
    Part {
        name: "contract",
        about: "every promise of a store through PgBouncer, on Valkey, a cluster and few buckets",
        run: |_| with_servers(|servers| store_tests(servers, &[], &["--ignored", "every_promise"])),
    },
    Part { name: "storms", about: "ten storms on PostgreSQL, Redis, Valkey and a cluster", run: storms },
    Part {
        name: "crash",
        about: "kill -9 and power cuts, 100 rounds each, and 30 on PostgreSQL",
        run: crashes,
    },
    Part {
        name: "transactions",
        about: "kill -9 of local commands, 100 rounds on SQLite and 30 on PostgreSQL",
        run: |_| crash::run(&words(&["transactions"])),
    },
    Part {
        name: "patterns",
        about: "kill -9 of the patterns in the caller's transaction, as often",
        run: |_| crash::run(&words(&["patterns"])),
    },
    Part {
        name: "outages",
        about: "outages of the store's server",
        run: |_| torture::run(&words(&["outages"])),
    },
    Part { name: "floods", about: "floods of clients", run: |_| torture::run(&words(&["--all"])) },
];

#[derive(Debug, PartialEq, Eq)]
struct Options {
    seed: Option<u64>,
    only: Vec<&'static str>,
}

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let Options { seed, only } = options(arguments)?;
    let seed = seed.unwrap_or_else(stopwatch::seconds_since_1970);
    let mut report = Report::default();
    for part in PARTS.iter().filter(|part| only.is_empty() || only.contains(&part.name)) {
        println!("{} (seed {seed})", part.about);
        report.step(part.name, || match (part.run)(seed) {
            Ok(()) => Verdict::Passed,
            Err(Failure::Reported) => Verdict::Failed(Vec::new()),
            Err(Failure::Usage(reason) | Failure::Stopped(reason)) => Verdict::Failed(vec![reason]),
        });
    }
    println!("\n{report}{}\n\nto repeat it: cargo xtask campaign --seed {seed}", report.skipped());
    if report.failed() == 0 { Ok(()) } else { Err(Failure::Reported) }
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options { seed: None, only: Vec::new() };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = arguments.next().map(String::as_str);
        let usage = |problem: &str| Err(Failure::Usage(format!("campaign: {argument} {problem}")));
        match (argument.as_str(), value) {
            ("--seed", Some(value)) => match value.parse() {
                Ok(seed) => options.seed = Some(seed),
                Err(_) => return usage("needs a number"),
            },
            ("--only", Some(names)) => {
                for name in names.split(',') {
                    let Some(part) = PARTS.iter().find(|part| part.name == name) else {
                        let known: Vec<_> = PARTS.iter().map(|part| part.name).collect();
                        return usage(&format!("needs names out of {}, not `{name}`", known.join(", ")));
                    };
                    options.only.push(part.name);
                }
            }
            ("--seed" | "--only", None) => return usage("needs a value"),
            _ => return usage("is unknown"),
        }
    }
    Ok(options)
}

fn words(arguments: &[&str]) -> Vec<String> {
    arguments.iter().map(|&argument| argument.to_owned()).collect()
}

/// Storms of 2,000 keys, with consecutive seeds.
fn storms(seed: u64) -> Result<(), Failure> {
    with_servers(|servers| {
        (seed..seed + STORMS).try_for_each(|seed| {
            println!("storms with SEMEL_STORM_SEED={seed}");
            let seed = seed.to_string();
            store_tests(servers, &[("SEMEL_STORM_SEED", &seed), ("SEMEL_STORM_KEYS", "2000")], &["storm::"])
        })
    })
}

/// Runs the tests of the stores on shared servers that these arguments select.
fn store_tests(servers: &TestServers, variables: &[(&str, &str)], selection: &[&str]) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    servers.hand_to(&mut command);
    command.envs(variables.iter().copied());
    command.args(["test", "--quiet", "--workspace", "--test=redis", "--test=postgres", "--"]).args(selection);
    cargo::pass_through(command)
}

fn with_servers(run: impl FnOnce(&TestServers) -> Result<(), Failure>) -> Result<(), Failure> {
    let mut servers = TestServers::default();
    let result = match servers.up() {
        Verdict::Failed(reasons) => Err(Failure::Stopped(reasons.join("\n"))),
        _ => run(&servers),
    };
    servers.down();
    result
}

fn crashes(seed: u64) -> Result<(), Failure> {
    let seed = seed.to_string();
    let kinds: [&[&str]; 3] = [
        &["--rounds", "100"],
        &["--rounds", "100", "--lose-unsynced"],
        &["--rounds", "30", "--store", "postgres"],
    ];
    kinds.iter().try_for_each(|kind| crash::run(&words(&[kind, &["--seed", &seed][..]].concat())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, Failure> {
        options(&words(arguments))
    }

    #[test]
    fn parts_and_seed_can_be_chosen() {
        assert_eq!(parse(&[]), Ok(Options { seed: None, only: Vec::new() }));
        let chosen = parse(&["--seed", "7", "--only", "model,storms"]);
        assert_eq!(chosen, Ok(Options { seed: Some(7), only: vec!["model", "storms"] }));
    }

    #[test]
    fn what_would_be_ignored_is_refused() {
        for bad in [
            &["--seed"][..],
            &["--seed", "x"],
            &["--only", "modle"],
            &["--only"],
            &["--rounds", "7"],
            &["model"],
        ] {
            assert!(matches!(parse(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }
}
