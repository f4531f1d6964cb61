//! The usual manual solution on PostgreSQL, run by pgbench: insert a key unless it exists, then store its
//! response, with one commit each.

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

/// The figures that pgbench printed.
pub(crate) struct PgbenchResult {
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

    /// With prepared statements, as drivers use them, and one connection per client.
    pub(crate) fn run(&self, clients: u64, span: Duration) -> Result<PgbenchResult, Box<dyn Error>> {
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
        let result = || {
            Some(PgbenchResult {
                done: number("number of transactions actually processed:")?,
                per_second: number("tps =")?,
                mean_millis: number("latency average =")?,
            })
        };
        match result() {
            Some(result) if output.status.success() => Ok(result),
            _ => Err(format!("pgbench: {text}{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}

/// From `PATH`, or from the folder in which Debian installs the server's programs.
fn program() -> Result<PathBuf, Box<dyn Error>> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    folders.extend(versions.map(|version| version.path().join("bin")));
    let programs = folders.into_iter().map(|folder| folder.join("pgbench"));
    programs.into_iter().find(|program| program.is_file()).ok_or_else(|| "pgbench is not installed".into())
}
