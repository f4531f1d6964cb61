//! The folder of a private instance.
//!
//! The folder is `target/services/NAME`. A server that root starts runs as another user, who may not be able
//! to enter a checkout in root's home. The folder is then below `/var/tmp`, which everybody can enter and
//! which is on a disk, with a name derived from the target folder's path.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use semel_test_support::launcher::Account;
pub(super) use semel_test_support::launcher::describe;

const SHARED_FOLDER: &str = "/var/tmp";

/// The folder of one private instance, and the account that it belongs to.
#[derive(Debug)]
pub(crate) struct Home {
    folder: PathBuf,
    account: Account,
}

impl Home {
    /// The home of the server with this name: below `services`, or below `/var/tmp` if the account cannot
    /// enter that.
    pub(super) fn locate(services: &Path, name: &str, account: Account) -> Result<Self, String> {
        fs::create_dir_all(services).map_err(|error| describe(services, &error))?;
        let parent = if account.can_enter(services) { services.to_owned() } else { substitute(services) };
        Ok(Self { folder: parent.join(name), account })
    }

    /// Creates the folder.
    pub(super) fn create(&self) -> Result<(), String> {
        if let Some(parent) = self.folder.parent().filter(|parent| parent.starts_with(SHARED_FOLDER)) {
            create_own(parent)?;
            let folder = self.folder.display();
            eprintln!("the server's user cannot enter the target folder; its files are in {folder}");
        }
        fs::create_dir_all(&self.folder).map_err(|error| describe(&self.folder, &error))
    }

    /// Gives everything to the account, including files of other accounts. Do not call it while a server
    /// runs.
    pub(super) fn take_over(&self) -> Result<(), String> {
        self.account.take_over(&self.folder)
    }

    /// The server's data, and the working directory of its process.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Any other file or folder of this home.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A program to be run as the account, in this folder.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = self.account.command(program);
        command.current_dir(&self.folder);
        command
    }

    /// Waits until no other command uses this instance. Dropping the returned file releases the lock.
    pub(super) fn lock(&self) -> Result<File, String> {
        let path = self.path("lock");
        let file = File::create(&path).map_err(|error| describe(&path, &error))?;
        file.lock().map_err(|error| describe(&path, &error))?;
        Ok(file)
    }

    /// The last lines of the server's log, to explain why it does not run.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(self.path("log")).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }

    /// Whether it was ever created.
    pub(super) fn exists(&self) -> bool {
        self.folder.is_dir()
    }
}

/// A folder that every user can enter, named after the one that they cannot.
fn substitute(services: &Path) -> PathBuf {
    let name = services.to_string_lossy().replace('/', "-");
    Path::new(SHARED_FOLDER).join(format!("semel{name}"))
}

/// Creates a folder in a shared place, and refuses one that another user has created.
fn create_own(folder: &Path) -> Result<(), String> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(describe(folder, &error));
        }
        _ => {}
    }
    let found = fs::symlink_metadata(folder).map_err(|error| describe(folder, &error))?;
    if !found.is_dir() || found.uid() != 0 {
        return Err(format!("{}: belongs to another user; remove it", folder.display()));
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).map_err(|error| describe(folder, &error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::packages;

    #[test]
    fn a_folder_the_server_cannot_enter_is_replaced() {
        if !packages::is_root() {
            return eprintln!("skipped: without root, servers run as the current user");
        }
        let closed = std::env::temp_dir().join(format!("semel-closed-{}", std::process::id()));
        let services = closed.join("services");
        fs::create_dir_all(&services).unwrap();
        let locate = |mode| {
            fs::set_permissions(&closed, fs::Permissions::from_mode(mode)).unwrap();
            Home::locate(&services, "postgres", Account::Other("nobody")).unwrap()
        };
        assert_eq!(locate(0o755).folder, services.join("postgres"));
        let home = locate(0o700);
        home.create().unwrap();
        let parent = home.folder.parent().unwrap();
        assert!(parent.starts_with(SHARED_FOLDER) && Account::Other("nobody").can_enter(&home.folder));

        std::os::unix::fs::chown(parent, Some(1), None).unwrap();
        let refused = home.create().unwrap_err();
        fs::remove_dir_all(parent).unwrap();
        fs::remove_dir_all(&closed).unwrap();
        assert!(refused.contains("another user"), "{refused}");
    }
}
