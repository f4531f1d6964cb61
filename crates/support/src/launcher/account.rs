//! Who runs a server.

use super::output;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Servers refuse to run as root, so root starts them as another user.
#[derive(Debug, Clone, Copy)]
pub enum Account {
    /// The current user.
    Own,
    /// This user, through `runuser`.
    Other(&'static str),
}

impl Account {
    /// The account for a server that has its own user.
    pub fn of(user: &'static str) -> Self {
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        if is_root { Self::Other(user) } else { Self::Own }
    }

    /// A program to be run as this account, without standard input.
    pub fn command(self, program: &Path) -> Command {
        let mut command = match self {
            Self::Own => Command::new(program),
            Self::Other(user) => {
                let mut command = Command::new("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
        };
        // Every account can enter it.
        command.current_dir("/").stdin(Stdio::null());
        command
    }

    /// Whether this account can use a folder. That needs permissions on each parent folder too.
    pub fn can_enter(self, folder: &Path) -> bool {
        output(self.command(Path::new("test")).arg("-x").arg(folder)).is_ok()
    }

    /// Gives a file, or a folder and everything in it, to this account.
    pub fn take_over(self, path: &Path) -> Result<(), String> {
        let Self::Other(user) = self else { return Ok(()) };
        output(Command::new("chown").args(["-R", "--", user]).arg(path)).map(drop)
    }
}
