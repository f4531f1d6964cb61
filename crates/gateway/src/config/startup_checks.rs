//! What a start would open, checked without opening it: the store and the archive.

use super::mistake::SettingLocation;
use super::table::Table;
use super::{Config, ConfigError};
use crate::stores::Url;
use std::io;
use std::path::{Path, PathBuf};

/// Where the configuration names what is opened at start.
#[derive(Debug, Clone, Default)]
pub(super) struct StartPositions {
    pub(super) store: SettingLocation,
    pub(super) archive: SettingLocation,
}

impl StartPositions {
    /// The position of the store. That of the archive is found later.
    pub(super) fn of(store: &Table<'_, '_>) -> Self {
        Self { store: place(store, "url"), archive: SettingLocation::default() }
    }

    /// Keeps the position of the archive. Reports one that is a file of the store: lines that are appended to it would damage
    /// the store.
    pub(super) fn check_archive(&mut self, sweep: &Table<'_, '_>, archive: Option<&Path>, store: &Url) {
        self.archive = place(sweep, "archive");
        let Some(archive) = archive.filter(|archive| is_file_of(store, archive)) else { return };
        let problem = format!("the archive {} is a file of the store", archive.display());
        let fix = "write the path of another file";
        sweep.document.mistake(sweep.span_of("archive").as_ref(), problem, fix);
    }
}

/// Where a key is set, if it is.
fn place(table: &Table<'_, '_>, key: &str) -> SettingLocation {
    table.span_of(key).map(|span| table.document.place(&span)).unwrap_or_default()
}

impl Config {
    /// Mistakes that only this machine shows, and that `semel serve` would find when it opens the store and the archive: what
    /// they name does not exist or cannot be used. Opens and creates nothing.
    pub fn check_startup(&self) -> Vec<ConfigError> {
        let StartPositions { store, archive } = self.start_positions.clone();
        let store = self.store.check_files().err().map(|why| {
            let problem = format!("the store cannot be opened: {why}");
            store.mistake(problem, "name what exists, or create it first")
        });
        let archive = self
            .storage
            .archive
            .as_deref()
            .and_then(archive_problem)
            .map(|why| archive.mistake(why, "write the path of a file"));
        store.into_iter().chain(archive).collect()
    }

    /// Directories that do not exist on this machine, although `semel serve` needs them. The file may have been written for
    /// another machine, so these are no mistakes.
    pub(super) fn missing_directories(&self) -> Vec<String> {
        let store = self.store.files().into_iter().next().map(|file| ("store", file));
        let archive = self.storage.archive.clone().map(|file| ("archive", file));
        let missing = |(what, file): (&str, PathBuf)| {
            let folder = missing_directory(&file)?.display();
            Some(format!(
                "the directory of the {what}, {folder}, does not exist on this machine; create it before you start \
                 `semel serve`"
            ))
        };
        store.into_iter().chain(archive).filter_map(missing).collect()
    }
}

/// Why this cannot be opened at start as an archive, if so. Creates nothing.
fn archive_problem(path: &Path) -> Option<String> {
    let shown = path.display();
    match path.metadata() {
        Ok(found) if found.is_dir() => Some(format!("the archive {shown} is a directory")),
        Ok(found) if is_stream(&found) => {
            Some(format!("the archive {shown} is a named pipe or a socket, not a file"))
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Some(format!("the archive {shown} cannot be opened: {error}"))
        }
        // It is created at start if it does not exist.
        Ok(_) | Err(_) => None,
    }
}

/// Whether `path` is one of the store's files, under this name or another.
fn is_file_of(store: &Url, path: &Path) -> bool {
    let Some(main) = store.files().into_iter().next() else { return false };
    // Other files are named after what a link leads to.
    let actual = Url::embedded(&resolved(&main)).files();
    let path = resolved(path);
    actual.iter().any(|file| resolved(file) == path)
}

/// The path without links and `..`, as far as it exists.
fn resolved(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    whole.canonicalize().unwrap_or_else(|_| match (whole.parent(), whole.file_name()) {
        (Some(folder), Some(name)) => {
            folder.canonicalize().map_or_else(|_| whole.clone(), |folder| folder.join(name))
        }
        _ => whole.clone(),
    })
}

/// The directory of this file, if it does not exist.
fn missing_directory(file: &Path) -> Option<&Path> {
    file.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.exists())
}

#[cfg(unix)]
fn is_stream(found: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    found.file_type().is_fifo() || found.file_type().is_socket()
}

#[cfg(not(unix))]
fn is_stream(_: &std::fs::Metadata) -> bool {
    false
}
