//! Where the tests' tools are.
//!
//! Under `cargo xtask test` a missing one fails its test. Under a bare `cargo test` the test says so and is skipped.

use std::path::{Path, PathBuf};

/// A program of the system.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let daemons = PathBuf::from("/usr/sbin");
    let mut found = std::env::split_paths(&path).chain([daemons]).map(|folder| folder.join(name));
    or_missing(name, found.find(|program| program.is_file()))
}

/// The Python that has the libraries.
pub(crate) fn python() -> Option<PathBuf> {
    let python = tool_path("SEMEL_TEST_PYTHON", "python/bin/python");
    or_missing("Python with requests, httpx and stripe", python)
}

/// Node's modules, with the browser's driver among them.
pub(crate) fn node_modules() -> Option<PathBuf> {
    let modules = tool_path("SEMEL_TEST_NODE_MODULES", "node/node_modules");
    or_missing("playwright-core", modules.filter(|modules| modules.join("playwright-core").is_dir()))
}

/// The path in the variable, or the one where `cargo xtask tools` installs it.
fn tool_path(variable: &str, usual: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target folder");
    let path = std::env::var_os(variable).map_or_else(|| target.join("services").join(usual), PathBuf::from);
    path.exists().then_some(path)
}

fn or_missing(tool: &str, found: Option<PathBuf>) -> Option<PathBuf> {
    if found.is_none() {
        let advice = format!("{tool} is missing; `cargo xtask tools` provides it");
        assert!(std::env::var_os("SEMEL_TEST_TOOLS").is_none_or(|value| value != "required"), "{advice}");
        eprintln!("skipped: {advice}");
    }
    found
}
