//! Makes the system's allocator keep little memory that it no longer uses.
//!
//! glibc reads how it should work when a process starts, from its environment. With its defaults it keeps up to eight heaps for each
//! processor and puts large bodies into them; after floods of large and small requests the process holds nearly twice what it
//! uses. `docs/decisions/gateway.md` has the figures.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt as _;

/// Returns large bodies to the system as soon as they are freed.
const MMAP_THRESHOLD: (&str, &str) = ("MALLOC_MMAP_THRESHOLD_", "262144");
const ARENA_MAX: &str = "MALLOC_ARENA_MAX";
/// If one of these is set, somebody has chosen.
const CHOICES: [&str; 4] = [ARENA_MAX, MMAP_THRESHOLD.0, "GLIBC_TUNABLES", "LD_PRELOAD"];

/// Restarts the program in the same process, with the allocator's settings in its environment. Does nothing if
/// somebody has chosen other settings.
///
/// Call it before anything else: input that was read from a pipe would be lost.
pub(crate) fn tune() {
    let is_set = |name: &str| std::env::var_os(name).is_some();
    if CHOICES.into_iter().any(is_set) {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let mut arguments = std::env::args_os();
    let name = arguments.next();
    let mut again = std::process::Command::new(&program);
    again.arg0(name.as_deref().unwrap_or(OsStr::new("semel"))).args(arguments);
    again.env(ARENA_MAX, heaps().to_string()).env(MMAP_THRESHOLD.0, MMAP_THRESHOLD.1);
    // It returns only if it failed.
    let error = again.exec();
    eprintln!(
        "warning: the allocator could not be set up ({error}); floods may use more memory than docs/security.md says"
    );
}

/// One heap per processor, so that threads rarely wait for each other.
fn heaps() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}
