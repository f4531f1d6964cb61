//! Processes that are killed with -9.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

/// A process that runs an ignored test of this program. It is killed when this is dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    acknowledged: Arc<Mutex<Vec<String>>>,
}

impl Process {
    /// `test` is the test's path, such as `sqlite::crash::child`.
    pub(crate) fn start(test: &str, variables: &[(&str, &str)]) -> Self {
        let program = std::env::current_exe().expect("this program has a file");
        let mut child = Command::new(program)
            .args(["--exact", test, "--ignored", "--nocapture"])
            .envs(variables.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("a process starts");
        let acknowledged: Arc<Mutex<Vec<String>>> = Arc::default();
        let lines = BufReader::new(child.stdout.take().expect("asked for"));
        let keeping = Arc::clone(&acknowledged);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                // A line that was cut off by a kill does not count.
                if let Some(id) = line.strip_prefix("acknowledged ").and_then(|line| line.strip_suffix(" ."))
                {
                    keeping.lock().expect("whole").push(id.to_owned());
                }
            }
        });
        Self { child, acknowledged }
    }

    /// The operations that it has acknowledged, some of them several times.
    pub(crate) fn acknowledged(&self) -> Vec<String> {
        self.acknowledged.lock().expect("whole").clone()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Printed by the process.
pub(crate) fn acknowledge(operation_id: &str) {
    drop(writeln!(std::io::stdout().lock(), "\nacknowledged {operation_id} ."));
}

/// The number of rounds: `SEMEL_TX_ROUNDS`, or this default.
pub(crate) fn rounds(by_default: u32) -> u32 {
    std::env::var("SEMEL_TX_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(by_default)
}

/// How many different operations are in the list.
pub(crate) fn distinct(acknowledged: &[String]) -> usize {
    acknowledged.iter().collect::<std::collections::BTreeSet<_>>().len()
}
