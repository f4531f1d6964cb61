//! The open files of a store, and whether their names still lead to them.
//!
//! Contents: the check that every answer waits for. A file that was removed, renamed or replaced still
//! accepts writes, but they are not found after a restart. These files are never opened here.

use super::fault::Fault;
use super::open::File;
use semel_core::store::{Error, Kind};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const CHECKING: &str = "checking the files of the SQLite store";

/// The identity of a file, independent of its name: no other file gets these numbers while this process has
/// it open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Follows links.
    #[cfg(unix)]
    fn at(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        std::fs::metadata(path).map(|found| Self { device: found.dev(), inode: found.ino() })
    }

    /// Without such numbers: only whether there is a file.
    #[cfg(not(unix))]
    fn at(path: &Path) -> io::Result<Self> {
        std::fs::metadata(path).map(|_| Self { device: 0, inode: 0 })
    }
}

/// One of the files that make up a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Database,
    /// The write-ahead log, which alone has the last commits.
    Log,
    /// The index of the log, through which processes see each other's commits and locks.
    LogIndex,
}

/// What happened to a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameChange {
    /// It leads nowhere.
    Gone,
    /// It leads to another file.
    Replaced,
}

/// A file whose name no longer leads to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LostFile {
    pub(super) part: Part,
    path: PathBuf,
    change: NameChange,
}

impl LostFile {
    /// What to do about it.
    pub(super) fn remedy(&self) -> &'static str {
        match self.part {
            Part::Database => {
                "stop every process that has the file open, put the file back if you still have it, and start again; every \
                 key that the file at that path does not hold will run again"
            }
            Part::Log | Part::LogIndex => {
                "stop every process that has the file open, without kill -9, and let `semel doctor` read the file before you \
                 start again"
            }
        }
    }

    fn message(&self) -> String {
        let remedy = self.remedy();
        format!(
            "{self}. The store is closed: what was written since cannot be relied on. To continue, {remedy}"
        )
    }
}

impl fmt::Display for LostFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let change = match self.change {
            NameChange::Gone => "removed or renamed",
            NameChange::Replaced => "replaced by another file",
        };
        write!(f, "{} was {change} while this process had it open", self.path.display())
    }
}

/// Why it is not certain that the open files are what others find.
enum UnverifiedReason<'a> {
    Lost(&'a LostFile),
    /// They could not be checked.
    Unseen(PathBuf, io::Error),
}

/// The files of an open database. A lost file closes the store until it is opened again: even if the file is
/// put back, others may have written to its name meanwhile.
pub(super) struct OpenFiles {
    known: Vec<(Part, PathBuf, FileId)>,
    lost: OnceLock<LostFile>,
    /// How many checks have begun.
    begun: AtomicU64,
    /// The last check that found every file in place.
    passed: AtomicU64,
}

/// A moment, as the number of checks that had begun before it.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChecksBegun(u64);

impl OpenFiles {
    /// The files that a connection keeps open for as long as this exists.
    pub(super) fn of(file: &File) -> Result<Self, Error> {
        let mut known = Vec::new();
        for (part, path) in
            [(Part::Database, file.path.clone()), (Part::Log, file.wal()), (Part::LogIndex, file.wal_index())]
        {
            let id = FileId::at(&path);
            let id = id.map_err(|error| Fault::new(Kind::Unavailable, CHECKING, &error).about(&path))?;
            // A name with links is resolved at every start, so it has to lead to the same file.
            if part == Part::Database && file.given != path {
                known.push((part, file.given.clone(), id));
            }
            known.push((part, path, id));
        }
        let (begun, passed) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self { known, lost: OnceLock::new(), begun, passed })
    }

    /// Whether what was just committed can be acknowledged.
    pub(super) fn check_commit(&self) -> Result<(), Fault> {
        const COMMITTING: &str = "committing to the SQLite store";
        self.check().map_err(|unproven| match unproven {
            UnverifiedReason::Lost(lost) => Fault::new(Kind::Ambiguous, COMMITTING, &lost.message()),
            UnverifiedReason::Unseen(path, error) => {
                Fault::new(Kind::Ambiguous, COMMITTING, &error).about(&path)
            }
        })
    }

    /// The moment of a call.
    pub(super) fn checks_begun(&self) -> ChecksBegun {
        ChecksBegun(self.begun.load(Ordering::SeqCst))
    }

    /// Whether the data just read is what others find, or was at the start of the call. Any check that began
    /// after that proves it, so waiting calls share one: three file system calls cost a quarter of a read.
    pub(super) fn check_read_since(&self, asked: ChecksBegun) -> Result<(), Fault> {
        if self.passed.load(Ordering::SeqCst) > asked.0 { self.check_open() } else { self.check_read() }
    }

    /// Whether the data just read is what others find.
    pub(super) fn check_read(&self) -> Result<(), Fault> {
        self.check().map_err(|unproven| match unproven {
            UnverifiedReason::Lost(lost) => closed(lost),
            UnverifiedReason::Unseen(path, error) => {
                Fault::new(Kind::Unavailable, CHECKING, &error).about(&path)
            }
        })
    }

    /// Whether the store is still open, without another check.
    pub(super) fn check_open(&self) -> Result<(), Fault> {
        self.lost.get().map_or(Ok(()), |lost| Err(closed(lost)))
    }

    /// Which file is lost, if any. Closes nothing.
    pub(super) fn lost(&self) -> Option<LostFile> {
        self.lost.get().cloned().or_else(|| self.check_names().ok().flatten())
    }

    /// Whether another process has created a new log or index in the place of this one's.
    pub(super) fn has_another_log(&self) -> bool {
        let of_log = self.known.iter().filter(|(part, ..)| *part != Part::Database);
        of_log
            .map(|(_, path, id)| change(path, *id))
            .any(|change| matches!(change, Ok(Some(NameChange::Replaced))))
    }

    fn check(&self) -> Result<(), UnverifiedReason<'_>> {
        if let Some(lost) = self.lost.get() {
            return Err(UnverifiedReason::Lost(lost));
        }
        let check = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        match self.check_names() {
            Ok(None) => {
                self.passed.fetch_max(check, Ordering::SeqCst);
                Ok(())
            }
            Ok(Some(lost)) => Err(UnverifiedReason::Lost(self.lost.get_or_init(|| {
                tracing::error!("{}", lost.message());
                lost
            }))),
            Err((path, error)) => Err(UnverifiedReason::Unseen(path, error)),
        }
    }

    fn check_names(&self) -> Result<Option<LostFile>, (PathBuf, io::Error)> {
        for (part, path, id) in &self.known {
            match change(path, *id) {
                Ok(None) => {}
                Ok(Some(change)) => return Ok(Some(LostFile { part: *part, path: path.clone(), change })),
                Err(error) => return Err((path.clone(), error)),
            }
        }
        Ok(None)
    }
}

fn closed(lost: &LostFile) -> Fault {
    Fault::new(Kind::Unfit, "using the SQLite store", &lost.message())
}

/// What happened to a name that led to the file `id`; `None` if it still does.
fn change(path: &Path, id: FileId) -> io::Result<Option<NameChange>> {
    match FileId::at(path) {
        Ok(found) => Ok((found != id).then_some(NameChange::Replaced)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Some(NameChange::Gone))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    fn files(name: &str) -> (ScratchDir, OpenFiles) {
        let directory = ScratchDir::new(&format!("files-{name}"));
        for ending in ["", "-wal", "-shm"] {
            directory.write(&format!("file{ending}"), "");
        }
        let file = File::existing(&directory.join("file"), 0).expect("it is there");
        let files = OpenFiles::of(&file).expect("they are there");
        (directory, files)
    }

    #[test]
    fn a_check_answers_only_questions_asked_before_it() {
        let (directory, files) = files("shared");
        let (first, second) = (files.checks_begun(), files.checks_begun());
        files.check_read_since(first).expect("in their place");
        std::fs::remove_file(directory.join("file")).expect("removed");
        files.check_read_since(second).expect("by the check of the first");
        let after = files.checks_begun();
        assert_eq!(files.check_read_since(after).expect_err("it looks").kind, Kind::Unfit);
        assert_eq!(files.check_read_since(second).expect_err("it is closed for everybody").kind, Kind::Unfit);
    }

    #[test]
    fn an_unreadable_path_proves_nothing() {
        let (directory, mut files) = files("unseen");
        let endless = directory.join("x".repeat(300));
        files.known[1].1.clone_from(&endless);
        assert_eq!(files.check_commit().expect_err("not proven").kind, Kind::Ambiguous);
        assert_eq!(files.check_read().expect_err("not proven").kind, Kind::Unavailable);
        assert!(files.check_open().is_ok(), "it may be seen again");
    }
}
