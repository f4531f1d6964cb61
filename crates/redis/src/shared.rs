//! The state that all operations share: the servers, the names of keys, the clock.

use crate::address::{Address, BUCKETS};
use crate::fault::Fault;
use crate::fence::Fence;
use crate::layout::{self, Head, Layout};
use crate::resp::Value;
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
const OPENING: &str = "opening the Redis store";
/// The version of the layout of keys and values. A store with a higher one was made by a newer build.
const FORMAT: &str = "1";
/// Longer values are not read by scripts.
const READ_BYTES_MAX: &[u8] = b"65536";
/// How often a long value is read again while it is being written.
const LARGE_READS_MAX: u32 = 5;
/// How many entries are read and decoded at once: they can be as large as responses.
const CONCURRENT_READS_MAX: usize = 16;

pub(crate) struct Shared {
    pub(crate) address: Arc<Address>,
    pub(crate) layout: Layout,
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
        let address = Arc::new(address);
        let layout = Layout::new(&address.prefix, 0);
        let fence = Arc::new(Fence::new(layout.of_store("meta").1));
        let passed = (!address.any_server).then_some(&fence);
        rights::check_confirmation(&address).await?;
        let writes = Servers::connect(&address, true, passed).await?;
        let is_confirmed = address.confirmation.is_wanted();
        let reads = if is_confirmed { None } else { Some(Servers::connect(&address, false, passed).await?) };
        let mut shared = Self {
            layout,
            address,
            writes,
            fence,
            reads,
            read_permits: Semaphore::new(CONCURRENT_READS_MAX),
            clock,
        };
        if !shared.address.any_server {
            rights::check(&shared).await?;
        }
        let buckets = shared.agreed_buckets().await?;
        shared.layout = Layout::new(&shared.address.prefix, buckets);
        Ok(shared)
    }

    /// Whether there is a store with this prefix.
    pub(crate) async fn exists(address: Address) -> Result<bool, Error> {
        let address = Arc::new(address);
        let layout = Layout::new(&address.prefix, 0);
        let writes = Servers::connect(&address, false, None).await?;
        let fence = Arc::new(Fence::new(Vec::new()));
        let read_permits = Semaphore::new(CONCURRENT_READS_MAX);
        Ok(Self { address, layout, writes, fence, reads: None, read_permits, clock: None }
            .meta()
            .await?
            .is_some())
    }

    /// The number of buckets of the store, and whether this build supports its format. An existing store
    /// keeps its number.
    async fn agreed_buckets(&self) -> Result<u16, Error> {
        let unfit = |cause: String| Error::new(Kind::Unfit, OPENING).because(cause);
        let (format, buckets) = if self.address.any_server {
            self.meta().await?.ok_or_else(|| unfit("there is no store with this prefix".to_owned()))?
        } else {
            let (slot, key) = self.layout.of_store("meta");
            let buckets = self.address.buckets.unwrap_or(BUCKETS).to_string();
            let arguments = [FORMAT.as_bytes(), buckets.as_bytes()];
            let asked = self.writes.run(slot, &scripts::META, Effect::Writes, &[&key], &arguments).await;
            let answer = asked.map_err(|fault| fault.error(OPENING))?;
            match answer.array() {
                [status, format, buckets, epoch] if status.text() == Some("found") => {
                    self.fence.opened(text(epoch).parse().unwrap_or(0)).await;
                    (text(format), text(buckets))
                }
                _ => return Err(unexpected(&answer)),
            }
        };
        if format != FORMAT {
            return Err(unfit(format!(
                "the store has format `{format}`, and this build knows {FORMAT}: upgrade this node"
            )));
        }
        let buckets: u16 =
            buckets.parse().map_err(|_| unfit(format!("the store has `{buckets}` buckets")))?;
        match self.address.buckets {
            Some(chosen) if chosen != buckets => Err(unfit(format!(
                "the store has {buckets} buckets, and its URL says buckets={chosen}: records would be looked for where they are \
                 not. Take the parameter out; the number of a store's buckets cannot be changed"
            ))),
            _ => Ok(buckets),
        }
    }

    /// The format and the number of buckets; none if there is no store.
    pub(crate) async fn meta(&self) -> Result<Option<(String, String)>, Error> {
        let (slot, key) = self.layout.of_store("meta");
        let question = crate::resp::command(&[b"HMGET", &key, b"format", b"buckets"]);
        let answer =
            self.reading().ask(slot, question, Effect::Reads).await.map_err(|fault| fault.error(OPENING))?;
        match answer.array() {
            [Value::Nil, _] => Ok(None),
            [format, buckets] => Ok(Some((text(format), text(buckets)))),
            _ => Err(unexpected(&answer)),
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
        let bucket = self.layout.bucket(id);
        let (record, proof) = (self.layout.record(id), self.layout.proof(bucket));
        let keys: [&[u8]; 2] = [&record, &proof];
        let _permit = self.read_permits.acquire().await.map_err(|_| Error::new(Kind::Closed, READING))?;
        let arguments = [self.proof(), READ_BYTES_MAX];
        for _ in 0..LARGE_READS_MAX {
            let slot = self.layout.slot(bucket);
            let asked = self.reading().run(slot, &scripts::GET, Effect::Reads, &keys, &arguments).await;
            let answer = asked.map_err(|fault| fault.error(READING))?;
            match answer.array() {
                [status, seconds, micros, value] if status.text() == Some("found") => {
                    return Ok((self.time(seconds, micros), value.bytes().map(Stored::of)));
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

    pub(crate) async fn settings(&self) -> Result<Vec<(String, Bytes)>, Error> {
        let (slot, key) = self.layout.of_store("settings");
        let (_, proof) = self.layout.of_store("proof");
        let keys: [&[u8]; 2] = [&key, &proof];
        let asked = self.reading().run(slot, &scripts::SET, Effect::Reads, &keys, &[self.proof()]).await;
        let answer = asked.map_err(|fault| fault.error("reading the settings from Redis"))?;
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
        let (slot, key) = self.layout.of_store("settings");
        let (_, proof) = self.layout.of_store("proof");
        let is_there = |value: Option<&[u8]>| if value.is_some() { &b"1"[..] } else { b"0" };
        let arguments: [&[u8]; 6] = [
            self.proof(),
            name.as_bytes(),
            is_there(expect),
            expect.unwrap_or_default(),
            is_there(next),
            next.unwrap_or_default(),
        ];
        let asked = self.writes.run(slot, &scripts::SET, Effect::Writes, &[&key, &proof], &arguments).await;
        let answer = asked.map_err(|fault| fault.error("writing a setting to Redis"))?;
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

pub(crate) fn text(value: &Value) -> String {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// A foreign value under a key, or an unexpected answer. The scripts check this before they change anything.
pub(crate) fn unexpected(answer: &Value) -> Error {
    let fault = match answer.array() {
        [status, key] if status.text() == Some("type") => Fault::new(
            Kind::Unfit,
            format!("the key {} holds something that Semel did not write; nothing was changed", text(key)),
        ),
        _ => Fault::new(Kind::Ambiguous, "the server's answer is not one to what it was asked"),
    };
    fault.error("asking Redis")
}
