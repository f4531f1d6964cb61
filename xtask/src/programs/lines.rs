//! The lines of a running program.

use std::io::{self, BufRead};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

/// How often to look whether the program has ended although its output is still open.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(Vec<u8>),
    /// There was no line for too long.
    Silent,
    /// There will be no more.
    End,
}

/// Waits for the next line.
pub(super) fn next(
    lines: &Receiver<Vec<u8>>,
    silence_max: Duration,
    mut has_ended: impl FnMut() -> io::Result<bool>,
) -> io::Result<Next> {
    let mut silent = Duration::ZERO;
    while silent < silence_max {
        match lines.recv_timeout(LOOK_EVERY) {
            Ok(line) => return Ok(Next::Line(line)),
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
            // What it printed at its end arrived during the wait.
            Err(RecvTimeoutError::Timeout) if has_ended()? => {
                return Ok(lines.try_recv().map_or(Next::End, Next::Line));
            }
            Err(RecvTimeoutError::Timeout) => silent += LOOK_EVERY,
        }
    }
    Ok(Next::Silent)
}

/// Sends each line with its end. The last one may have none.
pub(super) fn send(mut output: impl BufRead, lines: &Sender<Vec<u8>>) {
    loop {
        let mut line = Vec::new();
        // A program whose output cannot be read has ended for the reader.
        if !output.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) || lines.send(line).is_err() {
            return;
        }
    }
}
