//! The URL `sqlite:PATH`.

use super::open::{IN_MEMORY, check_is_regular};
use super::schema::STEPS;
use super::{Options, ReadOnlyStore, Store, version};
use semel_core::store::{self, Inspection, OpenOptions, Pending};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const FORM: &str = "write the path right after the colon, as in sqlite:semel.db or sqlite:/var/lib/semel.db";

/// Whether the address begins like that of a server: `USER:PASSWORD@HOST`.
fn is_like_a_login(address: &str) -> bool {
    let first = address.split(['/', '\\']).next().unwrap_or_default();
    first.rsplit_once('@').is_some_and(|(login, _)| login.contains(':'))
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

    fn check(&self, address: &str) -> Result<(), String> {
        // No refusal repeats the address: who mistakes it for a server's may have written a password.
        if address.is_empty() {
            Err("the path of the file is missing; write it as in sqlite:semel.db".to_owned())
        } else if address.starts_with("//") || is_like_a_login(address) {
            Err(format!("the sqlite URL is not a path; {FORM}"))
        } else if address.contains('?') {
            Err(format!("a sqlite URL has no parameters, and its path no question mark; {FORM}"))
        } else if address == IN_MEMORY {
            Err("a store has to outlive its process; write sqlite:PATH, or memory: for a try".to_owned())
        } else {
            Ok(())
        }
    }

    fn check_files(&self, address: &str) -> Result<(), String> {
        let path = Path::new(address);
        match path.metadata() {
            Ok(found) => check_is_regular(path, &found),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("{address}: {error}")),
            Err(_) if path.symlink_metadata().is_ok() => {
                Err(format!("{address} is a link to a file that does not exist"))
            }
            // It is created at start, perhaps on another machine.
            Err(_) => Ok(()),
        }
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
    use super::Backend;
    use semel_core::store::Backend as _;
    use semel_test_support::ScratchDir;

    #[test]
    fn what_is_no_path_is_refused_and_not_repeated() {
        for good in ["semel.db", "/var/lib/a b.db", "a@b.db", "C:\\semel@home\\a.db", "dir/a:b@c.db"] {
            assert_eq!(Backend.check(good), Ok(()), "{good}");
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
            let refusal = Backend.check(bad).expect_err(bad);
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
            let refusal = check(path).expect_err("no store");
            assert!(refusal.contains("not a regular file") && refusal.contains(kind), "{refusal}");
        }
        assert_eq!(check(&folder.join("new.db")), Ok(()));
        assert!(!folder.join("new.db").exists(), "it was created");
        assert_eq!(check(&folder.join("none/a.db")), Ok(()));
        assert_eq!(check(&folder.write("old.db", "")), Ok(()));
        let link = folder.join("link.db");
        std::os::unix::fs::symlink(folder.join("none"), &link).expect("a link");
        for (path, why) in
            [(link, "a link to a file that does not exist"), (folder.join("old.db/a.db"), "old.db/a.db")]
        {
            let refusal = check(&path).expect_err("no store");
            assert!(refusal.contains(why), "{refusal}");
        }
    }
}
