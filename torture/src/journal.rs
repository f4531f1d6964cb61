//! The records that survive a kill: the ledger of effects and the journal of answers. Each event is one line,
//! appended with a single unbuffered write after it has happened, so that a killed process leaves it in the
//! page cache.

use crate::clock;
use sha2::{Digest, Sha256};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// The meaning of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// In the ledger: a key is about to be used for the first time.
    Issue,
    /// In the ledger: work has started; its effect has not happened.
    Begin,
    /// In the ledger: the effect.
    Effect,
    /// In the ledger: the work is about to report that nothing took effect.
    NotApplied,
    /// In the ledger: the work is about to report an unknown outcome.
    Doubt,
    /// An answer: this call ran it, and the outcome is stored.
    Ran,
    /// An answer: the stored outcome, replayed.
    Replay,
    /// An answer that acknowledges nothing: it ran, but nothing final is stored.
    Open,
    /// An answer: the outcome is unknown.
    Unknown,
    /// An answer: another attempt is running.
    InProgress,
    /// An answer: the key has expired.
    Expired,
    /// An answer: nothing was run, because of the store, a lease or a shutdown.
    Nothing,
    /// An answer that no caller should ever get.
    Wrong,
}

const NAMES: &[(Kind, &str)] = &[
    (Kind::Issue, "issue"),
    (Kind::Begin, "begin"),
    (Kind::Effect, "effect"),
    (Kind::NotApplied, "not-applied"),
    (Kind::Doubt, "doubt"),
    (Kind::Ran, "ran"),
    (Kind::Replay, "replay"),
    (Kind::Open, "open"),
    (Kind::Unknown, "unknown"),
    (Kind::InProgress, "in-progress"),
    (Kind::Expired, "expired"),
    (Kind::Nothing, "nothing"),
    (Kind::Wrong, "wrong"),
];

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) kind: Kind,
    /// The process.
    pub(crate) run: String,
    pub(crate) key: String,
    pub(crate) operation_id: String,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    /// Until when the outcome must be replayed; 0 if nothing is acknowledged.
    pub(crate) expires: u64,
    pub(crate) at: u64,
    /// When the request was sent that this answers; otherwise the same as `at`.
    pub(crate) asked: u64,
    /// The hash of the outcome's bytes, or a word about what happened.
    pub(crate) detail: String,
}

impl Line {
    pub(crate) fn new(kind: Kind, run: &str, key: &str) -> Self {
        let (run, key) = (run.to_owned(), key.to_owned());
        let (operation_id, detail) = ("-".to_owned(), "-".to_owned());
        let at = clock::now();
        Self { kind, run, key, operation_id, attempt: 0, fence: 0, expires: 0, at, asked: at, detail }
    }

    /// Whether this acknowledges a stored outcome.
    pub(crate) fn acknowledges(&self) -> bool {
        matches!(self.kind, Kind::Ran | Kind::Replay)
    }

    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split(' ');
        let mut next = || parts.next();
        let name = next()?;
        let kind = NAMES.iter().find(|(_, known)| *known == name)?.0;
        let (run, key, operation_id) = (next()?.to_owned(), next()?.to_owned(), next()?.to_owned());
        let (attempt, fence) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let (expires, at) = (next()?.parse().ok()?, next()?.parse().ok()?);
        let asked = next()?.parse().ok()?;
        let detail = next()?.to_owned();
        Some(Self { kind, run, key, operation_id, attempt, fence, expires, at, asked, detail })
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, run, key, operation_id, attempt, fence, expires, at, asked, detail } = self;
        let name = NAMES.iter().find(|(known, _)| known == kind).map_or("?", |(_, name)| name);
        write!(f, "{name} {run} {key} {operation_id} {attempt} {fence} {expires} {at} {asked} {detail}")
    }
}

/// Ends a complete line.
const END: &str = " .";

/// A file of lines that several processes append to.
pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn append_to(path: &Path) -> io::Result<Self> {
        OpenOptions::new().create(true).append(true).open(path).map(Self)
    }

    /// Returns when the line has left this process.
    pub(crate) fn note(&self, line: &Line) -> io::Result<()> {
        // A kill may truncate a write between two pages, so a line starts with a line feed and has an end
        // mark.
        let text = format!("\n{line}{END}\n");
        // A second write could be lost to a kill in between, so an incomplete write is an error.
        let written = (&self.0).write(text.as_bytes())?;
        if written == text.len() { Ok(()) } else { Err(io::Error::other("a line was not written at once")) }
    }
}

/// Reads the lines that were appended since the last call. A truncated line is ignored.
pub(crate) struct Tail {
    read: u64,
}

impl Tail {
    pub(crate) fn from_the_start() -> Self {
        Self { read: 0 }
    }

    pub(crate) fn lines(&mut self, path: &Path) -> io::Result<Vec<Line>> {
        let mut file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.read))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let complete = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        self.read += complete as u64;
        let text = String::from_utf8_lossy(&bytes[..complete]);
        Ok(text.lines().filter_map(|line| Line::read(line.strip_suffix(END)?)).collect())
    }
}

/// The hash by which outcomes are compared.
pub(crate) fn hash(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes)[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_reads_back_as_it_was_written() {
        for (kind, _) in NAMES {
            let line = Line { attempt: 3, fence: 17, expires: 99, ..Line::new(*kind, "r1a", "k-1") };
            assert_eq!(Line::read(&line.to_string()), Some(line));
        }
    }

    #[test]
    fn a_truncated_line_is_ignored_and_the_next_is_read() {
        let folder = std::env::temp_dir().join(format!("semel-journal-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let lines = [Kind::Ran, Kind::Replay].map(|kind| Line::new(kind, "r1a", "k-1"));
        let journal = Journal::append_to(&folder).expect("a file");
        journal.note(&lines[0]).expect("written");
        let cut = format!("\n{}", Line { detail: hash(b"an outcome"), ..lines[0].clone() });
        (&journal.0).write_all(&cut.as_bytes()[..cut.len() - 17]).expect("written");
        journal.note(&lines[1]).expect("written");
        assert_eq!(Tail::from_the_start().lines(&folder).expect("read"), lines);
        std::fs::remove_file(&folder).expect("removed");
    }

    #[test]
    fn an_incomplete_line_is_ignored() {
        let complete = Line::new(Kind::Effect, "r1a", "k-1").to_string();
        let half = &complete[..complete.len() - 2];
        assert_eq!(Line::read(half), None);
    }
}
