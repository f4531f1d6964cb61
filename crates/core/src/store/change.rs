//! A conditional write: what shall be stored under an id afterwards, and what must be there for that.

use crate::machine::{Expect, Found, Unchanged, Write};
use crate::record::Record;

/// A write to one entry, with its condition. Every store's compare-and-swap means [`is_met_by`](Self::is_met_by).
///
/// `R` is how the record is held: `&Record` on the way to a store, whatever a store makes of it on its way inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a change changes nothing before a store has applied it"]
pub enum Change<R> {
    /// Puts the first record of a command where nothing stands. It stands under the id that its operation id follows
    /// from ([`OperationId::of`](crate::id::OperationId::of)); a store may rely on that.
    Insert(R),
    /// Puts the marker of a command that lives under the next secret's id where nothing stands.
    InsertMarker,
    /// Puts a record in the place of one that is still as it was read.
    Replace(Unchanged, R),
    /// Removes a record that is still as it was read.
    Remove(Unchanged),
    /// Removes a marker.
    RemoveMarker,
}

impl<R> Change<R> {
    /// Whether it may be applied to what a store found. Nothing that cannot be read allows any.
    #[must_use]
    pub fn is_met_by(&self, found: Found<'_>) -> bool {
        match self {
            Self::Insert(_) | Self::InsertMarker => Expect::Absent.met_by(found),
            Self::Replace(unchanged, _) | Self::Remove(unchanged) => unchanged.met_by(found),
            Self::RemoveMarker => matches!(found, Found::Moved),
        }
    }

    /// The record that is there afterwards, if it is one.
    pub fn record(&self) -> Option<&R> {
        match self {
            Self::Insert(record) | Self::Replace(_, record) => Some(record),
            Self::InsertMarker | Self::Remove(_) | Self::RemoveMarker => None,
        }
    }

    /// The same, with a reference to what it holds.
    pub fn as_ref(&self) -> Change<&R> {
        match self {
            Self::Insert(record) => Change::Insert(record),
            Self::InsertMarker => Change::InsertMarker,
            Self::Replace(unchanged, record) => Change::Replace(*unchanged, record),
            Self::Remove(unchanged) => Change::Remove(*unchanged),
            Self::RemoveMarker => Change::RemoveMarker,
        }
    }

    /// The same, with the record held in another way.
    pub fn map<S>(self, hold: impl FnOnce(R) -> S) -> Change<S> {
        let held: Result<_, std::convert::Infallible> = self.try_map(|record| Ok(hold(record)));
        match held {
            Ok(change) => change,
        }
    }

    /// The same, with the record held in another way, where that does not fail.
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

/// A transition of the machine.
impl<'a> From<&'a Write> for Change<&'a Record> {
    fn from(write: &'a Write) -> Self {
        match write.expect {
            Expect::Absent => Self::Insert(&write.next),
            Expect::Unchanged(unchanged) => Self::Replace(unchanged, &write.next),
        }
    }
}
