//! The keys of the store, and their values.
//!
//! A record and all its index entries are in one bucket, whose hash tag keeps them on one server of a
//! cluster. The bucket follows from the operation ID.
//!
//! | key | what |
//! |---|---|
//! | `{P:b}r:ID` | a record: fixed fields, the operation's name, the entry |
//! | `{P:b}s0` to `{P:b}s6` | the records in each state, by creation |
//! | `{P:b}s7` | moved markers |
//! | `{P:b}due` | what is due when |
//! | `{P:b}callers` | how many records a caller has |
//! | `{P:b}identity`, `{P}identity` | the store's identity: markers that show that nothing is lost |
//! | `{P}meta`, `{P}settings` | the store's own |

use crate::address::{BUCKETS, checked_prefix};
use crate::scripts::sha1_hex;
use crate::slot::slot_of;
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::Unchanged;
use semel_core::record::{Entry, Record, StateName};
use semel_core::store::Filter;
use semel_core::time::Time;

/// The name of the keys that hold the store's identity.
pub(crate) const MARKER_NAME: &str = "identity";
/// The number of a moved marker among the states.
pub(crate) const MARKER: u8 = 7;
/// The fixed fields before the operation's name.
const HEAD_BYTES: usize = 126;
/// What a write expects: state, version, token and command ID.
pub(crate) const GUARD_BYTES: usize = 57;

/// The names of all keys.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    prefix: String,
    buckets: u16,
    slots: Vec<u16>,
}

impl Layout {
    pub(crate) fn new(prefix: &str, buckets: u16) -> Self {
        debug_assert!(checked_prefix(prefix).is_ok(), "checked with the address");
        let buckets = if buckets == 0 { BUCKETS } else { buckets };
        let slots = (0..buckets).map(|bucket| slot_of(&format!("{prefix}:{bucket}"))).collect();
        Self { prefix: prefix.to_owned(), buckets, slots }
    }

    pub(crate) fn buckets(&self) -> std::ops::Range<u16> {
        0..self.buckets
    }

    /// By the first bytes of the ID, so that IDs with the same prefix are together.
    pub(crate) fn bucket(&self, id: OperationId) -> u16 {
        let [first, second, ..] = *id.as_bytes();
        let at = (u32::from(u16::from_be_bytes([first, second])) * u32::from(self.buckets)) >> 16;
        u16::try_from(at).unwrap_or(0)
    }

    pub(crate) fn slot(&self, bucket: u16) -> u16 {
        self.slots.get(usize::from(bucket)).copied().unwrap_or(0)
    }

    pub(crate) fn record(&self, id: OperationId) -> Vec<u8> {
        format!("{{{}:{}}}r:{}", self.prefix, self.bucket(id), hex::encode(id.as_bytes())).into_bytes()
    }

    fn of_bucket(&self, bucket: u16, name: &str) -> Vec<u8> {
        format!("{{{}:{bucket}}}{name}", self.prefix).into_bytes()
    }

    /// The records in a state, or the markers.
    pub(crate) fn list(&self, bucket: u16, state: u8) -> Vec<u8> {
        self.of_bucket(bucket, &format!("s{state}"))
    }

    pub(crate) fn due(&self, bucket: u16) -> Vec<u8> {
        self.of_bucket(bucket, "due")
    }

    pub(crate) fn callers(&self, bucket: u16) -> Vec<u8> {
        self.of_bucket(bucket, "callers")
    }

    /// Written, or removed although it does not exist, to prove that the server accepts writes.
    pub(crate) fn proof(&self, bucket: u16) -> Vec<u8> {
        self.of_bucket(bucket, "proof")
    }

    /// The marker that shows that the bucket has lost nothing.
    pub(crate) fn marker(&self, bucket: u16) -> Vec<u8> {
        self.of_bucket(bucket, MARKER_NAME)
    }

    /// The marker of every part of the store, and its slot: each bucket, and last the settings.
    pub(crate) fn parts(&self) -> Vec<(u16, Vec<u8>)> {
        let of_buckets = self.buckets().map(|bucket| (self.slot(bucket), self.marker(bucket)));
        of_buckets.chain([self.of_store(MARKER_NAME)]).collect()
    }

    /// The slot of a bucket, or of the settings.
    pub(crate) fn slot_of_part(&self, part: u16) -> u16 {
        self.slots.get(usize::from(part)).copied().unwrap_or_else(|| slot_of(&self.prefix))
    }

    /// A key of the whole store, and its slot.
    pub(crate) fn of_store(&self, name: &str) -> (u16, Vec<u8>) {
        (slot_of(&self.prefix), format!("{{{}}}{name}", self.prefix).into_bytes())
    }

    /// The channel on which nodes announce their writes.
    pub(crate) fn channel(&self) -> String {
        format!("{}:changed", self.prefix)
    }
}

/// A position in a list: a number to sort by, then the operation ID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ListPosition(pub(crate) [u8; 24]);

impl ListPosition {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub(crate) fn operation_id(&self) -> OperationId {
        let mut id = [0; 16];
        id.copy_from_slice(&self.0[8..]);
        OperationId::from_bytes(id)
    }
}

/// The first bytes of the value that a write expects.
pub(crate) fn guard(state: u8, version: u64, token: u128, id: CommandId) -> [u8; GUARD_BYTES] {
    let mut guard = [0; GUARD_BYTES];
    guard[0] = b'0' + state;
    guard[1..9].copy_from_slice(&version.to_be_bytes());
    guard[9..25].copy_from_slice(&token.to_be_bytes());
    guard[25..].copy_from_slice(id.as_bytes());
    guard
}

/// Identifies an unchanged record.
pub(crate) fn guard_of(unchanged: &Unchanged, id: CommandId) -> [u8; GUARD_BYTES] {
    guard(unchanged.state.number(), unchanged.version, unchanged.token.bits(), id)
}

pub(crate) fn marker_guard(id: CommandId) -> [u8; GUARD_BYTES] {
    guard(MARKER, 0, 0, id)
}

fn first_bytes(hash: &[u8; 32]) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    first
}

/// The part of a caller's hash that is used for counting.
pub(crate) fn caller(hash: &CallerHash) -> [u8; 8] {
    first_bytes(hash.as_bytes())
}

fn key(hash: &KeyHash) -> [u8; 8] {
    first_bytes(hash.as_bytes())
}

fn name_hash(operation: &str) -> [u8; 8] {
    let mut first = [0; 8];
    first.copy_from_slice(&sha1_hex(operation.as_bytes()).as_bytes()[..8]);
    first
}

/// The value of a record with its entry, and the entry's length.
pub(crate) fn value(id: CommandId, record: &Record) -> (Vec<u8>, usize) {
    let entry = codec::encode_record(record);
    let operation = record.operation().as_bytes();
    let mut value = Vec::with_capacity(HEAD_BYTES + operation.len() + entry.len());
    value.extend(guard_of(&Unchanged::of(record), id));
    value.extend_from_slice(&sha1_hex(&entry).as_bytes()[..16]);
    value.extend(record.created_at().as_millis().to_be_bytes());
    value.push(if record.due_at().is_some() { b'1' } else { b'0' });
    value.extend(record.due_at().map_or(0, Time::as_millis).to_be_bytes());
    value.extend(caller(&record.caller_hash()));
    value.extend(key(&record.key_hash()));
    value.extend(record.updated_at().as_millis().to_be_bytes());
    value.extend(name_hash(record.operation()));
    value.extend(u32::try_from(operation.len()).unwrap_or(u32::MAX).to_be_bytes());
    debug_assert_eq!(value.len(), HEAD_BYTES, "what the scripts rely on");
    value.extend_from_slice(operation);
    value.extend_from_slice(&entry);
    (value, entry.len())
}

/// The value of a moved marker.
pub(crate) fn marker(id: CommandId) -> Vec<u8> {
    let entry = codec::encode(&Entry::Moved);
    let mut value = Vec::with_capacity(HEAD_BYTES + entry.len());
    value.extend(marker_guard(id));
    value.extend_from_slice(&sha1_hex(&entry).as_bytes()[..16]);
    value.extend([0; 8]);
    value.push(b'0');
    value.resize(HEAD_BYTES, 0);
    value.extend(entry);
    value
}

/// The command ID in a value, damaged or not; zeros if the value is too short.
pub(crate) fn command_id_in(value: &[u8]) -> CommandId {
    let id = value.get(25..GUARD_BYTES).and_then(|bytes| bytes.try_into().ok());
    CommandId::from_bytes(id.unwrap_or([0; 32]))
}

/// The fields before an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) state: u8,
    pub(crate) id: CommandId,
    digest: [u8; 16],
    caller: [u8; 8],
    key: [u8; 8],
    updated_at: u64,
    name_hash: [u8; 8],
    pub(crate) operation: Bytes,
}

impl Head {
    /// Reads a value up to the entry; `None` if it is foreign.
    pub(crate) fn read(value: &Bytes) -> Option<(Self, Bytes)> {
        let take = |from: usize, to: usize| value.get(from..to);
        let number = |from: usize| Some(u64::from_be_bytes(take(from, from + 8)?.try_into().ok()?));
        let length = usize::try_from(u32::from_be_bytes(take(122, 126)?.try_into().ok()?)).ok()?;
        let end = HEAD_BYTES.checked_add(length).filter(|end| *end <= value.len())?;
        let head = Self {
            state: value[0].checked_sub(b'0').filter(|state| *state <= MARKER)?,
            id: CommandId::from_bytes(take(25, 57)?.try_into().ok()?),
            digest: take(57, 73)?.try_into().ok()?,
            caller: take(90, 98)?.try_into().ok()?,
            key: take(98, 106)?.try_into().ok()?,
            updated_at: number(106)?,
            name_hash: take(114, 122)?.try_into().ok()?,
            operation: value.slice(HEAD_BYTES..end),
        };
        Some((head, value.slice(end..)))
    }

    /// The digest of the entry, as the scripts compute it.
    pub(crate) fn digest_text(&self) -> String {
        String::from_utf8_lossy(&self.digest).into_owned()
    }

    pub(crate) fn state_name(&self) -> Option<StateName> {
        StateName::from_number(self.state)
    }

    /// Whether the entry is the one that was written with this head.
    pub(crate) fn is_of(&self, entry: &[u8]) -> bool {
        sha1_hex(entry).as_bytes()[..16] == self.digest
    }

    /// Whether the record may match. A damaged entry may be the one that is searched for, so the head
    /// excludes only by fields that every store trusts.
    pub(crate) fn may_be_wanted(&self, filter: &Filter) -> bool {
        let first = |hash: &[u8; 32]| first_bytes(hash);
        self.state != MARKER
            && filter.state.is_none_or(|state| state.number() == self.state)
            && filter.operation.as_ref().is_none_or(|operation| name_hash(operation) == self.name_hash)
            && filter.caller.is_none_or(|callers| {
                (first(callers.first.as_bytes())..=first(callers.last.as_bytes())).contains(&self.caller)
            })
            && filter.key.is_none_or(|hash| key(&hash) == self.key)
            && filter.updated_from.is_none_or(|from| self.updated_at >= from.as_millis())
            && filter.updated_before.is_none_or(|before| self.updated_at < before.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_spread_over_all_buckets_by_their_prefix() {
        let layout = Layout::new("semel", 64);
        let mut seen = std::collections::BTreeSet::new();
        for first in 0..=u8::MAX {
            let mut bytes = [first; 16];
            let bucket = layout.bucket(OperationId::from_bytes(bytes));
            bytes[2..].fill(0);
            assert_eq!(layout.bucket(OperationId::from_bytes(bytes)), bucket);
            seen.insert(bucket);
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), layout.buckets().collect::<Vec<_>>());
        assert_eq!(Layout::new("semel", 1).bucket(OperationId::from_bytes([255; 16])), 0);
    }

    #[test]
    fn a_record_and_its_index_keys_share_a_hash_tag() {
        let layout = Layout::new("pay", 16);
        let id = OperationId::from_bytes([0xab; 16]);
        let bucket = layout.bucket(id);
        let tag = format!("{{pay:{bucket}}}");
        for key in [
            layout.record(id),
            layout.list(bucket, 3),
            layout.due(bucket),
            layout.callers(bucket),
            layout.proof(bucket),
            layout.marker(bucket),
        ] {
            assert!(key.starts_with(tag.as_bytes()), "{}", String::from_utf8_lossy(&key));
        }
        assert_eq!(layout.slot(bucket), slot_of(&format!("pay:{bucket}")));
    }

    #[test]
    fn a_marker_is_read_as_one() {
        let id = CommandId::from_bytes([7; 32]);
        let (head, entry) = Head::read(&marker(id).into()).expect("a head");
        assert_eq!((head.state, head.id, head.state_name()), (MARKER, id, None));
        assert!(head.is_of(&entry) && !head.is_of(b""));
        assert_eq!(codec::decode(&entry), Ok(Entry::Moved));
        assert_eq!(Head::read(&Bytes::from_static(b"somebody else's")), None);
    }
}
