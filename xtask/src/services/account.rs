//! The system user that a server runs as.

use std::path::Path;
use std::process::Command;

use crate::cargo;
use crate::tools::packages;

/// Servers refuse to run as root, so root starts them as another user.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Account {
    /// The current user.
    Own,
    /// This user, through `runuser`.
    Other(&'static str),
}

impl Account {
    /// The account for a server that has its own user.
    pub(super) fn of(user: &'static str) -> Self {
        if packages::is_root() { Self::Other(user) } else { Self::Own }
    }

    /// A program to be run as this account.
    pub(super) fn command(self, program: &Path) -> Command {
        match self {
            Self::Own => cargo::program(&program.to_string_lossy()),
            Self::Other(user) => {
                let mut command = cargo::program("runuser");
                command.args(["-u", user, "--"]).arg(program);
                command
            }
        }
    }

    /// Whether this account can use a folder. That needs permissions on each parent folder too.
    pub(super) fn can_enter(self, folder: &Path) -> bool {
        let mut test = self.command(Path::new("test"));
        test.current_dir("/").arg("-x").arg(folder);
        cargo::answers(test)
    }

    /// Gives a folder and everything in it to this account.
    pub(super) fn take_over(self, folder: &Path) -> Result<(), String> {
        let Self::Other(user) = self else { return Ok(()) };
        let mut chown = cargo::program("chown");
        chown.args(["-R", "--", user]).arg(folder);
        cargo::capture(chown).map(drop)
    }
}
