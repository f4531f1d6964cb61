//! Queries of operators, sweepers and quotas.

use crate::codec;
use crate::id::{CallerHash, CommandId, KeyHash, OperationId};
use crate::record::{Entry, Record, StateName};
use crate::time::Time;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::fmt;

/// Which records to list. All given conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    /// In this state.
    pub state: Option<StateName>,
    /// Of this operation.
    pub operation: Option<String>,
    /// Of this caller, or of callers whose hash has this prefix.
    pub caller: Option<Callers>,
    /// With this key.
    pub key: Option<KeyHash>,
    /// Last written at this moment or later.
    pub updated_from: Option<Time>,
    /// Last written before this moment.
    pub updated_before: Option<Time>,
    /// Whose operation ID has this prefix.
    pub ids: Option<OperationIds>,
    /// Whose outcome has this resource type.
    pub resource_type: Option<String>,
    /// Whose outcome has this resource ID.
    pub resource_id: Option<String>,
    /// Whose outcome has this error code.
    pub error_code: Option<String>,
    /// Newest first, if the store can [list](super::Capabilities::order) oldest first. Only the order changes.
    pub newest_first: bool,
}

impl Filter {
    /// Whether an entry is listed. An unreadable entry may be a match, so it is listed under every filter except one
    /// for its ID. Markers are not listed.
    pub fn shows(&self, item: &Item) -> bool {
        match &item.entry {
            Ok(Entry::Record(record)) => self.wants(record),
            Ok(Entry::Moved) => false,
            Err(_) => self.ids.is_none_or(|ids| ids.has(&OperationId::of(&item.id))),
        }
    }

    /// Whether `record` matches. This defines the query of every store.
    pub fn wants(&self, record: &Record) -> bool {
        fn has_label(wanted: Option<&str>, value: Option<&str>) -> bool {
            wanted.is_none_or(|wanted| value == Some(wanted))
        }
        fn equals<T: PartialEq>(wanted: Option<&T>, value: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == value)
        }
        equals(self.state.as_ref(), &record.state_name())
            && self.operation.as_ref().is_none_or(|operation| **operation == **record.operation())
            && self.caller.is_none_or(|callers| callers.has(&record.caller_hash()))
            && equals(self.key.as_ref(), &record.key_hash())
            && self.updated_from.is_none_or(|from| record.updated_at() >= from)
            && self.updated_before.is_none_or(|before| record.updated_at() < before)
            && self.ids.is_none_or(|ids| ids.has(&record.operation_id()))
            && has_label(self.resource_type.as_deref(), record.labels().resource_type.as_deref())
            && has_label(self.resource_id.as_deref(), record.labels().resource_id.as_deref())
            && has_label(self.error_code.as_deref(), record.labels().error_code.as_deref())
    }
}

/// One caller, or all callers whose hash has a given prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Callers {
    /// The lowest hash in the range.
    pub first: CallerHash,
    /// The highest in the range.
    pub last: CallerHash,
}

impl Callers {
    /// The shortest prefix: as many digits as a log line or a metric shows.
    pub const DIGITS_MIN: usize = 8;

    /// Callers whose hash begins with these hexadecimal digits, 8 to 64. All 64 name one caller.
    pub fn beginning(digits: &str) -> Option<Self> {
        let (first, last) = range(digits, Self::DIGITS_MIN)?;
        Some(Self { first: CallerHash::from_bytes(first), last: CallerHash::from_bytes(last) })
    }

    /// Whether this caller is in the range.
    pub fn has(&self, caller: &CallerHash) -> bool {
        (self.first..=self.last).contains(caller)
    }
}

/// Operation IDs with a given prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationIds {
    /// The lowest in the range.
    pub first: OperationId,
    /// The highest in the range.
    pub last: OperationId,
}

impl OperationIds {
    /// The shortest prefix.
    pub const DIGITS_MIN: usize = 4;

    /// Operation IDs with this prefix: a complete ID, or at least its first 4 digits. Hyphens are allowed where an ID
    /// has them.
    pub fn beginning(text: &str) -> Option<Self> {
        let is_hyphen = |at| [8, 13, 18, 23].contains(&at);
        let has_hyphens = text.contains('-');
        let is_fit = |(at, byte): (usize, u8)| (byte == b'-') == (has_hyphens && is_hyphen(at));
        if !text.bytes().enumerate().all(is_fit) {
            return None;
        }
        let (first, last) = range(&text.replace('-', ""), Self::DIGITS_MIN)?;
        Some(Self { first: OperationId::from_bytes(first), last: OperationId::from_bytes(last) })
    }

    /// Whether this ID is in the range.
    pub fn has(&self, id: &OperationId) -> bool {
        (self.first.as_bytes()..=self.last.as_bytes()).contains(&id.as_bytes())
    }
}

/// The lowest and the highest value of `N` bytes whose hexadecimal digits begin with `digits`. `None` for fewer
/// digits than `digits_min` or more than fit.
fn range<const N: usize>(digits: &str, digits_min: usize) -> Option<([u8; N], [u8; N])> {
    if !(digits_min..=2 * N).contains(&digits.len()) {
        return None;
    }
    let filled = |with: &str| {
        let mut bytes = [0; N];
        hex::decode_to_slice(format!("{digits}{}", with.repeat(2 * N - digits.len())), &mut bytes).ok()?;
        Some(bytes)
    };
    Some((filled("0")?, filled("f")?))
}

/// Exactly this caller.
impl From<CallerHash> for Callers {
    fn from(caller: CallerHash) -> Self {
        Self { first: caller, last: caller }
    }
}

/// Where a page ended. Opaque to everyone but the store that made it. Clients may send back anything: a cursor that
/// the store did not make is refused with [`Kind::Unfit`](super::Kind::Unfit). Debug output shows its length only,
/// because it may contain complete IDs.
#[derive(Clone, PartialEq, Eq)]
pub struct Cursor(Bytes);

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cursor({} bytes)", self.0.len())
    }
}

impl Cursor {
    /// A cursor with the bytes that the store needs to continue.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes that the store put in.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// One entry of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    /// Its command ID.
    pub id: CommandId,
    /// The entry; an error if it cannot be read.
    pub entry: Result<Entry, codec::Error>,
}

impl Item {
    /// The record, if it is one and can be read.
    pub fn record(&self) -> Option<&Record> {
        match &self.entry {
            Ok(Entry::Record(record)) => Some(record),
            _ => None,
        }
    }
}

/// Some entries, and where to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The store's time.
    pub now: Time,
    /// The entries.
    pub items: Vec<Item>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

/// What to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// Every record, tombstones included; no markers.
    Records,
    /// The records of one caller.
    Caller(CallerHash),
    /// The records in one state.
    State(StateName),
    /// Moved markers.
    Markers,
}

/// The result of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The store's time.
    pub now: Time,
    /// How many, up to the requested limit.
    pub count: u64,
}

/// How many records there are in each state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// The store's time.
    pub now: Time,
    by_state: [u64; StateName::ALL.len()],
}

impl Census {
    /// No records at `now`.
    pub const fn empty(now: Time) -> Self {
        Self { now, by_state: [0; StateName::ALL.len()] }
    }

    /// Adds `count` records in `state`.
    pub fn add(&mut self, state: StateName, count: u64) {
        if let Some(sum) = self.by_state.get_mut(usize::from(state.number())) {
            *sum = sum.saturating_add(count);
        }
    }

    /// How many records are in `state`.
    pub fn in_state(&self, state: StateName) -> u64 {
        self.by_state.get(usize::from(state.number())).copied().unwrap_or(0)
    }

    /// Every state with its number of records.
    pub fn states(&self) -> impl Iterator<Item = (StateName, u64)> + '_ {
        StateName::ALL.into_iter().map(|state| (state, self.in_state(state)))
    }
}

/// How many records belong to an operation and are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tallied {
    /// The operation, as its records name it.
    pub operation: String,
    /// The state.
    pub state: StateName,
    /// How many.
    pub count: u64,
}

/// A part of the records, counted by operation and state, and where to continue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// The store's time.
    pub now: Time,
    /// The counts, one for each operation and state found.
    pub counts: Vec<Tallied>,
    /// Where the next part begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl Tally {
    /// Counts the records of a page.
    pub fn of(page: &Page) -> Self {
        let mut counts: BTreeMap<(&str, &str), Tallied> = BTreeMap::new();
        for record in page.items.iter().filter_map(Item::record) {
            let (operation, state) = (&**record.operation(), record.state_name());
            let fresh = || Tallied { operation: operation.to_owned(), state, count: 0 };
            counts.entry((operation, state.as_str())).or_insert_with(fresh).count += 1;
        }
        Self { now: page.now, counts: counts.into_values().collect(), next: page.next.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_by_the_first_digits_of_their_id() {
        let text = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e35";
        let id: OperationId = text.parse().expect("an id");
        let other: OperationId = "0e8f8a52-7b1d-8a6c-9f00-2d9a4c1b7e36".parse().expect("an id");
        for length in 4..=36 {
            let ids = OperationIds::beginning(&text[..length]).expect("its beginning");
            assert!(ids.has(&id), "{length}");
            assert_eq!(ids.has(&other), length < 36, "{length}");
        }
        for good in ["0e8f8a527b1d", "0E8F8A52-7B1D", "0e8f8a527b1d8a6c9f002d9a4c1b7e35"] {
            assert!(OperationIds::beginning(good).is_some_and(|ids| ids.has(&id)), "{good}");
        }
        for bad in
            ["", "0e8", "0e8g", "0e8f-8a52", "0e8f8a52-7b1d8a6c", &format!("{text}0"), "-0e8f", "é0e8f"]
        {
            assert_eq!(OperationIds::beginning(bad), None, "{bad}");
        }
    }

    #[test]
    fn callers_are_found_by_the_first_digits_of_their_hash() {
        let mut bytes = [0; 32];
        bytes[..5].copy_from_slice(&[0xab, 0xcd, 0xef, 0x01, 0x2f]);
        let (hash, digits) = (CallerHash::from_bytes(bytes), CallerHash::from_bytes(bytes).to_hex());
        for length in 8..=64 {
            let callers = Callers::beginning(&digits[..length]).expect("digits");
            assert!(callers.has(&hash), "{length}");
            assert_eq!(callers, Callers::beginning(&digits[..length].to_uppercase()).expect("digits"));
            for at in 0..length {
                let mut other = digits.clone();
                other.replace_range(at..=at, if &digits[at..=at] == "0" { "1" } else { "0" });
                let other = Callers::beginning(&other).expect("digits").first;
                assert!(!callers.has(&other), "{length} digits, with another one at {at}");
            }
        }
        assert_eq!(Callers::beginning(&digits), Some(hash.into()));
        assert!(Callers::beginning("abcdef012").expect("nine").has(&hash), "half a byte counts");
        for bad in ["", "abcdef0", "abcdef0g", "abcdef0é", "+bcdef01", &format!("{digits}0")] {
            assert_eq!(Callers::beginning(bad), None, "{bad}");
        }
    }
}
