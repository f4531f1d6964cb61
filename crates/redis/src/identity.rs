//! The store's identity, which shows that the server has lost nothing.
//!
//! An emptied server looks like a new one, so every acknowledged command would run again. Each bucket, and the
//! settings, hold a marker: a key with the store's identity. The scripts compare it before they write, and before they
//! report that nothing was found. The markers are written once, while the store is created. After that, a missing one
//! means that the records beside it are gone too.

use crate::address::BUCKETS;
use crate::fault::{Fault, unexpected};
use crate::layout::Layout;
use crate::random;
use crate::resp::{self, Value, text};
use crate::scripts::{self, Script};
use crate::servers::{Effect, Servers};
use crate::shared::{FORMAT, OPENING, Shared};
use futures_util::future::try_join_all;
use semel_core::store::{Error, Kind};
use std::time::Duration;
use tokio::time::sleep;

const CHECKING: &str = "checking that the Redis store has lost nothing";
/// How long another node that creates the store may make no progress before this one takes over, and how often to look.
const CREATION_WAIT: Duration = Duration::from_secs(2);
const CREATION_POLL: Duration = Duration::from_millis(50);
const FIX: &str =
    "Restore the data, or accept the loss with semel doctor --store URL --accept-loss --reason TEXT";
const RENAMED: &str = "The hashing secret of the store was lost, and an operator accepted it: restart this node. If it does not \
    start, the acceptance was interrupted: run semel doctor --store URL --accept-loss --reason TEXT again";

/// What the store's own key says about the store.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    pub(crate) format: String,
    pub(crate) buckets: String,
    pub(crate) epoch: u64,
    /// The number of buckets and random digits; empty for a store of an older build.
    pub(crate) identity: String,
    /// Whether all markers have been written.
    pub(crate) is_complete: bool,
    /// Identities that never became complete: their markers prove nothing, and are replaced.
    unfinished: String,
    /// How operators accepted losses, the last first.
    pub(crate) accepted: Vec<String>,
}

impl Meta {
    /// Whether this identity was drawn for a store that is still being created.
    pub(crate) fn is_being_created(&self, identity: &str) -> bool {
        !identity.is_empty()
            && (identity == self.identity
                || self.unfinished.split(' ').any(|unfinished| unfinished == identity))
    }
}

/// The number of buckets that an identity begins with.
pub(crate) fn buckets_in(identity: &str) -> Option<u16> {
    identity.split_once('-')?.0.parse().ok()
}

/// Whether two identities are of the same store: after its secret was lost, a store has a new suffix.
pub(crate) fn is_same_store(one: &str, other: &str) -> bool {
    root(one) == root(other)
}

/// An identity without its suffix.
pub(crate) fn root(identity: &str) -> &str {
    identity.split_once('.').map_or(identity, |(root, _)| root)
}

fn is_lost(answer: &Value) -> bool {
    answer.array().first().and_then(Value::text) == Some("lost")
}

/// A part of the store without its marker. `found` is what is there instead.
fn lost(context: &str, part: &str, known: &str, found: &Value) -> Error {
    let what = match found.text() {
        None => format!(
            "{part} are gone: the server was emptied, came back without its data, or removed keys. Commands that were recorded there \
             would run again, so they are refused. {FIX}"
        ),
        Some(found) if is_same_store(found, known) => format!("{part} have another identity. {RENAMED}"),
        Some(_) => format!(
            "{part} belong to another store: the server was emptied, and a node that started afterwards created a new store there. \
             Commands that were recorded before would run again, so this node refuses them. Restore the data; to go on with the new \
             store, restart this node"
        ),
    };
    Error::new(Kind::DataLost, context).because(what)
}

fn part_name(layout: &Layout, part: usize) -> String {
    let count = usize::from(layout.buckets().end);
    if part >= count {
        return "the store's settings".to_owned();
    }
    format!("the records in bucket {part} of {count}")
}

impl Shared {
    /// Runs a script on a part of the store, and fails if that part is lost. A server of a cluster may have been
    /// replaced without knowing it, so a loss counts only if the current owner of the slot reports it too.
    pub(crate) async fn run_in_part(
        &self,
        (servers, part): (&Servers, u16),
        script: &Script,
        effect: Effect,
        (keys, arguments): (&[&[u8]], &[&[u8]]),
        context: &str,
    ) -> Result<Value, Error> {
        let slot = self.layout.slot_of_part(part);
        let failed = |fault: Fault| fault.error(context);
        let mut answer = servers.run(slot, script, effect, keys, arguments).await.map_err(failed)?;
        if is_lost(&answer) && servers.is_cluster() {
            servers.learn().await.map_err(failed)?;
            answer = servers.run(slot, script, effect, keys, arguments).await.map_err(failed)?;
        }
        match answer.array() {
            [_, found] if is_lost(&answer) => {
                Err(lost(context, &part_name(&self.layout, part.into()), &self.identity, found))
            }
            _ => Ok(answer),
        }
    }

    /// The store's own key; none if there is no store.
    pub(crate) async fn meta(&self) -> Result<Option<Meta>, Error> {
        let (slot, key) = self.layout.of_store("meta");
        let fields = ["format", "buckets", "epoch", "identity", "stage", "unfinished", "accepted"];
        let mut question = vec![&b"HMGET"[..], &key];
        question.extend(fields.iter().map(|field| field.as_bytes()));
        let asked = self.reading().ask(slot, resp::command(&question), Effect::Reads).await;
        let answer = asked.map_err(|fault| fault.error(OPENING))?;
        match answer.array() {
            [Value::Nil, ..] => Ok(None),
            [format, buckets, epoch, identity, stage, unfinished, accepted] => Ok(Some(Meta {
                format: text(format),
                buckets: text(buckets),
                epoch: text(epoch).parse().unwrap_or(0),
                identity: text(identity),
                is_complete: stage.text() == Some("complete"),
                unfinished: text(unfinished),
                accepted: text(accepted).lines().map(str::to_owned).collect(),
            })),
            _ => Err(unexpected(&answer)),
        }
    }

    /// The marker of each part, the settings last.
    pub(crate) async fn markers_in(&self, layout: &Layout) -> Result<Vec<Value>, Error> {
        let parts = layout.parts();
        let each = parts
            .iter()
            .map(|(slot, key)| self.reading().ask(*slot, resp::command(&[b"GET", key]), Effect::Reads));
        try_join_all(each).await.map_err(|fault| fault.error(CHECKING))
    }

    /// The layout and the identity of the store. It is created if it does not exist, and one of an older build gets its
    /// markers.
    pub(crate) async fn created(&self) -> Result<Meta, Error> {
        if !self.meta().await?.is_some_and(|meta| meta.is_complete) {
            self.check_nothing_is_left().await?;
        }
        let digits = random::digits()?;
        let mut meta = self.drawn(&digits, "").await?;
        let mut waited = Duration::ZERO;
        // Another node creates the store. If it died, this one starts over with an identity of its own.
        while meta.format == FORMAT && !meta.is_complete && !meta.identity.ends_with(&digits) {
            sleep(CREATION_POLL).await;
            waited += CREATION_POLL;
            let replaced = if waited < CREATION_WAIT { "" } else { &meta.identity };
            let next = self.drawn(&digits, replaced).await?;
            if next.identity != meta.identity {
                waited = Duration::ZERO;
            }
            meta = next;
        }
        if meta.format == FORMAT && !meta.is_complete {
            let layout = Layout::new(&self.address.prefix, meta.buckets.parse().unwrap_or(0));
            let parts = layout.parts();
            let unfinished = vec![meta.unfinished.clone(); parts.len()];
            let marked = self.mark(&layout, (0..parts.len()).zip(unfinished), &meta.identity, OPENING).await;
            if matches!(&marked, Err(error) if error.kind() == Kind::DataLost) {
                // Unless it was another node's marker, because this one was too slow.
                self.check_still_creating(&meta.identity).await?;
            }
            marked?;
            self.complete(&meta.identity, OPENING).await?;
            meta.is_complete = true;
        }
        Ok(meta)
    }

    async fn check_still_creating(&self, identity: &str) -> Result<(), Error> {
        match self.meta().await? {
            Some(meta) if meta.identity != identity => Err(overtaken(OPENING)),
            _ => Ok(()),
        }
    }

    /// The store's own key, with a new identity if it has none, or the unfinished one that is `replaced`.
    async fn drawn(&self, digits: &str, replaced: &str) -> Result<Meta, Error> {
        let (slot, key) = self.layout.of_store("meta");
        let buckets = self.address.buckets.unwrap_or(BUCKETS).to_string();
        let arguments = [FORMAT.as_bytes(), buckets.as_bytes(), digits.as_bytes(), replaced.as_bytes()];
        let asked = self.writes.run(slot, &scripts::META, Effect::Writes, &[&key], &arguments).await;
        let answer = asked.map_err(|fault| fault.error(OPENING))?;
        match answer.array() {
            [status, format, buckets, epoch, identity, stage, unfinished]
                if status.text() == Some("found") =>
            {
                Ok(Meta {
                    format: text(format),
                    buckets: text(buckets),
                    epoch: text(epoch).parse().unwrap_or(0),
                    identity: text(identity),
                    is_complete: stage.text() == Some("complete"),
                    unfinished: text(unfinished),
                    accepted: Vec::new(),
                })
            }
            _ => Err(unexpected(&answer)),
        }
    }

    /// Refuses to create a store where parts of another one are left: its own key is lost, and with it perhaps the
    /// settings. A gateway of an older version may have written a new key.
    pub(crate) async fn check_nothing_is_left(&self) -> Result<(), Error> {
        // The markers first. An identity is drawn before its markers are written, so `meta` then has it.
        let markers = self.markers_left().await?;
        let meta = self.meta().await?.unwrap_or_default();
        let is_left = |marker: &Value| *marker != Value::Nil && !meta.is_being_created(&text(marker));
        let is_of_this_build = meta.format.is_empty() || meta.format == FORMAT;
        if meta.is_complete || !is_of_this_build || !markers.iter().any(is_left) {
            return Ok(());
        }
        let found = if meta.format.is_empty() { "are gone" } else { "are new" };
        let cause = format!(
            "the store's own keys {found}, but parts of the store are left: a server was emptied, came back without its data, or \
             removed keys, and with them the settings. A new store would run commands again, so none is created. {FIX}"
        );
        Err(Error::new(Kind::DataLost, OPENING).because(cause))
    }

    pub(crate) async fn some_part_is_left(&self) -> Result<bool, Error> {
        Ok(self.markers_left().await?.iter().any(|marker| *marker != Value::Nil))
    }

    /// The markers of a store whose number of buckets is not known.
    pub(crate) async fn markers_left(&self) -> Result<Vec<Value>, Error> {
        let buckets = self.address.buckets.unwrap_or(BUCKETS).max(BUCKETS);
        self.markers_in(&Layout::new(&self.address.prefix, buckets)).await
    }

    /// Writes markers, each over nothing or over one of the `replaced` identities.
    pub(crate) async fn mark(
        &self,
        layout: &Layout,
        replaced: impl Iterator<Item = (usize, String)>,
        identity: &str,
        context: &str,
    ) -> Result<(), Error> {
        let parts = layout.parts();
        let each = replaced.map(async |(part, replaced)| {
            let (slot, key) = &parts[part];
            let arguments = [identity.as_bytes(), replaced.as_bytes()];
            let asked = self.writes.run(*slot, &scripts::MARK, Effect::Writes, &[key], &arguments).await;
            let answer = asked.map_err(|fault| fault.error(context))?;
            match answer.array() {
                [status] if status.text() == Some("done") => Ok(()),
                [_, found] if is_lost(&answer) => {
                    Err(lost(context, &part_name(layout, part), identity, found))
                }
                _ => Err(unexpected(&answer)),
            }
        });
        try_join_all(each).await.map(drop)
    }

    async fn complete(&self, identity: &str, context: &str) -> Result<(), Error> {
        let (slot, key) = self.layout.of_store("meta");
        let arguments = [identity.as_bytes()];
        let asked = self.writes.run(slot, &scripts::COMPLETE, Effect::Writes, &[&key], &arguments).await;
        settled(&asked.map_err(|fault| fault.error(context))?, context)
    }

    /// The parts that have lost their marker, the settings last; the store's own key counts as one of the settings.
    pub(crate) async fn lost_parts(&self) -> Result<Vec<usize>, Error> {
        if self.identity.is_empty() {
            return Ok(Vec::new());
        }
        let mut lost = self.parts_without_marker().await?;
        if !lost.is_empty() && self.reading().is_cluster() {
            self.reading().learn().await.map_err(|fault| fault.error(CHECKING))?;
            lost = self.parts_without_marker().await?;
        }
        Ok(lost)
    }

    async fn parts_without_marker(&self) -> Result<Vec<usize>, Error> {
        let is_known = self.meta().await?.is_some_and(|meta| meta.identity == self.identity);
        let markers = self.markers_in(&self.layout).await?;
        let settings = markers.len() - 1;
        let is_lost = |(part, marker): (usize, &Value)| {
            let is_marked = marker.text() == Some(&*self.identity);
            (!is_marked || part == settings && !is_known).then_some(part)
        };
        Ok(markers.iter().enumerate().filter_map(is_lost).collect())
    }

    /// Fails if a part of the store is lost.
    pub(crate) async fn check(&self) -> Result<(), Error> {
        let lost = self.lost_parts().await?;
        if lost.is_empty() {
            return Ok(());
        }
        let meta = self.meta().await?.unwrap_or_default();
        let is_renamed = meta.identity != self.identity && is_same_store(&meta.identity, &self.identity);
        let what = summary(&lost, &self.layout);
        let cause = if is_renamed { RENAMED.to_owned() } else { format!("{what}. {FIX}") };
        Err(Error::new(Kind::DataLost, CHECKING).because(cause))
    }
}

fn overtaken(context: &str) -> Error {
    let cause = "another node changed the store's own key at the same time; try again";
    Error::new(Kind::Unavailable, context).because(cause)
}

/// Whether a step of the creation was made; another node may be ahead.
pub(crate) fn settled(answer: &Value, context: &str) -> Result<(), Error> {
    match answer.array() {
        [status] if status.text() == Some("done") => Ok(()),
        [status] if status.text() == Some("other") => Err(overtaken(context)),
        _ => Err(unexpected(answer)),
    }
}

/// What is lost, in a few words.
pub(crate) fn summary(lost: &[usize], layout: &Layout) -> String {
    let count = usize::from(layout.buckets().end);
    let buckets = lost.iter().filter(|part| **part < count).count();
    match (buckets, lost.contains(&count)) {
        (0, true) => "the settings are lost".to_owned(),
        (_, true) => format!("the records in {buckets} of {count} buckets, and the settings, are lost"),
        (_, false) => format!("the records in {buckets} of {count} buckets are lost"),
    }
}
