//! `cargo xtask tools`: third-party programs and libraries that the tests use.

pub(crate) mod deny;
mod libraries;
pub(crate) mod packages;

use std::path::PathBuf;
use std::process::Command;

use crate::cargo;
use crate::failure::{Failure, expect_no_arguments};
use crate::report::Verdict;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    expect_no_arguments(arguments)?;
    let tools = Tools::default();
    tools.install().map_err(Failure::Stopped)?;
    println!(
        "everything is installed: {}, and the contents of {}",
        packages::names(),
        tools.folder.display()
    );
    Ok(())
}

/// The tools of this checkout.
#[derive(Debug)]
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Default for Tools {
    fn default() -> Self {
        Self { folder: cargo::target().join("services") }
    }
}

impl Tools {
    /// Provides what is missing. Quick if nothing is.
    pub(crate) fn install(&self) -> Result<(), String> {
        packages::install(&packages::missing_programs())?;
        libraries::python(&self.python())?;
        libraries::node(&self.node())
    }

    /// The same as a step of the test run.
    pub(crate) fn step(&self) -> Verdict {
        match self.install() {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(vec![reason]),
        }
    }

    /// Passes the paths to the tests, and that nothing may be missing.
    pub(crate) fn hand_to(&self, tests: &mut Command) {
        tests
            .env("SEMEL_TEST_TOOLS", "required")
            .env("SEMEL_TEST_PYTHON", self.python().join("bin/python"))
            .env("SEMEL_TEST_NODE_MODULES", self.node().join("node_modules"));
    }

    fn python(&self) -> PathBuf {
        self.folder.join("python")
    }

    fn node(&self) -> PathBuf {
        self.folder.join("node")
    }
}
