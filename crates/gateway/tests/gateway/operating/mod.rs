//! The programs that people run the gateway with: Prometheus and its rules, the dashboard's queries, the description
//! of the admin address, packaging.
//!
//! Each of them is the real program; `cargo xtask tools` provides them. The gateway is the real program too.

mod otlp;
mod packages;
mod packaging;
mod prometheus;
mod rules;
mod schemathesis;

use std::path::{Path, PathBuf};
use std::process::Command;

/// A file of this repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs a program, which has to succeed; returns all its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    assert!(output.status.success(), "{command:?} ended with {}: {text}", output.status);
    text
}
