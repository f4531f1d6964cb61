//! A conditional write: the new entry, and the entry that it expects.

use crate::machine::{Expect, Found, Unchanged, Write};
use crate::record::Record;

/// A write to one entry, with its condition. [`is_met_by`](Self::is_met_by) defines the compare-and-swap of every
/// store.
///
/// `R` is the form of the record: `&Record` in calls to a store, any form inside the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a change changes nothing before a store has applied it"]
pub enum Change<R> {
    /// Inserts the first record of a command if there is no entry. Its operation ID is derived from its command ID
    /// ([`OperationId::of`](crate::id::OperationId::of)); a store may rely on that.
    Insert(R),
    /// Inserts a moved marker if there is no entry. The command is stored under the next secret's ID.
    InsertMarker,
    /// Replaces a record that is unchanged since it was read.
    Replace(Unchanged, R),
    /// Removes a record that is unchanged since it was read.
    Remove(Unchanged),
    /// Removes a marker.
    RemoveMarker,
}

impl<R> Change<R> {
    /// Whether it may be applied to the entry that a store found. An unreadable entry allows no change.
    #[must_use]
    pub fn is_met_by(&self, found: Found<'_>) -> bool {
        match self {
            Self::Insert(_) | Self::InsertMarker => Expect::Absent.met_by(found),
            Self::Replace(unchanged, _) | Self::Remove(unchanged) => unchanged.met_by(found),
            Self::RemoveMarker => matches!(found, Found::Moved),
        }
    }

    /// The record after the change, if there is one.
    pub fn record(&self) -> Option<&R> {
        match self {
            Self::Insert(record) | Self::Replace(_, record) => Some(record),
            Self::InsertMarker | Self::Remove(_) | Self::RemoveMarker => None,
        }
    }

    /// The same change with a reference to the record.
    pub fn as_ref(&self) -> Change<&R> {
        match self {
            Self::Insert(record) => Change::Insert(record),
            Self::InsertMarker => Change::InsertMarker,
            Self::Replace(unchanged, record) => Change::Replace(*unchanged, record),
            Self::Remove(unchanged) => Change::Remove(*unchanged),
            Self::RemoveMarker => Change::RemoveMarker,
        }
    }

    /// The same change with the record in another form.
    pub fn map<S>(self, hold: impl FnOnce(R) -> S) -> Change<S> {
        let held: Result<_, std::convert::Infallible> = self.try_map(|record| Ok(hold(record)));
        match held {
            Ok(change) => change,
        }
    }

    /// The same change with the record in another form; fails if the conversion fails.
    pub fn try_map<S, E>(self, hold: impl FnOnce(R) -> Result<S, E>) -> Result<Change<S>, E> {
        Ok(match self {
            Self::Insert(record) => Change::Insert(hold(record)?),
            Self::InsertMarker => Change::InsertMarker,
            Self::Replace(unchanged, record) => Change::Replace(unchanged, hold(record)?),
            Self::Remove(unchanged) => Change::Remove(unchanged),
            Self::RemoveMarker => Change::RemoveMarker,
        })
    }
}

/// The write of a transition.
impl<'a> From<&'a Write> for Change<&'a Record> {
    fn from(write: &'a Write) -> Self {
        match write.expect {
            Expect::Absent => Self::Insert(&write.next),
            Expect::Unchanged(unchanged) => Self::Replace(unchanged, &write.next),
        }
    }
}
