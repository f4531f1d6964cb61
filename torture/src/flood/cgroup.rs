//! A control group that ends the gateway when it takes too much memory.
//!
//! What lives here: making one and removing it. What must never: a limit for a process that was not started here.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where control groups are mounted, and what the limit is called there: version 2, then version 1.
const PLACES: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// Removed when it is dropped, once its processes have ended.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// One for the process `pid`. `None` where none can be made: not every user may, and not every system has them.
    pub(crate) fn limit(pid: u32, bytes: u64) -> Option<Self> {
        PLACES.iter().find_map(|(mount, limit)| Self::at(Path::new(mount), limit, pid, bytes))
    }

    fn at(mount: &Path, limit: &str, pid: u32, bytes: u64) -> Option<Self> {
        let folder = mount.join(format!("semel-flood-{pid}"));
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        // A folder without this file has no limits to set.
        let is_limited = group.0.join(limit).is_file()
            && fs::write(group.0.join(limit), bytes.to_string()).is_ok()
            && fs::write(group.0.join("cgroup.procs"), pid.to_string()).is_ok();
        is_limited.then_some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It is busy until the system has cleared the process away.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("warning: {} is left behind", self.0.display());
    }
}
