//! Journals of the nodes' actions, which survive the nodes.

use semel_core::record::Token;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// The store acknowledged the claim with this token, or showed it.
    Claimed,
    /// The effect was applied under this token.
    Effect,
    /// The store acknowledged the outcome of the attempt with this token, or showed it.
    Finished,
    /// Somebody got the outcome of the attempt with this token.
    Replayed,
}

impl Event {
    const ALL: [Self; 4] = [Self::Claimed, Self::Effect, Self::Finished, Self::Replayed];

    const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Effect => "effect",
            Self::Finished => "finished",
            Self::Replayed => "replayed",
        }
    }
}

/// One line of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note {
    /// Which key.
    pub key: u64,
    /// Whose attempt.
    pub token: Token,
    /// What happened.
    pub event: Event,
}

/// A journal of what nodes did. An effect *is* its line.
pub trait Journal: Send + Sync + 'static {
    /// Adds a line. It is durable when this returns, also if the process is killed.
    fn note(&self, note: Note);
}

/// A journal for the nodes of one process.
#[derive(Debug, Default)]
pub struct MemoryJournal(Mutex<Vec<Note>>);

impl MemoryJournal {
    /// Every line so far.
    pub fn notes(&self) -> Vec<Note> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Journal for MemoryJournal {
    fn note(&self, note: Note) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }
}

/// A journal that survives its process, in a file that several processes may add to.
#[derive(Debug)]
pub struct FileJournal(File);

impl FileJournal {
    /// Adds to the file at `path`, which need not exist.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        OpenOptions::new().append(true).create(true).open(path).map(Self)
    }

    /// Every complete line of the file.
    pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<Note>> {
        let text = std::fs::read_to_string(path)?;
        let complete = text.rfind('\n').map_or("", |end| &text[..end]);
        let wrong = |line: &str| io::Error::new(io::ErrorKind::InvalidData, format!("not a note: `{line}`"));
        complete.lines().map(|line| parse(line).ok_or_else(|| wrong(line))).collect()
    }
}

impl Journal for FileJournal {
    fn note(&self, note: Note) {
        let line = format!("{} {} {:032x}\n", note.event.name(), note.key, note.token.bits());
        // In one write, so that lines of several processes do not mix.
        (&self.0).write_all(line.as_bytes()).expect("a journal with gaps proves nothing");
    }
}

fn parse(line: &str) -> Option<Note> {
    let mut words = line.split(' ');
    let name = words.next()?;
    let event = Event::ALL.into_iter().find(|event| event.name() == name)?;
    let key = words.next()?.parse().ok()?;
    let token = Token::from_random(u128::from_str_radix(words.next()?, 16).ok()?);
    words.next().is_none().then_some(Note { key, token, event })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_every_complete_line_of_several_writers() {
        let path = std::env::temp_dir().join(format!("semel-journal-{}", std::process::id()));
        let notes: Vec<Note> = Event::ALL
            .into_iter()
            .zip(0..)
            .map(|(event, key)| Note { key, token: Token::from_random(u128::MAX - u128::from(key)), event })
            .collect();
        for note in &notes {
            FileJournal::open(&path).expect("a file").note(*note);
        }
        OpenOptions::new()
            .append(true)
            .open(&path)
            .and_then(|mut file| file.write_all(b"effect 7 0000"))
            .expect("the last words of a killed process");
        let read = FileJournal::read(&path);
        std::fs::write(&path, "effect seven 00\n").expect("a file");
        let wrong = FileJournal::read(&path);
        std::fs::remove_file(&path).expect("the file");
        assert_eq!(read.expect("a journal"), notes);
        assert!(wrong.is_err());
    }
}
