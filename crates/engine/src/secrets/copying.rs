//! What is in the place of the secret's state while a store is filled from another one, and what a copy has to know
//! of the state itself.

use super::Error;
use super::stored::{NODE, Registration, State};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// No state has this format: builds that do not know of copies refuse such a store as well.
pub(super) const FORMAT: u8 = 0;

/// A store that is being filled from another one. No node starts on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copying {
    /// Which store it is filled from.
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

/// A node that has not signed off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Registered {
    /// What it calls itself.
    pub(crate) name: String,
    /// After so much silence it does nothing any more; `None` if that cannot be read.
    pub(crate) lapse: Option<Duration>,
}

/// The node that a setting registers, if it does.
pub(crate) fn registered(setting: &str, value: &[u8]) -> Option<Registered> {
    setting.starts_with(NODE).then(|| match Registration::decode(value) {
        Ok(node) => Registered { lapse: Some(node.lapse()), name: node.name },
        Err(_) => Registered { name: setting.to_owned(), lapse: None },
    })
}

/// Which secret a state is about and how often it has changed, in a line. Refuses what no node of this build could go
/// on with.
pub(crate) fn state_id(bytes: &[u8]) -> Result<String, Error> {
    State::decode(bytes).map(|state| format!("{} {}", state.secret.id, state.epoch))
}
