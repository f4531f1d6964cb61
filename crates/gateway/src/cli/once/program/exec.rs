//! The step between this process and the program, in the child: it asks the kernel for a signal when its parent dies,
//! and then becomes the program.
//!
//! Only this order is safe: a program that outlived a killed parent would go on after its record counts as ended.

use rustix::io::fcntl_dupfd_cloexec;
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

/// The first argument of such a child. Then follow the parent's process ID, the program and its arguments.
pub(super) const CHILD: &str = "(once)";
/// Written right before the program takes over. Nothing after it: it did. Otherwise the number of the error follows.
pub(super) const BEGINS: u8 = b'b';
/// Descriptors from here on are not standard streams.
const FIRST_FREE: i32 = 3;

/// Becomes the program, if this process was started for that. Returns only if it was, and could not.
pub(in crate::cli) fn become_program() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CHILD {
        return None;
    }
    let failed = Some(ExitCode::FAILURE);
    // Standard input is the pipe to the parent. The copy is closed as soon as the program takes over.
    let Ok(to_parent) = fcntl_dupfd_cloexec(std::io::stdin(), FIRST_FREE) else { return failed };
    let parent = arguments.next();
    if set_parent_process_death_signal(Some(Signal::KILL)).is_err() || !is_parent(parent.as_deref()) {
        return failed;
    }
    take_over(File::from(to_parent), arguments);
    failed
}

/// Whether the parent is still alive, so that the kernel will report its death.
fn is_parent(expected: Option<&OsStr>) -> bool {
    let expected: Option<i32> = expected.and_then(OsStr::to_str).and_then(|text| text.parse().ok());
    expected.is_some() && expected == getppid().map(|id| id.as_raw_nonzero().get())
}

fn take_over(mut to_parent: File, mut command: impl Iterator<Item = OsString>) {
    let Some(program) = command.next() else { return };
    if to_parent.write_all(&[BEGINS]).is_err() {
        return;
    }
    let error = Command::new(program).args(command).stdin(Stdio::null()).exec();
    // The parent may be gone; then nobody needs to know.
    let _ = write!(to_parent, "{}", error.raw_os_error().unwrap_or_default());
}
