//! A control group that kills the gateway if it uses too much memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where control groups are mounted, and the name of the limit: version 2, then version 1.
const MOUNTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")];

/// Removed when it is dropped, after its processes have ended.
pub(crate) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// A group for the process `pid`. `None` if it cannot be created: not every user may, and not every
    /// system has them.
    pub(crate) fn limit(pid: u32, bytes: u64) -> Option<Self> {
        MOUNTS.iter().find_map(|(mount, limit)| Self::at(Path::new(mount), limit, pid, bytes))
    }

    fn at(mount: &Path, limit: &str, pid: u32, bytes: u64) -> Option<Self> {
        let folder = mount.join(format!("semel-flood-{pid}"));
        fs::create_dir(&folder).ok()?;
        let group = Self(folder);
        // Without this file, limits cannot be set.
        let is_limited = group.0.join(limit).is_file()
            && fs::write(group.0.join(limit), bytes.to_string()).is_ok()
            && fs::write(group.0.join("cgroup.procs"), pid.to_string()).is_ok();
        is_limited.then_some(group)
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It is busy until the system has removed the process.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("warning: {} could not be removed", self.0.display());
    }
}
