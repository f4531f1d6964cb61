//! Runs one test program, or cargo, to its end, or ends it if it hangs.

use std::io::{self, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::lines::{self, Next};
use crate::stopwatch::Stopwatch;
use crate::tally::Tally;

/// After this long without a line of output, a program is taken for hung. The longest tests, those of histories,
/// take minutes on busy cores.
const SILENCE_MAX: Duration = Duration::from_mins(30);

/// How a program ended.
#[derive(Debug)]
pub(super) struct ProgramResult {
    /// Everything that it and its children printed.
    pub(super) output: Vec<u8>,
    pub(super) succeeded: bool,
    /// If it hung and was ended, the last line before.
    pub(super) hung_after: Option<String>,
    pub(super) took: Duration,
}

impl ProgramResult {
    /// Why it failed, if it did.
    pub(super) fn failure(&self, tally: Tally) -> Option<String> {
        if let Some(line) = &self.hung_after {
            let minutes = SILENCE_MAX.as_secs() / 60;
            return Some(format!("it hung, with no output for {minutes} minutes after `{line}`"));
        }
        if tally.failed > 0 {
            return Some(format!("{tally}"));
        }
        (!self.succeeded).then(|| "it died".to_owned())
    }
}

/// Runs it.
pub(super) fn run(command: Command) -> io::Result<ProgramResult> {
    run_within(command, SILENCE_MAX)
}

fn run_within(mut command: Command, silence_max: Duration) -> io::Result<ProgramResult> {
    let stopwatch = Stopwatch::start();
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn()?;
    // It holds the pipe's other end open.
    drop(command);
    let (sender, arriving) = mpsc::channel();
    // It ends with the pipe: a child that a program leaves behind keeps it open, and nobody waits for that.
    thread::spawn(move || lines::send(BufReader::new(reader), &sender));
    let (mut output, mut last, mut hung_after) = (Vec::new(), String::new(), None);
    loop {
        match lines::next(&arriving, silence_max, || Ok(child.try_wait()?.is_some()))? {
            Next::Line(line) => {
                String::from_utf8_lossy(&line).trim().clone_into(&mut last);
                output.extend(line);
            }
            Next::Silent => {
                hung_after = Some(last);
                child.kill()?;
                break;
            }
            Next::End => break,
        }
    }
    let succeeded = child.wait()?.success();
    Ok(ProgramResult { output, succeeded, hung_after, took: stopwatch.read() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, silence_max: Duration) -> ProgramResult {
        let mut command = crate::cargo::program("sh");
        command.args(["-c", script]);
        run_within(command, silence_max).expect("it runs")
    }

    #[test]
    fn a_program_that_prints_nothing_is_ended_and_its_last_line_named() {
        let hung = shell("echo running 1 test; exec sleep 600", Duration::from_secs(2));
        let why = hung.failure(Tally::default()).expect("it failed");
        assert!(why.contains("it hung") && why.contains("`running 1 test`"), "{why}");
    }

    #[test]
    fn all_output_of_a_program_is_kept_in_order() {
        let ended = shell("echo a; echo b >&2; printf c", Duration::from_mins(1));
        assert_eq!((ended.output.as_slice(), ended.succeeded), (&b"a\nb\nc"[..], true));
        assert_eq!(ended.failure(Tally::default()), None);
    }

    #[test]
    fn a_child_that_is_left_behind_is_not_waited_for() {
        let ended = shell("echo a; sleep 20 & exit 3", Duration::from_mins(1));
        assert_eq!(ended.output, b"a\n");
        assert!(ended.took < Duration::from_secs(20), "{:?}", ended.took);
        assert_eq!(ended.failure(Tally::default()), Some("it died".to_owned()));
    }
}
