//! The note that replaces the secret's state while a store is copied, and what a copy has to know about the state.

use super::Error;
use super::stored::{NODE, Registration, State};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// No state has this format, so builds that do not know copies refuse such a store too.
pub(super) const FORMAT: u8 = 0;

/// An unfinished copy of another store. No node starts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copying {
    /// The source of the copy.
    pub(crate) source: String,
}

#[derive(Serialize, Deserialize)]
struct Note {
    format: u8,
    copy_of: String,
}

impl Copying {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let note = Note { format: FORMAT, copy_of: self.source.clone() };
        serde_json::to_vec(&note).expect("numbers and texts can be written as JSON")
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let note: Note = serde_json::from_slice(bytes).ok()?;
        (note.format == FORMAT).then_some(Self { source: note.copy_of })
    }
}

/// A node that has not left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registered {
    /// Its name.
    pub(crate) name: String,
    /// After this much silence it is certainly gone; `None` if that cannot be read.
    pub(crate) lapse: Option<Duration>,
}

/// The node that a setting registers, if any.
pub(crate) fn registered(setting: &str, value: &[u8]) -> Option<Registered> {
    setting.starts_with(NODE).then(|| match Registration::decode(value) {
        Ok(node) => Registered { lapse: Some(node.lapse()), name: node.name },
        Err(_) => Registered { name: setting.to_owned(), lapse: None },
    })
}

/// The secret's ID and the epoch of a state, as text. Rejects a state that this build cannot use.
pub(crate) fn state_id(bytes: &[u8]) -> Result<String, Error> {
    State::decode(bytes).map(|state| format!("{} {}", state.secret.id, state.epoch))
}
