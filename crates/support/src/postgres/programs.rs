//! PostgreSQL's programs, and the user that runs them.

use std::fmt;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where Debian installs the programs of each major version.
const DEBIAN: &str = "/usr/lib/postgresql";
const NEEDED: [&str; 5] = ["initdb", "pg_basebackup", "pg_ctl", "postgres", "psql"];

/// PostgreSQL refuses to run as root.
const USER: &str = "postgres";

#[derive(Debug, Clone)]
pub(super) struct Programs {
    folder: PathBuf,
    is_root: bool,
}

impl Programs {
    /// Debian's newest version, or those of `PATH`.
    pub(super) fn find() -> Option<Self> {
        let versions = std::fs::read_dir(DEBIAN).into_iter().flatten().flatten();
        let mut versions: Vec<(u32, PathBuf)> = versions
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
            .collect();
        versions.sort_unstable();
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut folders =
            versions.into_iter().rev().map(|(_, folder)| folder).chain(std::env::split_paths(&path));
        let folder = folders.find(|folder| NEEDED.iter().all(|name| folder.join(name).is_file()))?;
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        Some(Self { folder, is_root })
    }

    /// Gives a directory to the user that runs the server.
    pub(super) fn give(&self, dir: &Path) {
        if !self.is_root {
            return;
        }
        output("chown", Command::new("chown").arg("-R").arg(USER).arg(dir))
            .expect("a directory for the server's user");
        let mut enter = Command::new("runuser");
        enter.args(["-u", USER, "--", "test", "-x"]).arg(dir).current_dir("/");
        let can_enter = output("runuser", &mut enter).is_ok();
        assert!(
            can_enter,
            "the user {USER} cannot enter {}: use a directory that everybody can",
            dir.display()
        );
    }

    /// Makes the server's user the only owner of a file.
    pub(super) fn give_file(&self, file: &Path) {
        let private = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(file, private).expect("permissions of the server's file");
        if self.is_root {
            output("chown", Command::new("chown").arg(USER).arg(file)).expect("a file for the server's user");
        }
    }

    /// Runs a program to its end and returns its output. Panics if it fails.
    pub(super) fn run(&self, name: &str, arguments: &[&str]) -> String {
        self.try_run(name, arguments).expect("PostgreSQL's own programs work")
    }

    pub(super) fn try_run(&self, name: &str, arguments: &[&str]) -> Result<String, ProgramError> {
        output(name, &mut self.command(name, arguments))
    }

    /// A program that runs as the server's user.
    pub(super) fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let program = self.folder.join(name);
        let mut command = if self.is_root {
            let mut command = Command::new("runuser");
            command.args(["-u", USER, "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        // The developer's own `PGHOST` and the like.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
            command.env_remove(name);
        }
        command.args(arguments).current_dir("/").env("LC_ALL", "C").env("PGCONNECT_TIMEOUT", "5");
        command
    }
}

/// Sends a signal: `KILL`, `STOP`, `CONT`. It is not a failure if a process has ended meanwhile.
pub(super) fn signal(name: &str, pids: &[u32]) {
    let numbers: Vec<_> = pids.iter().map(u32::to_string).collect();
    let script = format!("kill -{name} {}; true", numbers.join(" "));
    output("/bin/sh", Command::new("/bin/sh").args(["-c", &script])).expect("a shell");
}

fn output(name: &str, command: &mut Command) -> Result<String, ProgramError> {
    let program = name.to_owned();
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(source) => return Err(ProgramError::NotStarted { program, source }),
    };
    let read = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(read(&output.stdout))
    } else {
        Err(ProgramError::Failed { program, message: read(&output.stderr) })
    }
}

/// A program that failed.
#[derive(Debug)]
pub enum ProgramError {
    /// It did not run.
    NotStarted {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It reported a failure.
    Failed {
        /// Its name.
        program: String,
        /// What it wrote to its standard error.
        message: String,
    },
}

impl fmt::Display for ProgramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotStarted { program, source } => write!(f, "{program}: {source}"),
            Self::Failed { program, message } => write!(f, "{program}: {message}"),
        }
    }
}

impl std::error::Error for ProgramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotStarted { source, .. } => Some(source),
            Self::Failed { .. } => None,
        }
    }
}
