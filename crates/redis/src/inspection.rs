//! A store that is opened read-only.

use crate::address::Address;
use crate::expiry::Expiries;
use crate::hazards;
use crate::layout::{Head, MARKER, MARKER_NAME};
use crate::resp::{self, Value, text};
use crate::servers::Effect;
use crate::shared::{Shared, Stored};
use crate::store::capabilities;
use bytes::Bytes;
use futures_util::future::try_join_all;
use semel_core::codec;
use semel_core::id::{CommandId, OperationId};
use semel_core::record::{Entry, Record, StateName};
use semel_core::store::{
    Capabilities, Census, Change, Count, Counted, Cursor, Error, Filter, Hazard, Inspection, Item, Kind,
    Page, Pending, Reading, SchemaVersion, Setting, Store, StoreSize, Tally, Written,
};
use semel_core::time::Time;
use thiserror::Error as ThisError;

/// How many findings a verification reports.
const FINDINGS_MAX: usize = 100;
/// How often a record is read again if it is written concurrently.
const READS_MAX: u32 = 5;
/// About how many keys one step of a verification reads.
const STEP: &[u8] = b"500";

/// A store opened for reading; a replica is sufficient. Nodes may have it open, and write.
pub(crate) struct Inspected {
    name: String,
    shared: Shared,
    expiries: Expiries,
}

impl Inspected {
    pub(crate) async fn open(name: String, address: Address) -> Result<Self, Error> {
        let shared = Shared::open(address.for_reading(), None).await?;
        Ok(Self { name, shared, expiries: Expiries::default() })
    }

    /// Reads every record of one server.
    async fn verify_server(&self, link: &crate::link::Link, findings: &mut Vec<String>) -> Result<(), Error> {
        let lost = |failure| Error::new(Kind::Unavailable, "verifying the Redis store").because(failure);
        let connection = link.connection().await?;
        let pattern = format!("{{{}:*}}r:*", self.shared.address.prefix);
        let mut cursor = "0".to_owned();
        loop {
            let scan = [&b"SCAN"[..], cursor.as_bytes(), b"MATCH", pattern.as_bytes(), b"COUNT", STEP];
            let Value::Array(answer) = connection.ask(resp::command(&scan), 0).await.map_err(lost)? else {
                return Err(Error::new(Kind::Unfit, "verifying the Redis store").because("SCAN was refused"));
            };
            for key in answer.get(1).map(Value::array).unwrap_or_default() {
                if findings.len() >= FINDINGS_MAX {
                    return Ok(());
                }
                findings.extend(self.verify_record(&text(key)).await?);
            }
            cursor = answer.first().map(text).unwrap_or_default();
            if cursor == "0" || cursor.is_empty() {
                return Ok(());
            }
        }
    }

    /// The problem of a record: in its entry, or that it is missing in the list of its state.
    async fn verify_record(&self, key: &str) -> Result<Option<String>, Error> {
        let digits = key.rsplit(':').next().unwrap_or_default();
        let Ok(operation_id) = dashed(digits).parse::<OperationId>() else {
            return Ok(Some(format!("{key}: not a key of Semel's")));
        };
        let mut unlisted = None;
        // A record that is written between the two commands is in another list by then. It is missing only if
        // it is unchanged.
        for _ in 0..READS_MAX {
            let stored = match self.shared.stored(operation_id).await {
                Ok((_, stored)) => stored,
                // The key holds something other than a record; the others are still checked.
                Err(error) if error.kind() == Kind::Unfit => return Ok(Some(format!("{key}: {error}"))),
                Err(error) => return Err(error),
            };
            let Some(stored) = stored else { return Ok(None) };
            let (head, created_at) = match check(operation_id, stored) {
                Ok(checked) => checked,
                Err(what) => return Ok(Some(format!("operation {operation_id}: {what}"))),
            };
            if self.is_listed(operation_id, head.state, created_at).await? {
                return Ok(None);
            }
            if unlisted.as_ref() == Some(&head) {
                return Ok(Some(format!("operation {operation_id}: the list of its state does not have it")));
            }
            unlisted = Some(head);
        }
        Ok(None)
    }

    /// Whether the list of a state contains a record. A foreign list is reported separately.
    async fn is_listed(&self, operation_id: OperationId, state: u8, created_at: Time) -> Result<bool, Error> {
        let bucket = self.shared.layout.bucket(operation_id);
        let position = [&created_at.as_millis().to_be_bytes()[..], operation_id.as_bytes()].concat();
        let list = self.shared.layout.list(bucket, state);
        let question = resp::command(&[b"ZSCORE", &list, &position]);
        let slot = self.shared.layout.slot(bucket);
        let asked = self.shared.reading().ask(slot, question, Effect::Reads).await;
        match asked {
            Ok(listed) => Ok(listed != Value::Nil),
            Err(fault) if fault.is_wrong_type() => Ok(true),
            Err(fault) => Err(fault.error("verifying the Redis store")),
        }
    }
}

/// What is wrong with an entry.
#[derive(Debug, ThisError)]
enum Damage {
    #[error("not a record of Semel's")]
    Foreign,
    #[error("another command's record is stored under its key")]
    OtherCommand,
    #[error("its bytes are not those that were written")]
    Altered,
    #[error(transparent)]
    Unreadable(#[from] codec::Error),
}

/// The head of an intact entry, and when the record was created.
fn check(operation_id: OperationId, stored: Stored) -> Result<(Head, Time), Damage> {
    let head = stored.head.ok_or(Damage::Foreign)?;
    if OperationId::of(&head.id) != operation_id {
        return Err(Damage::OtherCommand);
    }
    if !head.is_of(&stored.entry) {
        return Err(Damage::Altered);
    }
    match codec::decode(&stored.entry)? {
        Entry::Record(record) => Ok((head, record.created_at())),
        Entry::Moved => Ok((head, Time::from_millis(0))),
    }
}

impl Inspected {
    /// Keys of the store that have another type: foreign keys.
    async fn verify_types(&self, findings: &mut Vec<String>) -> Result<(), Error> {
        let layout = &self.shared.layout;
        let (slot, _) = layout.of_store("meta");
        let of_store = [("meta", "hash"), ("settings", "hash"), (MARKER_NAME, "string")];
        let mut keys: Vec<_> =
            of_store.map(|(name, expected)| (slot, layout.of_store(name).1, expected)).to_vec();
        for bucket in layout.buckets() {
            let slot = layout.slot(bucket);
            keys.extend((0..=MARKER).map(|state| (slot, layout.list(bucket, state), "zset")));
            keys.extend([
                (slot, layout.due(bucket), "zset"),
                (slot, layout.callers(bucket), "hash"),
                (slot, layout.marker(bucket), "string"),
            ]);
        }
        let each = keys.iter().map(|(slot, key, _)| {
            self.shared.reading().ask(*slot, resp::command(&[b"TYPE", key]), Effect::Reads)
        });
        let types = try_join_all(each).await.map_err(|fault| fault.error("verifying the Redis store"))?;
        for ((_, key, expected), actual) in keys.iter().zip(types) {
            let actual = text(&actual);
            if actual != "none" && actual != *expected {
                let key = String::from_utf8_lossy(key);
                findings.push(format!(
                    "{key}: holds a {actual} that Semel did not write (a {expected} is wanted); what it listed is left out here, and gateways \
                     cannot write to its part of the store"
                ));
            }
        }
        Ok(())
    }
}

/// 32 hexadecimal digits, formatted as an operation ID.
fn dashed(digits: &str) -> String {
    let at = |from: usize, to: usize| digits.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", at(0, 8), at(8, 12), at(12, 16), at(16, 20), at(20, 32))
}

fn refused<'a, T>() -> Pending<'a, T> {
    Box::pin(async { Err(Error::new(Kind::ReadOnly, "writing to a store that was opened for reading only")) })
}

impl Store for Inspected {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn capabilities(&self) -> Capabilities {
        capabilities(&self.shared)
    }

    fn hazards(&self) -> Pending<'_, Vec<Hazard>> {
        Box::pin(hazards::find(&self.shared, &self.expiries, false))
    }

    fn check(&self) -> Pending<'_, ()> {
        Box::pin(self.shared.check())
    }

    fn write<'a>(&'a self, _: CommandId, _: Change<&'a Record>) -> Pending<'a, Written> {
        refused()
    }

    fn get(&self, id: CommandId) -> Pending<'_, Reading> {
        Box::pin(self.shared.get(id))
    }

    fn find(&self, operation_id: OperationId) -> Pending<'_, (Time, Option<Item>)> {
        Box::pin(self.shared.find(operation_id))
    }

    fn page<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.shared.page(filter, after, limit))
    }

    fn due<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.shared.due(after, limit))
    }

    fn markers<'a>(&'a self, after: Option<&'a Cursor>, limit: usize) -> Pending<'a, Page> {
        Box::pin(self.shared.markers(after, limit))
    }

    fn count(&self, what: Count, at_most: u64) -> Pending<'_, Counted> {
        Box::pin(self.shared.count(what, at_most))
    }

    fn census(&self) -> Pending<'_, Census> {
        Box::pin(self.shared.census())
    }

    fn tally<'a>(
        &'a self,
        state: Option<StateName>,
        after: Option<&'a Cursor>,
        limit: usize,
    ) -> Pending<'a, Tally> {
        Box::pin(self.shared.tally(state, after, limit))
    }

    fn settings(&self) -> Pending<'_, Vec<(String, Bytes)>> {
        Box::pin(self.shared.settings())
    }

    fn set<'a>(&'a self, _: &'a str, _: Option<&'a [u8]>, _: Option<&'a [u8]>) -> Pending<'a, Setting> {
        refused()
    }
}

impl Inspection for Inspected {
    /// There are no tables; opening has checked the format.
    fn schema(&self) -> Pending<'_, SchemaVersion> {
        Box::pin(std::future::ready(Ok(SchemaVersion { have: 0, wanted: 0 })))
    }

    fn verify(&self) -> Pending<'_, Vec<String>> {
        Box::pin(async move {
            let mut findings = Vec::new();
            self.verify_types(&mut findings).await?;
            for link in self.shared.reading().all() {
                self.verify_server(&link, &mut findings).await?;
            }
            if findings.len() >= FINDINGS_MAX {
                findings.push(format!("the verification stopped after {FINDINGS_MAX} findings"));
            }
            Ok(findings)
        })
    }

    fn is_replica(&self) -> Pending<'_, bool> {
        Box::pin(async move {
            for link in self.shared.reading().all() {
                if link.connection().await?.greeting.is_replica {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// The server reports only the total of all its databases.
    fn size(&self) -> StoreSize {
        StoreSize::default()
    }
}
