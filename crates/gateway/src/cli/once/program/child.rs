//! The child process: its start, and its end.

use super::exec::BEGINS;
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use std::io::{self, PipeReader, Read as _};
use std::process::{Child, ChildStderr, ChildStdout, Command};
use std::thread;
use tokio::sync::oneshot;

/// A started child.
pub(super) struct Started {
    pub(super) id: Pid,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

/// A child that has ended and was not waited for yet, so that its ID still belongs to it.
pub(super) struct Ended {
    pub(super) child: Child,
    pub(super) takeover: Takeover,
}

/// Whether the program took over from the child that was started for it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// It did.
    Done,
    /// It could not be executed: the number of the error.
    Failed(i32),
    /// The child ended before it.
    Never,
}

impl Takeover {
    fn of(written: &[u8]) -> Self {
        match written.split_first() {
            None => Self::Never,
            Some((&BEGINS, [])) => Self::Done,
            Some((_, number)) => {
                let number = std::str::from_utf8(number).ok().and_then(|text| text.parse().ok());
                Self::Failed(number.unwrap_or_default())
            }
        }
    }
}

/// Starts the child, and reports its end. In a thread that lives as long as the child: the kernel sends the death signal
/// when the thread that started it ends.
pub(super) fn start(
    mut command: Command,
    mut from_child: PipeReader,
) -> io::Result<(oneshot::Receiver<io::Result<Started>>, oneshot::Receiver<Ended>)> {
    let (started, when_started) = oneshot::channel();
    let (ended, when_ended) = oneshot::channel();
    thread::Builder::new().name("child".to_owned()).spawn(move || {
        let spawned = command.spawn().and_then(|mut child| {
            let missing = || io::Error::other("the child has no pipes");
            let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(missing)?;
            let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
            let (stdout, stderr) = stdout.zip(stderr).ok_or_else(missing)?;
            Ok((child, Started { id, stdout, stderr }))
        });
        // It has this process's end of the child's input.
        drop(command);
        match spawned {
            Err(error) => drop(started.send(Err(error))),
            Ok((child, pipes)) => {
                let id = pipes.id;
                drop(started.send(Ok(pipes)));
                let mut written = Vec::new();
                // What cannot be read counts as missing.
                let _ = from_child.read_to_end(&mut written);
                await_end(id);
                drop(ended.send(Ended { child, takeover: Takeover::of(&written) }));
            }
        }
    })?;
    Ok((when_started, when_ended))
}

/// Waits until the child has ended, and leaves its exit status for later.
fn await_end(id: Pid) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while matches!(waitid(WaitId::Pid(id), options), Err(rustix::io::Errno::INTR)) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_child_wrote_says_whether_the_program_took_over() {
        assert_eq!(Takeover::of(b""), Takeover::Never);
        assert_eq!(Takeover::of(b"b"), Takeover::Done);
        assert_eq!(Takeover::of(b"b2"), Takeover::Failed(2));
        assert_eq!(Takeover::of(b"b13"), Takeover::Failed(13));
        assert_eq!(Takeover::of(b"b?"), Takeover::Failed(0));
    }
}
