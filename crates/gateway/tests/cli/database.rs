//! A PostgreSQL for one test.

use crate::world::{RunResult, run};
use semel_test_support::{PostgresServer, ScratchDir};
use std::io::Write as _;
use std::process::Stdio;

/// A server that is stopped when the test ends.
pub(crate) struct Database {
    pub(crate) server: PostgresServer,
    _folder: ScratchDir,
}

impl Database {
    /// `None` if PostgreSQL is not installed; the test is skipped.
    pub(crate) fn start(name: &str) -> Option<Self> {
        if !PostgresServer::is_installed() {
            return None;
        }
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name);
        let server = PostgresServer::start(folder.join("data"));
        Some(Self { server, _folder: folder })
    }

    pub(crate) fn store(&self) -> String {
        self.server.url()
    }

    /// Runs statements with `psql` as the superuser, or as another role.
    pub(crate) fn psql(&self, role: &str, statements: &str) -> RunResult {
        let mut command = self.server.psql(self.server.port());
        let mut script = std::env::temp_dir();
        script.push(format!("semel-cli-{}-{role}.sql", std::process::id()));
        let text = format!("SET SESSION AUTHORIZATION {role};\n{statements}");
        std::fs::File::create(&script)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .expect("a script");
        command.stdin(Stdio::from(std::fs::File::open(&script).expect("the script")));
        let ran = run(command);
        std::fs::remove_file(script).expect("removed");
        ran
    }
}
