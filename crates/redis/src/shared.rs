//! The state that all operations share: the servers, the names of keys, the clock.

use crate::address::Address;
use crate::fault::unexpected;
use crate::fence::Fence;
use crate::layout::{self, Head, Layout, MARKER_NAME};
use crate::resp::{Value, text};
use crate::rights;
use crate::scripts;
use crate::servers::{Effect, Servers};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::Entry;
use semel_core::store::{Clock, Error, Item, Kind, Reading, Setting};
use semel_core::time::Time;
use std::sync::Arc;
use tokio::sync::Semaphore;

pub(crate) const READING: &str = "reading from Redis";
pub(crate) const OPENING: &str = "opening the Redis store";
/// The version of the layout of keys and values. A store with a higher one was made by a newer build.
pub(crate) const FORMAT: &str = "1";
/// Longer values are not read by scripts.
const READ_BYTES_MAX: &[u8] = b"65536";
/// How often a long value is read again while it is being written.
const LARGE_READS_MAX: u32 = 5;
/// How many KiB of entries are read and decoded at once: they can be as large as responses.
const READ_KIB_MAX: usize = 1024;
/// What a read takes of these if the length of its entry is not known, or greater.
const UNKNOWN_LENGTH_KIB: u32 = 64;

pub(crate) struct Shared {
    pub(crate) address: Arc<Address>,
    pub(crate) layout: Layout,
    /// Which store the servers must have; empty for an inspection of a store without one.
    pub(crate) identity: String,
    pub(crate) writes: Servers,
    pub(crate) fence: Arc<Fence>,
    /// Separate from writes, so that a long list delays no claim; none if reads must be confirmed like
    /// writes.
    reads: Option<Servers>,
    pub(crate) read_permits: Semaphore,
    clock: Option<Arc<dyn Clock>>,
}

/// A stored value. Only its owner trusts it completely.
pub(crate) struct Stored {
    pub(crate) head: Option<Head>,
    pub(crate) entry: Bytes,
    /// The stored command ID, damaged or not.
    id: CommandId,
    /// How long the value is.
    bytes: usize,
}

impl Stored {
    pub(crate) fn of(value: &Bytes) -> Self {
        let id = layout::command_id_in(value);
        // A foreign value cannot be read either: no entry is empty.
        let (head, entry) =
            Head::read(value).map_or((None, Bytes::new()), |(head, entry)| (Some(head), entry));
        Self { head, entry, id, bytes: value.len() }
    }

    /// The digest and the length of the value, if its entry is intact.
    pub(crate) fn integrity_proof(&self) -> Option<String> {
        let head = self.head.as_ref().filter(|head| head.is_of(&self.entry))?;
        Some(format!("{}{}", head.digest_text(), self.bytes))
    }

    /// As listed under an operation ID. One with a damaged head is present and unreadable.
    pub(crate) fn item(self, operation_id: OperationId) -> Item {
        let is_its_own = self.head.is_some() && OperationId::of(&self.id) == operation_id;
        Item { id: self.id, entry: if is_its_own { codec::decode(&self.entry) } else { Err(OTHER_COMMAND) } }
    }
}

/// Two commands cannot share an operation ID, unless the data was changed manually. The record is present and
/// unreadable.
const OTHER_COMMAND: codec::Error =
    codec::Error::Damaged { at: 0, what: "the fields before the entry are not this command's" };

impl Shared {
    /// Opens the store that the address names. Creates it if it does not exist, unless it is opened for
    /// reading.
    pub(crate) async fn open(address: Address, clock: Option<Arc<dyn Clock>>) -> Result<Self, Error> {
        let mut shared = Self::connect(address, clock).await?;
        let (buckets, identity) = shared.agreed().await?;
        shared.layout = Layout::new(&shared.address.prefix, buckets);
        shared.identity = identity;
        Ok(shared)
    }

    /// Connects to the servers, and checks what the user may do there.
    pub(crate) async fn connect(address: Address, clock: Option<Arc<dyn Clock>>) -> Result<Self, Error> {
        let address = Arc::new(address);
        let layout = Layout::new(&address.prefix, 0);
        let fence = Arc::new(Fence::new(layout.of_store("meta").1));
        let passed = (!address.any_server).then_some(&fence);
        rights::check_confirmation(&address).await?;
        let writes = Servers::connect(&address, true, passed).await?;
        let is_confirmed = address.confirmation.is_wanted();
        let reads = if is_confirmed { None } else { Some(writes.connect_again(false, passed).await?) };
        let shared = Self {
            layout,
            identity: String::new(),
            address,
            writes,
            fence,
            reads,
            read_permits: Semaphore::new(READ_KIB_MAX),
            clock,
        };
        if !shared.address.any_server {
            rights::check(&shared.layout, &shared.writes).await?;
        }
        Ok(shared)
    }

    /// Whether there is a store with this prefix, or a part of one.
    pub(crate) async fn exists(address: Address) -> Result<bool, Error> {
        let address = Arc::new(address);
        let layout = Layout::new(&address.prefix, 0);
        let writes = Servers::connect(&address, false, None).await?;
        let fence = Arc::new(Fence::new(Vec::new()));
        let (identity, read_permits) = (String::new(), Semaphore::new(READ_KIB_MAX));
        let shared =
            Self { address, layout, identity, writes, fence, reads: None, read_permits, clock: None };
        Ok(shared.meta().await?.is_some() || shared.some_part_is_left().await?)
    }

    /// The number of buckets of the store and its identity, if this build supports its format. An existing
    /// store keeps both.
    async fn agreed(&self) -> Result<(u16, String), Error> {
        let unfit = |cause: String| Error::new(Kind::Unfit, OPENING).because(cause);
        let meta = if self.address.any_server {
            let found = self.meta().await?;
            if !found.as_ref().is_some_and(|meta| meta.is_complete) {
                self.check_nothing_is_left().await?;
            }
            let Some(meta) = found else {
                return Err(unfit("there is no store with this prefix".to_owned()));
            };
            meta
        } else {
            let meta = self.created().await?;
            self.fence.opened(meta.epoch).await;
            meta
        };
        if meta.format != FORMAT {
            let format = meta.format;
            return Err(unfit(format!(
                "the store has format `{format}`, and this build knows {FORMAT}: upgrade this node"
            )));
        }
        let buckets: u16 =
            meta.buckets.parse().map_err(|_| unfit(format!("the store has `{}` buckets", meta.buckets)))?;
        match self.address.buckets {
            Some(chosen) if chosen != buckets => Err(unfit(format!(
                "the store has {buckets} buckets, and its URL says buckets={chosen}: records would be looked for where they are \
                 not. Take the parameter out; the number of a store's buckets cannot be changed"
            ))),
            _ => Ok((buckets, if meta.is_complete { meta.identity } else { String::new() })),
        }
    }

    /// The servers for commands that change nothing.
    pub(crate) fn reading(&self) -> &Servers {
        self.reads.as_ref().unwrap_or(&self.writes)
    }

    /// What a server must prove before it is trusted.
    pub(crate) fn proof(&self) -> &'static [u8] {
        match (self.address.any_server, &self.reads) {
            (true, _) => b"",
            (false, Some(_)) => b"0",
            (false, None) => b"1",
        }
    }

    /// The time of an answer, from seconds and microseconds.
    pub(crate) fn time(&self, seconds: &Value, micros: &Value) -> Time {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        let number =
            |value: &Value| value.number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        Time::from_millis(number(seconds) * 1000 + number(micros) / 1000)
    }

    /// The time that was passed in instead of the server's.
    pub(crate) fn replaced_time(&self) -> Option<Time> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// The value under an operation ID.
    pub(crate) async fn stored(&self, id: OperationId) -> Result<(Time, Option<Stored>), Error> {
        self.stored_of_length(id, usize::MAX).await
    }

    /// The same for a value that was so long when it was listed. Short ones are read together: a server that syncs
    /// every write answers once per sync.
    pub(crate) async fn stored_of_length(
        &self,
        id: OperationId,
        bytes: usize,
    ) -> Result<(Time, Option<Stored>), Error> {
        let bucket = self.layout.bucket(id);
        let (record, proof, marker) =
            (self.layout.record(id), self.layout.proof(bucket), self.layout.marker(bucket));
        let keys: [&[u8]; 3] = [&record, &proof, &marker];
        let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX).saturating_add(1).min(UNKNOWN_LENGTH_KIB);
        let permits = self.read_permits.acquire_many(kib).await;
        let permits = permits.map_err(|_| Error::new(Kind::Closed, READING))?;
        let arguments = [self.proof(), READ_BYTES_MAX, self.identity.as_bytes()];
        for _ in 0..LARGE_READS_MAX {
            let (part, question) = ((self.reading(), bucket), (&keys[..], &arguments[..]));
            let answer = self.run_in_part(part, &scripts::GET, Effect::Reads, question, READING).await?;
            match answer.array() {
                [status, seconds, micros, value] if status.text() == Some("found") => {
                    return Ok((self.time(seconds, micros), value.bytes().map(Stored::of)));
                }
                [status, ..] if status.text() == Some("large") && kib < UNKNOWN_LENGTH_KIB => {
                    // It has grown since it was listed. Those that wait for more never hold any.
                    drop(permits);
                    return Box::pin(self.stored(id)).await;
                }
                [status, seconds, micros, guard] if status.text() == Some("large") => {
                    if let Some(stored) = self.large(id, guard).await? {
                        return Ok((self.time(seconds, micros), Some(stored)));
                    }
                }
                _ => return Err(unexpected(&answer)),
            }
        }
        Err(Error::new(Kind::Unavailable, READING)
            .because("the record is written faster than it can be read"))
    }

    /// A long value whose first bytes a server that takes writes has just returned. They contain its version
    /// and token, so an equal beginning means an equal value. `None` if it was written since.
    async fn large(&self, id: OperationId, guard: &Value) -> Result<Option<Stored>, Error> {
        let question = crate::resp::command(&[b"GET", &self.layout.record(id)]);
        let slot = self.layout.slot(self.layout.bucket(id));
        let asked = self.reading().ask(slot, question, Effect::Reads).await;
        let answer = asked.map_err(|fault| fault.error(READING))?;
        let is_same = |value: &&Bytes| guard.bytes().is_some_and(|guard| value.starts_with(guard));
        Ok(answer.bytes().filter(is_same).map(Stored::of))
    }

    pub(crate) async fn get(&self, id: CommandId) -> Result<Reading, Error> {
        let (now, stored) = self.stored(OperationId::of(&id)).await?;
        Ok(reading(now, id, stored))
    }

    pub(crate) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), Error> {
        let (now, stored) = self.stored(operation_id).await?;
        let item = stored.map(|stored| stored.item(operation_id));
        Ok((now, item.filter(|item| !matches!(item.entry, Ok(Entry::Moved)))))
    }

    /// The settings, their proof and their marker.
    fn settings_keys(&self) -> [Vec<u8>; 3] {
        ["settings", "proof", MARKER_NAME].map(|name| self.layout.of_store(name).1)
    }

    pub(crate) async fn settings(&self) -> Result<Vec<(String, Bytes)>, Error> {
        let keys = self.settings_keys();
        let keys = keys.each_ref().map(Vec::as_slice);
        let arguments = [self.proof(), self.identity.as_bytes()];
        let (part, question) = ((self.reading(), self.layout.buckets().end), (&keys[..], &arguments[..]));
        let context = "reading the settings from Redis";
        let answer = self.run_in_part(part, &scripts::SET, Effect::Reads, question, context).await?;
        match answer.array() {
            [status, found] if status.text() == Some("found") => {
                let pair = |pair: &[Value]| Some((text(pair.first()?), pair.get(1)?.bytes()?.clone()));
                Ok(found.array().chunks(2).filter_map(pair).collect())
            }
            _ => Err(unexpected(&answer)),
        }
    }

    pub(crate) async fn set(
        &self,
        name: &str,
        expect: Option<&[u8]>,
        next: Option<&[u8]>,
    ) -> Result<Setting, Error> {
        let keys = self.settings_keys();
        let keys = keys.each_ref().map(Vec::as_slice);
        let is_there = |value: Option<&[u8]>| if value.is_some() { &b"1"[..] } else { b"0" };
        let arguments: [&[u8]; 7] = [
            self.proof(),
            self.identity.as_bytes(),
            name.as_bytes(),
            is_there(expect),
            expect.unwrap_or_default(),
            is_there(next),
            next.unwrap_or_default(),
        ];
        let (part, question) = ((&self.writes, self.layout.buckets().end), (&keys[..], &arguments[..]));
        let context = "writing a setting to Redis";
        let answer = self.run_in_part(part, &scripts::SET, Effect::Writes, question, context).await?;
        match answer.array() {
            [status] if status.text() == Some("done") => Ok(Setting::Done),
            [status, found] if status.text() == Some("refused") => {
                Ok(Setting::Refused(found.bytes().cloned()))
            }
            _ => Err(unexpected(&answer)),
        }
    }

    /// Accepts no more commands, and returns when those sent are answered.
    pub(crate) async fn close(&self) {
        self.read_permits.close();
        self.writes.close().await;
        if let Some(reads) = &self.reads {
            reads.close().await;
        }
    }
}

pub(crate) fn reading(now: Time, id: CommandId, stored: Option<Stored>) -> Reading {
    let decoded = |stored: Stored| {
        if stored.id == id { codec::decode(&stored.entry) } else { Err(OTHER_COMMAND) }
    };
    Reading { now, entry: stored.map(decoded) }
}
