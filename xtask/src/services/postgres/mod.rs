//! PostgreSQL: the server that tests write to, and a standby of it.

mod standby;

use std::fs;
use std::path::Path;

use super::home::{Home, describe};
use super::server::Server;
use semel_test_support::launcher::postgres::{PID_FILE, Programs, USER, ask};
pub(super) use standby::Standby;

/// The kind of server.
pub(super) struct Postgres;

impl Server for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn variable(&self) -> &'static str {
        "SEMEL_TEST_POSTGRES_URL"
    }

    fn user(&self) -> &'static str {
        USER
    }

    fn missing_packages(&self) -> Vec<&'static str> {
        missing_packages()
    }

    fn url(&self, port: u16) -> String {
        url(port)
    }

    fn pid_file(&self) -> &'static str {
        PID_FILE
    }

    fn start(&self, home: &Home, port: u16, _: Option<&str>) -> Result<(), String> {
        let programs = Programs::require()?;
        provide_data(home, &programs)?;
        start(home, &programs, port, &[])
    }

    fn stop(&self, home: &Home) -> Result<(), String> {
        stop(home)
    }

    fn version(&self, url: &str) -> Result<String, String> {
        version(url)
    }
}

fn url(port: u16) -> String {
    format!("postgres://semel@127.0.0.1:{port}/semel")
}

fn version(url: &str) -> Result<String, String> {
    let answer = ask(url, "SHOW server_version")?;
    answer
        .split_whitespace()
        .next()
        .map(str::to_owned)
        .ok_or_else(|| "the server did not report its version".to_owned())
}

/// Starts a server on existing data, with further settings.
fn start(home: &Home, programs: &Programs, port: u16, more: &[&str]) -> Result<(), String> {
    let started = programs.start(&home.data(), &home.path("log"), port, more);
    started.map_err(|error| format!("{error}\n{}", home.log_tail()))
}

fn stop(home: &Home) -> Result<(), String> {
    Programs::require()?.stop(&home.data(), "fast")
}

/// The package, unless the programs are installed.
fn missing_packages() -> Vec<&'static str> {
    if Programs::find().is_some() { Vec::new() } else { vec!["postgresql"] }
}

/// Whether the data is complete and has the programs' version.
fn has_data(home: &Home, programs: &Programs) -> Result<bool, String> {
    let made_by = fs::read_to_string(home.data().join("PG_VERSION")).unwrap_or_default();
    Ok(!made_by.is_empty() && made_by.trim() == programs.major_version()?)
}

/// Creates the data unless it exists with the right version. Its contents are not needed after a test.
fn provide_data(home: &Home, programs: &Programs) -> Result<(), String> {
    if has_data(home, programs)? {
        return Ok(());
    }
    replace_data(home, |unfinished| programs.create(unfinished))
}

/// Creates new data. A folder with its final name is complete, even after a crash in between.
fn replace_data(home: &Home, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<(), String> {
    let (data, unfinished) = (home.data(), home.path("data.new"));
    for folder in [&data, &unfinished] {
        if folder.exists() {
            fs::remove_dir_all(folder).map_err(|error| describe(folder, &error))?;
        }
    }
    make(&unfinished)?;
    fs::rename(&unfinished, &data).map_err(|error| describe(&data, &error))
}
