//! Processes that end with their test.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

/// Long enough for a busy machine; anything slower hangs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A process, ended with the test.
pub(crate) struct Process {
    child: Child,
    lines: Receiver<String>,
}

impl Process {
    /// Starts it. Its standard input stays open as long as this value lives.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        // Keeps reading even if nothing receives the lines: a program that cannot print may exit.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for the first line that `read` accepts.
    pub(crate) fn wait_for<T>(&self, read: impl Fn(&str) -> Option<T>) -> T {
        loop {
            let line = self.lines.recv_timeout(PATIENCE).expect("the expected line");
            if let Some(found) = read(&line) {
                return found;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
