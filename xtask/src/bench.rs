//! `cargo xtask bench`: runs the benchmarks in `bench/benches/` and `bench/examples/`.

use crate::cargo;
use crate::failure::{Failure, expect_no_arguments};
use crate::report::Verdict;
use crate::services::TestServers;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments.split_first() {
        Some((name, options)) if name == "store" => return example(name, options, &TestServers::default()),
        Some((name, options)) if name == "stores" => {
            return with_servers(&["postgres", "redis"], name, options);
        }
        Some((name, options)) if ["transactions", "patterns"].contains(&name.as_str()) => {
            return with_servers(&["postgres"], name, options);
        }
        Some((name, options)) if name == "peers" => {
            let mut servers = TestServers::default();
            let result = match servers.up_named(&["valkey"]) {
                Verdict::Failed(reasons) => Err(Failure::Stopped(reasons.join("\n"))),
                _ => peers(options, &servers),
            };
            servers.down();
            return result;
        }
        Some((name, options)) if name == "http" => {
            // Measure the program as it is shipped.
            let mut command = cargo::cargo();
            command.args(["build", "--quiet", "--profile=dist", "--package=semel-gateway", "--bin=semel"]);
            cargo::pass_through(command)?;
            return example(name, options, &TestServers::default());
        }
        _ => {}
    }
    let name = match arguments.split_first() {
        // A pattern, so that only benchmark programs run: the library's unit tests measure nothing.
        None => "*",
        Some((name, rest)) => {
            expect_no_arguments(rest)?;
            name
        }
    };
    let mut command = cargo::cargo();
    command.args(["bench", "--package", "semel-bench", "--bench", name]);
    cargo::pass_through(command)
}

/// A benchmark with its own options, which prints a table.
fn example(name: &str, options: &[String], servers: &TestServers) -> Result<(), Failure> {
    let mut command = cargo::cargo();
    servers.hand_to(&mut command);
    command.args(["run", "--quiet", "--profile=dist", "--package=semel-bench", "--example", name, "--"]);
    command.args(options);
    cargo::pass_through(command)
}

/// Compares Semel with other libraries, which only this separate workspace depends on.
fn peers(options: &[String], servers: &TestServers) -> Result<(), Failure> {
    let root = cargo::root();
    let mut command = cargo::cargo();
    servers.hand_to(&mut command);
    command.args(["run", "--quiet", "--release", "--locked", "--manifest-path"]);
    command.arg(root.join("bench/peers/Cargo.toml")).arg("--").args(options);
    cargo::pass_through(command)
}

/// A benchmark of stores on servers. Servers that do not run are started, and stopped afterwards.
fn with_servers(names: &[&str], name: &str, options: &[String]) -> Result<(), Failure> {
    let mut servers = TestServers::default();
    let result = match servers.up_named(names) {
        Verdict::Failed(reasons) => Err(Failure::Stopped(reasons.join("\n"))),
        _ => example(name, options, &servers),
    };
    servers.down();
    result
}
