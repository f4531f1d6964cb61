//! `cargo xtask torture`: runs the floods of `torture/src/flood` against an optimised gateway, directly and
//! through nginx.

use crate::cargo;
use crate::failure::Failure;
use crate::services;
use crate::tools::packages;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    if let Some(("outages", options)) = arguments.split_first().map(|(name, rest)| (name.as_str(), rest)) {
        return outages(options);
    }
    let find = || {
        packages::directories()
            .into_iter()
            .map(|directory| directory.join("nginx"))
            .find(|file| file.is_file())
    };
    if find().is_none() {
        packages::install(&["nginx"]).map_err(Failure::Stopped)?;
    }
    let nginx =
        find().ok_or_else(|| Failure::Stopped("nginx is installed, but cannot be found".to_owned()))?;
    let mut build = cargo::cargo();
    build.args(["build", "--release", "--package", "semel-gateway", "--package", "semel-torture"]);
    cargo::pass_through(build)?;
    let programs = cargo::target().join("release");
    let arguments = services::with_urls(arguments)?;
    let mut flood = cargo::program(&programs.join("flood").to_string_lossy());
    flood.arg("--semel").arg(programs.join("semel")).arg("--nginx").arg(nginx).args(arguments);
    cargo::pass_through(flood)
}

/// Outages of the store's server under two gateways. Timing is the servers', so the build need not be optimised.
fn outages(options: &[String]) -> Result<(), Failure> {
    let mut build = cargo::cargo();
    build.args(["build", "--package", "semel-gateway", "--bin", "semel"]);
    cargo::pass_through(build)?;
    let mut run = cargo::cargo();
    run.args(["run", "--package", "semel-torture", "--example", "outages", "--", "--semel"]);
    run.arg(cargo::target().join("debug/semel")).args(options);
    cargo::pass_through(run)
}
