//! The URL `sqlite:PATH`.

use super::open::{IN_MEMORY, NotRegular, check_is_regular};
use super::schema::STEPS;
use super::{Options, ReadOnlyStore, Store, version};
use semel_core::store::{self, AddressError, Inspection, OpenOptions, Pending};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thiserror::Error;

const FORM: &str = "write the path right after the colon, as in sqlite:semel.db or sqlite:/var/lib/semel.db";

/// Whether the address begins like that of a server: `USER:PASSWORD@HOST`.
fn is_like_a_login(address: &str) -> bool {
    let first = address.split(['/', '\\']).next().unwrap_or_default();
    first.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
}

/// Why an address names no file. It is not repeated: who mistakes it for a server's may have written a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PathError {
    /// It is empty.
    #[error("the path of the file is missing; write it as in sqlite:semel.db")]
    Missing,
    /// It looks like that of a server.
    #[error("the sqlite URL is not a path; {FORM}")]
    NotAPath,
    /// It has a question mark.
    #[error("a sqlite URL has no parameters, and its path no question mark; {FORM}")]
    HasParameters,
    /// It is SQLite's name for a database without a file.
    #[error("a store has to outlive its process; write sqlite:PATH, or memory: for a try")]
    InMemory,
}

/// Why what a path leads to cannot be a store.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is something other than a file.
    #[error(transparent)]
    NotRegular(#[from] NotRegular),
    /// It cannot be looked at.
    #[error("{path}: {source}")]
    Unreachable {
        /// The path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is a link that leads nowhere.
    #[error("{0} is a link to a file that does not exist")]
    DanglingLink(PathBuf),
}

/// Looks at the file, if there is one. Otherwise it is created at start, perhaps on another machine.
fn check_file(path: &Path) -> Result<(), FileError> {
    match path.metadata() {
        Ok(found) => Ok(check_is_regular(path, &found)?),
        Err(source) if source.kind() != ErrorKind::NotFound => {
            Err(FileError::Unreachable { path: path.to_owned(), source })
        }
        Err(_) if path.symlink_metadata().is_ok() => Err(FileError::DanglingLink(path.to_owned())),
        Err(_) => Ok(()),
    }
}

/// Opens stores by URLs like `sqlite:semel.db`. A path is a path, never a URI: everything after the colon
/// belongs to it, and a question mark is refused because it looks like parameters.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

impl store::Backend for Backend {
    fn scheme(&self) -> &'static str {
        "sqlite"
    }

    fn url_form(&self) -> &'static str {
        "sqlite:PATH"
    }

    fn check(&self, address: &str) -> Result<(), AddressError> {
        let refused = if address.is_empty() {
            PathError::Missing
        } else if address.starts_with("//") || is_like_a_login(address) {
            PathError::NotAPath
        } else if address.contains('?') {
            PathError::HasParameters
        } else if address == IN_MEMORY {
            PathError::InMemory
        } else {
            return Ok(());
        };
        Err(AddressError::new(refused))
    }

    fn check_files(&self, address: &str) -> Result<(), AddressError> {
        check_file(Path::new(address)).map_err(AddressError::new)
    }

    fn library(&self) -> Option<String> {
        Some(format!("SQLite {}", version()))
    }

    fn schema_steps(&self) -> &'static [&'static str] {
        STEPS
    }

    fn schema_script(&self, _: &str) -> String {
        let step = |(number, step): (usize, &&str)| {
            let number = number + 1;
            let note =
                format!("INSERT OR REPLACE INTO semel_meta (name, value) VALUES ('schema', {number});");
            format!("-- schema {number}\n{}\n{note}\n", step.trim_end())
        };
        STEPS.iter().enumerate().map(step).collect::<Vec<_>>().join("\n")
    }

    fn files(&self, address: &str) -> Vec<PathBuf> {
        ["", "-wal", "-shm", "-journal"].map(|suffix| PathBuf::from(format!("{address}{suffix}"))).to_vec()
    }

    fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool> {
        Box::pin(async move { Ok(Path::new(address).exists()) })
    }

    fn open<'a>(&'a self, address: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn store::Store>> {
        Box::pin(async move {
            let mut chosen = Options::default();
            if let Some(connections) = options.connections {
                chosen = chosen.readers(connections);
            }
            if let Some(bytes) = options.log_bytes_max {
                chosen = chosen.wal_bytes_max(bytes);
            }
            if let Some(clock) = &options.clock {
                chosen = chosen.clock(Arc::clone(clock));
            }
            Ok(Arc::new(Store::open(address, chosen)?) as Arc<dyn store::Store>)
        })
    }

    fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>> {
        Box::pin(async move {
            Ok(Box::new(ReadOnlyStore::open(address, Options::default())?) as Box<dyn Inspection>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Backend, FileError};
    use semel_core::store::Backend as _;
    use semel_test_support::ScratchDir;

    #[test]
    fn what_is_no_path_is_refused_and_not_repeated() {
        for good in ["semel.db", "/var/lib/a b.db", "a@b.db", "C:\\semel@home\\a.db", "dir/a:b@c.db"] {
            Backend.check(good).expect(good);
        }
        for bad in [
            "",
            "//u:hunter2@h/d",
            "///hunter2",
            "u:hunter2@h/d",
            "u:hunter2@h",
            ":memory:",
            "hunter2.db?mode=ro",
        ] {
            let refusal = Backend.check(bad).expect_err(bad).to_string();
            assert!(!refusal.contains("hunter2") && refusal.contains("sqlite:"), "{refusal}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn only_a_regular_file_can_be_a_store() {
        let folder = ScratchDir::new("backend");
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("it runs").success());
        let check = |path: &std::path::Path| Backend.check_files(path.to_str().expect("text"));
        for (path, kind) in [
            (&*pipe, "a named pipe"),
            (folder.path(), "a directory"),
            (std::path::Path::new("/dev/zero"), "a device"),
        ] {
            let refusal = check(path).expect_err("no store").to_string();
            assert!(refusal.contains("not a regular file") && refusal.contains(kind), "{refusal}");
        }
        check(&folder.join("new.db")).expect("it is created at start");
        assert!(!folder.join("new.db").exists(), "it was created");
        check(&folder.join("none/a.db")).expect("its folder may be on another machine");
        check(&folder.write("old.db", "")).expect("a file");
        let link = folder.join("link.db");
        std::os::unix::fs::symlink(folder.join("none"), &link).expect("a link");
        for (path, why) in
            [(link, "a link to a file that does not exist"), (folder.join("old.db/a.db"), "old.db/a.db")]
        {
            let refusal = check(&path).expect_err("no store");
            assert!(refusal.reason().is::<FileError>(), "{refusal:?}");
            assert!(refusal.to_string().contains(why), "{refusal}");
        }
    }
}
