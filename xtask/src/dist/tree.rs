//! The installed files, in a folder that represents `/usr` or a prefix.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Release;
use crate::cargo;

/// Whose layout the files follow. Only zsh's folder differs.
#[derive(Debug, Clone, Copy)]
pub(super) enum Layout {
    /// `/usr/local`, a home directory, most distributions.
    Usual,
    Debian,
}

impl Layout {
    /// Each shell, and where it looks for completions.
    fn completions(self) -> [(&'static str, &'static str); 3] {
        let zsh = match self {
            Self::Usual => "share/zsh/site-functions/_semel",
            Self::Debian => "share/zsh/vendor-completions/_semel",
        };
        let fish = "share/fish/vendor_completions.d/semel.fish";
        [("bash", "share/bash-completion/completions/semel"), ("zsh", zsh), ("fish", fish)]
    }
}

/// Files of this repository, and where they are installed.
const FILES: &[(&str, &str)] = &[
    ("packaging/systemd/semel.service", "lib/systemd/system/semel.service"),
    ("README.md", "share/doc/semel/README.md"),
    ("LICENSE-APACHE", "share/doc/semel/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/semel/LICENSE-MIT"),
    ("docs/operations/alerts.yml", "share/doc/semel/operations/alerts.yml"),
    ("docs/operations/grafana.json", "share/doc/semel/operations/grafana.json"),
    ("docs/operations/runbook.md", "share/doc/semel/operations/runbook.md"),
];

/// Writes everything below `prefix`.
pub(super) fn fill(prefix: &Path, layout: Layout, release: &Release) -> Result<(), String> {
    copy(&release.program, &prefix.join("bin/semel"), 0o755)?;
    for (from, to) in FILES {
        copy(&cargo::root().join(from), &prefix.join(to), 0o644)?;
    }
    for (shell, to) in layout.completions() {
        write(&prefix.join(to), &ask(release, &["completions", shell])?)?;
    }
    write(&prefix.join("share/doc/semel/examples/semel.toml"), &ask(release, &["config", "default"])?)?;
    manual(release, &prefix.join("share/man/man1"))
}

/// A manual page for each command, compressed as `man` expects.
fn manual(release: &Release, folder: &Path) -> Result<(), String> {
    ask(release, &["man", &folder.to_string_lossy()])?;
    let mut gzip = cargo::program("gzip");
    gzip.args(["-n", "-9"]).args(pages(folder)?);
    cargo::capture(gzip).map(drop)
}

fn pages(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut pages = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        pages.push(entry.map_err(failed)?.path());
    }
    if pages.is_empty() {
        return Err("the program wrote no manual page".to_owned());
    }
    Ok(pages)
}

fn ask(release: &Release, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(&release.program);
    command.args(arguments);
    cargo::capture(command)
}

/// Copies a file with these permissions, whoever owned it.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), String> {
    let bytes = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    write_bytes(to, &bytes, mode)
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), String> {
    write_bytes(path, text.as_bytes(), 0o644)
}

fn write_bytes(path: &Path, bytes: &[u8], mode: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, bytes).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed)
}

/// Gives everything the usual permissions, whatever the umask was, and the release's time.
pub(super) fn settle(folder: &Path, release: &Release) -> Result<(), String> {
    let mut modes = cargo::program("chmod");
    modes.args(["--recursive", "u=rwX,go=rX"]).arg(folder);
    cargo::capture(modes)?;
    let mut times = cargo::program("find");
    times.arg(folder).args(["-exec", "touch", "--no-dereference", "--date"]);
    times.arg(format!("@{}", release.time)).args(["{}", "+"]);
    cargo::capture(times).map(drop)
}
