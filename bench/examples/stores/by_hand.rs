//! What people write by hand, run by pgbench: a key that is inserted unless it is there, and its response, a commit each.

use crate::database::Database;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const SCRIPT: &str = "\\set number random(1, 9000000000000000000)
INSERT INTO by_hand (key, fingerprint) VALUES ('order-' || :number, sha256('amount=5')) ON CONFLICT DO NOTHING;
UPDATE by_hand SET status = 201, body = repeat('x', 256)::bytea WHERE key = 'order-' || :number;
";

#[derive(Clone)]
pub(crate) struct Pgbench {
    program: PathBuf,
    script: PathBuf,
    url: String,
}

/// What a run of it printed.
pub(crate) struct Said {
    pub(crate) done: f64,
    pub(crate) per_second: f64,
    pub(crate) mean_millis: f64,
}

impl Pgbench {
    pub(crate) fn new(database: &Database) -> Result<Self, Box<dyn Error>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bench/stores");
        std::fs::create_dir_all(&folder)?;
        let script = folder.join("by_hand.sql");
        std::fs::write(&script, SCRIPT)?;
        Ok(Self { program: program()?, script, url: database.url().to_owned() })
    }

    /// Prepared statements, as drivers use them; a connection for each client.
    pub(crate) fn run(&self, clients: u64, span: Duration) -> Result<Said, Box<dyn Error>> {
        let threads = clients.min(2).to_string();
        let output = Command::new(&self.program)
            .args(["--no-vacuum", "--protocol=prepared", "--client", &clients.to_string()])
            .args(["--jobs", &threads, "--time", &span.as_secs().max(1).to_string()])
            .arg("--file")
            .arg(&self.script)
            .arg(&self.url)
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = |before: &str| -> Option<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(before))?;
            line.trim().split([' ', '/']).next()?.parse().ok()
        };
        let said = || {
            Some(Said {
                done: number("number of transactions actually processed:")?,
                per_second: number("tps =")?,
                mean_millis: number("latency average =")?,
            })
        };
        match said() {
            Some(said) if output.status.success() => Ok(said),
            _ => Err(format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

/// From the path, or where Debian keeps the server's programs.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let programs = folders.into_iter().map(|folder| folder.join("pgbench"));
    programs.into_iter().find(|program| program.is_file()).ok_or_else(|| "pgbench is not installed".into())
}
