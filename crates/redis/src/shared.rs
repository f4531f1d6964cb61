//! What every question needs: the servers, the names of keys, the time.

use crate::address::{Address, BUCKETS};
use crate::fault::Fault;
use crate::layout::{Head, Layout, MARKER};
use crate::resp::Value;
use crate::scripts;
use crate::servers::{Effect, Servers};
use bytes::Bytes;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::store::{Clock, Error, Item, Kind, Reading, Setting};
use semel_core::time::Time;
use std::sync::Arc;
use tokio::sync::Semaphore;

pub(crate) const READING: &str = "reading from Redis";
const OPENING: &str = "opening the Redis store";
/// How keys and values are laid out. A store with a higher number is a newer build's.
const FORMAT: &str = "1";
/// How many entries are read and decoded at once: they are as long as the responses in them.
const TURNS: usize = 16;

pub(crate) struct Shared {
    pub(crate) address: Arc<Address>,
    pub(crate) layout: Layout,
    pub(crate) writes: Servers,
    /// Apart from what writes, so that a long list delays no claim; none where what is read has to be confirmed like a write.
    reads: Option<Servers>,
    pub(crate) turns: Semaphore,
    clock: Option<Arc<dyn Clock>>,
}

/// What a value is, of which only the owner of the key is known for sure.
pub(crate) struct Stored {
    pub(crate) head: Option<Head>,
    pub(crate) entry: Bytes,
}

impl Stored {
    pub(crate) fn of(value: &Bytes) -> Self {
        // A value that is not even Semel's cannot be read either: no entry is empty.
        Head::read(value).map_or(Self { head: None, entry: Bytes::new() }, |(head, entry)| Self {
            head: Some(head),
            entry,
        })
    }
}

impl Shared {
    /// Opens the store that the address names. Makes one where there is none, unless it is only looked at.
    pub(crate) async fn open(address: Address, clock: Option<Arc<dyn Clock>>) -> Result<Self, Error> {
        let address = Arc::new(address);
        let writes = Servers::connect(&address, true).await?;
        let is_confirmed = address.confirmation.is_wanted();
        let reads = if is_confirmed { None } else { Some(Servers::connect(&address, false).await?) };
        let mut shared = Self {
            layout: Layout::new(&address.prefix, 0),
            address,
            writes,
            reads,
            turns: Semaphore::new(TURNS),
            clock,
        };
        let buckets = shared.agreed_buckets().await?;
        shared.layout = Layout::new(&shared.address.prefix, buckets);
        if !shared.address.any_server {
            shared.probe().await?;
        }
        Ok(shared)
    }

    /// Whether there is a store with this prefix.
    pub(crate) async fn exists(address: Address) -> Result<bool, Error> {
        let address = Arc::new(address);
        let layout = Layout::new(&address.prefix, 0);
        let writes = Servers::connect(&address, false).await?;
        let turns = Semaphore::new(TURNS);
        Ok(Self { address, layout, writes, reads: None, turns, clock: None }.meta().await?.is_some())
    }

    /// How many buckets the store has, and whether this build understands it. What was there first is binding.
    async fn agreed_buckets(&self) -> Result<u16, Error> {
        let unfit = |cause: String| Error::new(Kind::Unfit, OPENING).because(cause);
        let (format, buckets) = if self.address.any_server {
            self.meta().await?.ok_or_else(|| unfit("there is no store with this prefix".to_owned()))?
        } else {
            let (slot, key) = self.layout.of_store("meta");
            let wanted = self.address.buckets.unwrap_or(BUCKETS).to_string();
            let arguments = [FORMAT.as_bytes(), wanted.as_bytes()];
            let asked = self.writes.run(slot, &scripts::META, Effect::Writes, &[&key], &arguments).await;
            let answer = asked.map_err(|fault| fault.error(OPENING))?;
            match answer.array() {
                [status, format, buckets] if status.text() == Some("found") => (text(format), text(buckets)),
                _ => return Err(odd(&answer)),
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

    /// The format and the number of buckets; nothing where there is no store.
    pub(crate) async fn meta(&self) -> Result<Option<(String, String)>, Error> {
        let (slot, key) = self.layout.of_store("meta");
        let question = crate::resp::command(&[b"HMGET", &key, b"format", b"buckets"]);
        let answer =
            self.reading().ask(slot, question, Effect::Reads).await.map_err(|fault| fault.error(OPENING))?;
        match answer.array() {
            [Value::Nil, _] => Ok(None),
            [format, buckets] => Ok(Some((text(format), text(buckets)))),
            _ => Err(odd(&answer)),
        }
    }

    /// Whether the store's user may do all that the scripts do. Without it, a right that is missing would end a write half-way.
    async fn probe(&self) -> Result<(), Error> {
        let (slot, key) = self.layout.of_store("probe");
        let keys: Vec<Vec<u8>> =
            ["1", "2", "3"].iter().map(|number| [&key[..], number.as_bytes()].concat()).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        // Nothing of it is left behind, whatever becomes of its answer.
        match self.writes.run(slot, &scripts::PROBE, Effect::Reads, &keys, &[]).await {
            Ok(_) => Ok(()),
            Err(fault) => {
                let error = fault.error("trying out what the store's user may do on Redis");
                let Some(line) = scripts::PROBE.line_named_in(&error.to_string()) else { return Err(error) };
                let cause = format!("the user may not run `{line}`; give it the rights that the guide names");
                Err(Error::new(Kind::Unfit, "trying out what the store's user may do on Redis")
                    .because(cause))
            }
        }
    }

    /// Who is asked what changes nothing.
    pub(crate) fn reading(&self) -> &Servers {
        self.reads.as_ref().unwrap_or(&self.writes)
    }

    /// How much a server has to prove before it is believed.
    pub(crate) fn proof(&self) -> &'static [u8] {
        match (self.address.any_server, &self.reads) {
            (true, _) => b"",
            (false, Some(_)) => b"0",
            (false, None) => b"1",
        }
    }

    /// The moment that an answer names by seconds and microseconds.
    pub(crate) fn time(&self, seconds: &Value, micros: &Value) -> Time {
        if let Some(clock) = &self.clock {
            return clock.now();
        }
        let number =
            |value: &Value| value.number().and_then(|number| u64::try_from(number).ok()).unwrap_or(0);
        Time::from_millis(number(seconds) * 1000 + number(micros) / 1000)
    }

    /// The time that was handed in instead of the server's.
    pub(crate) fn replaced_time(&self) -> Option<Time> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// What stands under an operation id.
    pub(crate) async fn stored(&self, id: OperationId) -> Result<(Time, Option<Stored>), Error> {
        let bucket = self.layout.bucket(id);
        let (record, proof) = (self.layout.record(id), self.layout.proof(bucket));
        let keys: [&[u8]; 2] = [&record, &proof];
        let _turn = self.turns.acquire().await.map_err(|_| Error::new(Kind::Closed, READING))?;
        let asked = self
            .reading()
            .run(self.layout.slot(bucket), &scripts::GET, Effect::Reads, &keys, &[self.proof()])
            .await;
        let answer = asked.map_err(|fault| fault.error(READING))?;
        match answer.array() {
            [status, seconds, micros, value] if status.text() == Some("found") => {
                Ok((self.time(seconds, micros), value.bytes().map(Stored::of)))
            }
            _ => Err(odd(&answer)),
        }
    }

    pub(crate) async fn get(&self, id: CommandId) -> Result<Reading, Error> {
        let (now, stored) = self.stored(OperationId::of(&id)).await?;
        reading(now, id, stored)
    }

    pub(crate) async fn find(&self, operation_id: OperationId) -> Result<(Time, Option<Item>), Error> {
        let (now, stored) = self.stored(operation_id).await?;
        let Some(Stored { head: Some(head), entry }) = stored else { return Ok((now, None)) };
        if OperationId::of(&head.id) != operation_id {
            return Err(other_command());
        }
        let item = Item { id: head.id, entry: codec::decode(&entry) };
        Ok((now, (head.state != MARKER).then_some(item)))
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
            _ => Err(odd(&answer)),
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
            _ => Err(odd(&answer)),
        }
    }

    /// Lets nothing more in, and ends as soon as what was asked is answered.
    pub(crate) async fn close(&self) {
        self.turns.close();
        self.writes.close().await;
        if let Some(reads) = &self.reads {
            reads.close().await;
        }
    }
}

pub(crate) fn reading(now: Time, id: CommandId, stored: Option<Stored>) -> Result<Reading, Error> {
    match stored {
        None => Ok(Reading::nothing(now)),
        Some(Stored { head: Some(head), .. }) if head.id != id => Err(other_command()),
        Some(Stored { entry, .. }) => Ok(Reading { now, entry: Some(codec::decode(&entry)) }),
    }
}

pub(crate) fn text(value: &Value) -> String {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// Two commands cannot share an operation id, unless somebody changed the data.
fn other_command() -> Error {
    Error::new(Kind::Unfit, "looking up a command in Redis").because(
        "another command's id stands under this operation id; it was left as it is. Restore the data from a backup, or find out what \
         the command did and remove the key by hand",
    )
}

/// A key that holds something else than Semel's, or an answer that nobody asked for. The scripts checked it before they changed anything.
pub(crate) fn odd(answer: &Value) -> Error {
    let fault = match answer.array() {
        [status, key] if status.text() == Some("type") => Fault::new(
            Kind::Unfit,
            format!("the key {} holds something that Semel did not write; nothing was changed", text(key)),
        ),
        _ => Fault::new(Kind::Ambiguous, "the server's answer is not one to what it was asked"),
    };
    fault.error("asking Redis")
}
