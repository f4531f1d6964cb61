//! Power cuts: writes that were not synced may be lost. The shim (`shim/unsynced.c`) records every unsynced
//! write, and some of them are undone after the process is dead.

use crate::chance::Chance;
use crate::sabotage::Sabotage;
use crate::workspace::{Failure, Workspace};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

const SHIM: &str = include_str!("../shim/unsynced.c");
const MAGIC: u32 = 0x534d_4c55;
const HEADER_BYTES: usize = 40;

/// The compiled shim.
#[derive(Debug)]
pub(crate) struct Power {
    library: PathBuf,
    undo: PathBuf,
    prefix: PathBuf,
    lies: bool,
}

/// The writes that a power cut discarded.
#[derive(Debug, Default)]
pub(crate) struct PowerCut {
    pub(crate) unsynced: usize,
    pub(crate) discarded: usize,
    pub(crate) torn: bool,
}

impl fmt::Display for PowerCut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let torn = if self.torn { ", one torn" } else { "" };
        write!(f, "power cut: {} of {} unsynced writes lost{torn}", self.discarded, self.unsynced)
    }
}

/// An entry of the shim's journal, written before the write itself.
#[derive(Debug)]
enum Step {
    Write { at: u64, old_length: u64, old: Vec<u8>, new: Vec<u8> },
    Truncate { to: u64, old_length: u64, old: Vec<u8> },
    Create { path: PathBuf },
    Unlink { path: PathBuf, inode: u64 },
}

impl Power {
    /// Compiles the shim.
    pub(crate) fn new(workspace: &Workspace, sabotage: Option<Sabotage>) -> Result<Self, Failure> {
        if !cfg!(target_os = "linux") {
            return Err("--lose-unsynced puts a library under the worker, which only works on Linux".into());
        }
        let (source, library) = (workspace.beside.join("unsynced.c"), workspace.beside.join("unsynced.so"));
        fs::write(&source, SHIM)?;
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Wextra", "-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source);
        let compiled =
            compiler.output().map_err(|error| format!("--lose-unsynced needs a C compiler: cc: {error}"))?;
        if !compiled.status.success() {
            return Err(format!("cc: {}", String::from_utf8_lossy(&compiled.stderr)).into());
        }
        let undo = workspace.beside.join("undo");
        fs::create_dir_all(&undo)?;
        let prefix = workspace.address.file().ok_or("a power cut discards writes to files")?;
        Ok(Self { library, undo, prefix, lies: sabotage == Some(Sabotage::NoSync) })
    }

    /// Makes a process load the shim.
    pub(crate) fn put_under(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library);
        command.env("SEMEL_UNSYNCED_PREFIX", &self.prefix).env("SEMEL_UNSYNCED_UNDO", &self.undo);
        if self.lies {
            command.env("SEMEL_UNSYNCED_LIES", "1");
        }
    }

    /// Discards some unsynced writes: the names created last, and of each file all writes, the last ones or
    /// any of them; sometimes half of a write stays.
    pub(crate) fn cut(&self, workspace: &Workspace, chance: &mut Chance) -> Result<PowerCut, Failure> {
        let mut cut = PowerCut::default();
        let names = steps(&self.undo.join("directory.undo"))?;
        let kept = chance.index(names.len() + 1);
        cut.unsynced += names.len();
        cut.discarded += names.len() - kept;
        for name in names[kept..].iter().rev() {
            match name {
                Step::Create { path } => drop(fs::remove_file(path)),
                Step::Unlink { path, inode } => fs::rename(self.undo.join(format!("{inode}.saved")), path)?,
                Step::Write { .. } | Step::Truncate { .. } => return Err("a write among the names".into()),
            }
        }
        for path in workspace.address.files() {
            if path.to_string_lossy().ends_with("-shm") {
                // Shared memory with a name: it does not outlive the machine.
                drop(fs::remove_file(path));
                continue;
            }
            let Ok(found) = fs::metadata(&path) else { continue };
            let written = steps(&self.undo.join(format!("{}.undo", found.ino())))?;
            discard(&path, &written, chance, &mut cut)?;
        }
        for entry in fs::read_dir(&self.undo)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(cut)
    }
}

/// Restores the file as it was last synced, then repeats the writes that had reached the disk.
fn discard(path: &Path, written: &[Step], chance: &mut Chance, cut: &mut PowerCut) -> Result<(), Failure> {
    if written.is_empty() {
        return Ok(());
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    for step in written.iter().rev() {
        match step {
            Step::Write { at, old_length, old, .. } | Step::Truncate { to: at, old_length, old } => {
                file.set_len(*old_length)?;
                file.write_all_at(old, *at)?;
            }
            Step::Create { .. } | Step::Unlink { .. } => return Err("a name among the writes".into()),
        }
    }
    let way = chance.within(0..4);
    let from_here_lost = chance.index(written.len() + 1);
    let torn = (way == 3).then(|| chance.index(written.len()));
    cut.unsynced += written.len();
    for (index, step) in written.iter().enumerate() {
        let survives = match way {
            0 => false,
            1 => index < from_here_lost,
            _ => chance.percent(50),
        };
        if torn == Some(index) {
            cut.torn = true;
            rewrite(&file, step, 2)?;
        } else if survives {
            rewrite(&file, step, 1)?;
        } else {
            cut.discarded += 1;
        }
    }
    Ok(())
}

/// Repeats a write, or the first part of it.
fn rewrite(file: &File, step: &Step, part: usize) -> Result<(), Failure> {
    match step {
        Step::Write { at, new, .. } => file.write_all_at(&new[..new.len() / part], *at)?,
        Step::Truncate { to, .. } => file.set_len(*to)?,
        Step::Create { .. } | Step::Unlink { .. } => {}
    }
    Ok(())
}

/// Reads a journal of the shim. An incomplete entry at its end belongs to a write that has not happened.
fn steps(path: &Path) -> Result<Vec<Step>, Failure> {
    let Ok(bytes) = fs::read(path) else { return Ok(Vec::new()) };
    let mut rest = &bytes[..];
    let mut steps = Vec::new();
    while let Some((step, after)) = step(rest)? {
        steps.push(step);
        rest = after;
    }
    Ok(steps)
}

fn step(bytes: &[u8]) -> Result<Option<(Step, &[u8])>, Failure> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
    let word = |at: usize| header[at..at + 4].try_into().map(u32::from_ne_bytes);
    let long = |at: usize| header[at..at + 8].try_into().map(u64::from_ne_bytes);
    let (at, length, old_length, old_bytes) = (long(8)?, long(16)?, long(24)?, long(32)?);
    if word(0)? != MAGIC {
        return Err("the shim's journal is damaged".into());
    }
    let Some((old, rest)) = rest.split_at_checked(usize::try_from(old_bytes)?) else { return Ok(None) };
    let Some((new, rest)) = rest.split_at_checked(usize::try_from(length)?) else { return Ok(None) };
    let Some((_, rest)) = rest.split_at_checked(4) else { return Ok(None) };
    let (old, new) = (old.to_vec(), new.to_vec());
    let path = || String::from_utf8(new.clone()).map(PathBuf::from);
    let step = match word(4)? {
        1 => Step::Write { at, old_length, old, new },
        2 => Step::Truncate { to: at, old_length, old },
        3 => Step::Create { path: path()? },
        4 => Step::Unlink { path: path()?, inode: at },
        other => return Err(format!("the shim's journal has an entry of kind {other}").into()),
    };
    Ok(Some((step, rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: u32, at: u64, old_length: u64, old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        for number in [at, new.len() as u64, old_length, old.len() as u64] {
            bytes.extend(number.to_ne_bytes());
        }
        bytes.extend(old);
        bytes.extend(new);
        bytes.extend(MAGIC.to_ne_bytes());
        bytes
    }

    #[test]
    fn an_incomplete_entry_is_ignored() {
        let complete = entry(1, 5, 9, b"old", b"newer");
        for cut in 0..complete.len() {
            assert!(step(&complete[..cut]).expect("readable").is_none(), "{cut}");
        }
        let (read, rest) = step(&complete).expect("readable").expect("complete");
        assert!(rest.is_empty());
        assert!(
            matches!(read, Step::Write { at: 5, old_length: 9, old, new } if old == b"old" && new == b"newer")
        );
    }

    #[test]
    fn any_unsynced_write_can_be_lost_and_no_synced_one() {
        let path = std::env::temp_dir().join(format!("semel-power-{}", std::process::id()));
        let written = [
            Step::Write { at: 3, old_length: 6, old: b"def".to_vec(), new: b"XYZW".to_vec() },
            Step::Truncate { to: 2, old_length: 7, old: b"cXYZW".to_vec() },
            Step::Write { at: 2, old_length: 2, old: Vec::new(), new: b"--".to_vec() },
        ];
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..200 {
            fs::write(&path, b"ab--").expect("written");
            let mut cut = PowerCut::default();
            discard(&path, &written, &mut Chance::new(seed), &mut cut).expect("discarded");
            seen.insert(fs::read(&path).expect("read"));
        }
        fs::remove_file(&path).expect("removed");
        // None of the writes, the first, the first two, all, only the last, and half of the first.
        for possible in [&b"abcdef"[..], b"abcXYZW", b"ab", b"ab--", b"ab--ef", b"abcXYf"] {
            assert!(seen.contains(possible), "{possible:?} {seen:?}");
        }
        assert!(!seen.contains(&b"abcXef"[..]), "a quarter of a write");
    }
}
