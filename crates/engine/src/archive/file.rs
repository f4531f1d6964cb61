//! An archive that is a file of JSON lines.

use super::{Archive, ArchiveFuture, Archived, Error, line};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Appends one line for each record to a file, and syncs it once for each batch.
///
/// Only one process at a time: the file is locked. A line that a crash cut off is ended with a newline before the
/// next write, so a reader may find a line that is not JSON, but never two records in one line.
///
/// A running process keeps writing to a file that was renamed or removed; to rotate, rename it and restart the
/// process. A new file is readable by its owner only, because it contains responses to clients.
#[derive(Debug)]
pub struct FileArchive {
    path: PathBuf,
    file: Arc<Mutex<File>>,
}

impl FileArchive {
    /// Opens the file, creates it if needed, and syncs its directory. Blocks on the disk.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        let file = open(&path)
            .map_err(|error| Error::new(format!("opening the archive {}", path.display()), error))?;
        Ok(Self { path, file: Arc::new(Mutex::new(file)) })
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::new(format!("writing to the archive {}", self.path.display()), error)
    }
}

impl Archive for FileArchive {
    fn keep<'a>(&'a self, batch: &'a [Archived<'a>]) -> ArchiveFuture<'a> {
        Box::pin(async move {
            if batch.is_empty() {
                return Ok(());
            }
            let mut lines = Vec::new();
            for archived in batch {
                line::write(archived, &mut lines).map_err(|error| self.failed(error.into()))?;
            }
            let file = Arc::clone(&self.file);
            // A disk can take seconds. A write that has begun completes even if nobody waits for it.
            let written = tokio::task::spawn_blocking(move || {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                append(&mut file, &lines)
            });
            written
                .await
                .map_err(|error| self.failed(io::Error::other(error)))?
                .map_err(|error| self.failed(error))
        })
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(path)?;
    file.try_lock().map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process is writing to it")
        }
        std::fs::TryLockError::Error(error) => error,
    })?;
    heal(&mut file)?;
    // Also if the file existed: its creator may have crashed before this.
    #[cfg(unix)]
    File::open(directory(path))?.sync_all()?;
    Ok(file)
}

#[cfg(unix)]
fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Appends complete lines; they are durable when this returns `Ok`.
fn append(file: &mut File, lines: &[u8]) -> io::Result<()> {
    // The previous batch may have failed halfway.
    heal(file)?;
    file.write_all(lines)?;
    file.sync_data()
}

/// Ends a line that was cut off.
fn heal(file: &mut File) -> io::Result<()> {
    let length = file.seek(SeekFrom::End(0))?;
    if length == 0 {
        return Ok(());
    }
    let mut last = [0];
    file.seek(SeekFrom::Start(length - 1))?;
    file.read_exact(&mut last)?;
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::line::tests::finished;
    use semel_core::id::CommandId;
    use semel_core::outcome::Outcome;
    use semel_core::record::Record;
    use semel_test_support::ScratchDir;
    use serde_json::Value;
    use std::fs;

    const ARCHIVE: &str = "archive.jsonl";

    fn records(number: usize) -> Vec<(CommandId, Record)> {
        (0..number).map(|index| finished(&format!("order-{index}"), Outcome::value("line\nbreak"))).collect()
    }

    async fn keep(archive: &FileArchive, records: &[(CommandId, Record)]) -> Result<(), Error> {
        let batch: Vec<_> = records.iter().map(|(id, record)| Archived { id: *id, record }).collect();
        archive.keep(&batch).await
    }

    /// The command ids of the lines that can be read, and how many cannot.
    fn read(path: &Path) -> (Vec<String>, usize) {
        let text = fs::read_to_string(path).expect("a file");
        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
        let parsed: Vec<Option<Value>> = text.lines().map(|line| serde_json::from_str(line).ok()).collect();
        let torn = parsed.iter().filter(|line| line.is_none()).count();
        let id = |line: Value| line["command_id"].as_str().expect("an id").to_owned();
        (parsed.into_iter().flatten().map(id).collect(), torn)
    }

    fn ids(records: &[(CommandId, Record)]) -> Vec<String> {
        records.iter().map(|(id, _)| id.to_hex()).collect()
    }

    #[tokio::test]
    async fn batches_are_appended_line_by_line_also_after_reopening() {
        let directory = ScratchDir::new("appended");
        let records = records(5);
        let archive = FileArchive::open(directory.join(ARCHIVE)).expect("a new file");
        keep(&archive, &records[..2]).await.expect("kept");
        keep(&archive, &[]).await.expect("nothing to keep");
        keep(&archive, &records[2..3]).await.expect("kept");
        drop(archive);
        let archive = FileArchive::open(directory.join(ARCHIVE)).expect("the same file");
        keep(&archive, &records[3..]).await.expect("kept");
        assert_eq!(read(&directory.join(ARCHIVE)), (ids(&records), 0));
    }

    #[tokio::test]
    async fn a_torn_line_is_never_merged_with_the_next() {
        let directory = ScratchDir::new("torn");
        let records = records(3);
        let archive = FileArchive::open(directory.join(ARCHIVE)).expect("a new file");
        keep(&archive, &records[..2]).await.expect("kept");
        drop(archive);
        let whole = fs::read(directory.join(ARCHIVE)).expect("a file");
        let first = whole.iter().position(|byte| *byte == b'\n').expect("two lines") + 1;
        let middle = usize::midpoint(first, whole.len());
        for left in [first, first + 1, middle, whole.len() - 2, whole.len() - 1, whole.len()] {
            fs::write(directory.join(ARCHIVE), &whole[..left]).expect("torn off");
            let archive = FileArchive::open(directory.join(ARCHIVE)).expect("the same file");
            keep(&archive, &records[2..]).await.expect("kept");
            let (read, torn) = read(&directory.join(ARCHIVE));
            let complete = left + 1 >= whole.len();
            let kept: Vec<_> =
                if complete { ids(&records) } else { [&ids(&records)[..1], &ids(&records)[2..]].concat() };
            assert_eq!(read, kept, "{left}");
            assert_eq!(torn, usize::from(!complete && left > first), "{left}");
        }
    }

    #[tokio::test]
    async fn a_batch_that_failed_half_way_does_not_spoil_the_next() {
        let directory = ScratchDir::new("half-way");
        let records = records(2);
        let archive = FileArchive::open(directory.join(ARCHIVE)).expect("a new file");
        keep(&archive, &records[..1]).await.expect("kept");
        let mut behind =
            OpenOptions::new().append(true).open(directory.join(ARCHIVE)).expect("the same file");
        behind.write_all(b"{\"format\":1,\"oper").expect("written");
        keep(&archive, &records[1..]).await.expect("kept");
        assert_eq!(read(&directory.join(ARCHIVE)), (ids(&records), 1));
    }

    #[tokio::test]
    async fn a_file_that_takes_no_writes_is_an_error() {
        let directory = ScratchDir::new("read-only");
        fs::write(directory.join(ARCHIVE), "").expect("a file");
        let file = Arc::new(Mutex::new(File::open(directory.join(ARCHIVE)).expect("for reading")));
        let archive = FileArchive { path: directory.join(ARCHIVE), file };
        let error = keep(&archive, &records(1)).await.expect_err("it cannot be written to");
        assert!(error.to_string().contains("no record is deleted"), "{error}");
        assert_eq!(read(&directory.join(ARCHIVE)), (vec![], 0));
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_full_disk_is_an_error() {
        let file =
            OpenOptions::new().read(true).append(true).open("/dev/full").expect("a device that is full");
        let archive = FileArchive { path: "/dev/full".into(), file: Arc::new(Mutex::new(file)) };
        let error = keep(&archive, &records(1)).await.expect_err("no room");
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_missing_folder_and_a_directory_are_errors() {
        let directory = ScratchDir::new("nowhere");
        FileArchive::open(directory.join("missing").join("archive.jsonl")).expect_err("no such directory");
        FileArchive::open(directory.path()).expect_err("a directory");
    }

    #[test]
    fn two_processes_cannot_write_to_one_archive() {
        let directory = ScratchDir::new("locked");
        let first = FileArchive::open(directory.join(ARCHIVE)).expect("a new file");
        let error = FileArchive::open(directory.join(ARCHIVE)).expect_err("it is in use");
        assert!(error.to_string().contains("another process"), "{error}");
        drop(first);
        FileArchive::open(directory.join(ARCHIVE)).expect("free again");
    }

    #[cfg(unix)]
    #[test]
    fn a_new_archive_is_for_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = ScratchDir::new("mode");
        drop(FileArchive::open(directory.join(ARCHIVE)).expect("a new file"));
        let mode = fs::metadata(directory.join(ARCHIVE)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0);
    }

    #[cfg(unix)]
    #[test]
    fn a_bare_file_name_lies_in_the_current_directory() {
        assert_eq!(directory(Path::new("archive.jsonl")), Path::new("."));
        assert_eq!(directory(Path::new("a/archive.jsonl")), Path::new("a"));
    }
}
