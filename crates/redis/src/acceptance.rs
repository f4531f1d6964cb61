//! An operator accepts that the store has lost data.
//!
//! The lost parts get their markers back. If the hashing secret is lost, the whole store gets another identity, so that
//! a node that still uses the old secret can no longer write: two nodes with different secrets would run a command once
//! each. Every step can be repeated after an interruption at any point, and until the last one the store stays refused.

use crate::address::{Address, BUCKETS};
use crate::identity::{Meta, buckets_in, is_same_store, root, settled, summary};
use crate::layout::{Layout, MARKER};
use crate::random;
use crate::resp::{self, Value, text};
use crate::scripts;
use crate::servers::Effect;
use crate::shared::{FORMAT, Shared};
use futures_util::future::try_join_all;
use semel_core::store::{AcceptedLoss, Error, Kind, SECRET_LOST_SETTING, SECRET_SETTING};
use std::collections::BTreeMap;

const ACCEPTING: &str = "accepting the loss of data in Redis";
/// How many acceptances are kept.
const NOTES_MAX: usize = 8;

/// Accepts the loss in the store that the address names.
pub(crate) async fn accept_loss(address: Address, why: &str) -> Result<AcceptedLoss, Error> {
    let shared = Shared::connect(address, None).await?;
    let accepted = shared.accept_loss(why).await;
    shared.close().await;
    accepted
}

fn refused(cause: &str) -> Error {
    Error::new(Kind::Unfit, ACCEPTING).because(cause.to_owned())
}

impl Shared {
    async fn accept_loss(&self, why: &str) -> Result<AcceptedLoss, Error> {
        let meta = self.meta().await?.unwrap_or_default();
        let known = self.identity_before_loss(&meta).await?;
        let layout = Layout::new(&self.address.prefix, buckets_in(&known).unwrap_or(BUCKETS));
        let markers: Vec<String> = self.markers_in(&layout).await?.iter().map(text).collect();
        let settings = markers.len() - 1;
        let mut are_settings_lost = !meta.is_complete || !is_same_store(&markers[settings], &known);
        let is_secret_lost =
            !self.has_secret().await? && (are_settings_lost || self.has_entries(&layout).await?);
        are_settings_lost |= is_secret_lost;
        let identity =
            if is_secret_lost { format!("{}.{}", root(&known), random::digits()?) } else { known.clone() };
        // All parts get a new identity; those of the same store have lost nothing.
        let is_lost = |part: &usize| {
            let marker = &markers[*part];
            let has_own = if is_secret_lost { is_same_store(marker, &known) } else { *marker == known };
            !has_own || *part == settings && are_settings_lost
        };
        let lost: Vec<usize> = (0..markers.len()).filter(is_lost).collect();
        let accepted = AcceptedLoss {
            parts: lost.iter().filter(|part| **part != settings).count(),
            of: settings,
            settings: lost.contains(&settings),
            secret: is_secret_lost,
        };
        if lost.is_empty() {
            return Ok(accepted);
        }
        let note = format!("{} ({})", why.replace('\n', " "), summary(&lost, &layout));
        let note = Note { text: note, is_secret_lost };
        let replaced = (0..settings)
            .filter(|part| markers[*part] != identity)
            .map(|part| (part, format!(" {}", markers[part])));
        if is_secret_lost {
            // Until the last step, nobody can use what has the new identity.
            self.mark(&layout, replaced, &identity, ACCEPTING).await?;
            self.complete_with(&layout, &meta.identity, &identity, &note).await?;
        } else {
            // Until the last step, the lost parts stay refused, and it is known who began.
            self.complete_with(&layout, &meta.identity, &identity, &note).await?;
            self.mark(&layout, replaced, &identity, ACCEPTING).await?;
        }
        Ok(accepted)
    }

    /// The identity that the store had: in its own key, or on most of the parts that are left.
    async fn identity_before_loss(&self, meta: &Meta) -> Result<String, Error> {
        if !meta.format.is_empty() && meta.format != FORMAT {
            return Err(refused("the store was made by a newer build: use its program"));
        }
        if meta.is_complete {
            return Ok(meta.identity.clone());
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for identity in self.markers_left().await?.iter().map(text) {
            if buckets_in(&identity).is_some() && !meta.is_being_created(&identity) {
                *counts.entry(identity).or_default() += 1;
            }
        }
        if let Some((identity, _)) = counts.into_iter().max_by_key(|(_, count)| *count) {
            return Ok(identity);
        }
        Err(refused(if meta.format.is_empty() {
            "no part of the store is left. If the server was emptied, restart every gateway: the first one creates a new store, \
             and every command can run again"
        } else {
            "the store has no identity yet: the next gateway that starts creates it, and nothing was lost before"
        }))
    }

    async fn has_secret(&self) -> Result<bool, Error> {
        let (slot, key) = self.layout.of_store("settings");
        let question = resp::command(&[b"HGET", &key, SECRET_SETTING.as_bytes()]);
        let answer = self.reading().ask(slot, question, Effect::Reads).await;
        Ok(answer.map_err(|fault| fault.error(ACCEPTING))? != Value::Nil)
    }

    /// Whether any record or moved marker is left.
    async fn has_entries(&self, layout: &Layout) -> Result<bool, Error> {
        let each = layout.buckets().map(|bucket| {
            let lists: Vec<Vec<u8>> = (0..=MARKER).map(|state| layout.list(bucket, state)).collect();
            let question: Vec<&[u8]> =
                [&b"EXISTS"[..]].into_iter().chain(lists.iter().map(Vec::as_slice)).collect();
            self.reading().ask(layout.slot(bucket), resp::command(&question), Effect::Reads)
        });
        let found = try_join_all(each).await.map_err(|fault| fault.error(ACCEPTING))?;
        Ok(found.iter().any(|answer| answer.number().is_some_and(|count| count > 0)))
    }

    /// Keeps the note, and gives the store's own keys the identity. Fails if another process changed them meanwhile.
    async fn complete_with(
        &self,
        layout: &Layout,
        from: &str,
        identity: &str,
        note: &Note,
    ) -> Result<(), Error> {
        let (slot, meta) = layout.of_store("meta");
        let keys = [meta, layout.of_store(crate::layout::MARKER_NAME).1, layout.of_store("settings").1];
        let (buckets, notes_max) = (layout.buckets().end.to_string(), NOTES_MAX.to_string());
        let arguments = [
            from,
            identity,
            FORMAT,
            &buckets,
            &note.text,
            &notes_max,
            if note.is_secret_lost { SECRET_LOST_SETTING } else { "" },
        ];
        let arguments = arguments.map(str::as_bytes);
        let keys = keys.each_ref().map(Vec::as_slice);
        let asked = self.writes.run(slot, &scripts::ACCEPT, Effect::Writes, &keys, &arguments).await;
        settled(&asked.map_err(|fault| fault.error(ACCEPTING))?, ACCEPTING)
    }
}

/// Who accepted what, when and why.
struct Note {
    text: String,
    is_secret_lost: bool,
}
