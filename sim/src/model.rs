//! What a state is judged by: the configuration, the rules, and the values of the model as the machine gets them.

use crate::config::Config;
use crate::protocol::Protocol;
use semel_core::fingerprint::{Error, Fingerprint, Payload, Selection};
use semel_core::id::{CallerHash, CommandId, KeyHash, OperationId};
use semel_core::machine::{Command, Stamp};
use semel_core::outcome::{Body, Outcome, Status};
use semel_core::policy::Policy;
use semel_core::record::Record;
use semel_core::time::Time;
use std::sync::{Arc, LazyLock};

/// The configuration, and the rules that are checked.
#[derive(Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) config: &'a Config,
    pub(crate) protocol: Protocol,
    /// One for each payload.
    pub(crate) policies: &'a [Arc<Policy>; 2],
}

impl Model<'_> {
    pub(crate) fn command<'a>(&self, payload: &'a Content) -> Command<'a> {
        let policy = &self.policies[usize::from(payload.0)];
        Command {
            id: CommandId::from_bytes([0; 32]),
            operation_id: OperationId::from_bytes([0; 16]),
            key_hash: KeyHash::from_bytes([0; 32]),
            caller_hash: CallerHash::from_bytes([0; 32]),
            operation: OPERATION.clone(),
            policy: Arc::clone(policy),
            fingerprint: payload.under(&policy.selection),
            payload,
            generation: 0,
        }
    }
}

static OPERATION: LazyLock<Arc<str>> = LazyLock::new(|| "charge".into());

/// The payload with this number.
pub(crate) struct Content(pub(crate) u8);

impl Content {
    fn under(&self, selection: &Selection) -> Fingerprint {
        // Not zero, which stands for the payload of an erased record.
        let mut bytes = [self.0 + 1; 32];
        bytes[1] = selection_number(selection);
        Fingerprint::from_bytes(bytes)
    }

    /// The payload that a record is bound to.
    pub(crate) fn of(record: &Record) -> Self {
        Self(record.fingerprint().as_bytes()[0].saturating_sub(1))
    }
}

impl Payload for Content {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, Error> {
        Ok(self.under(selection))
    }
}

/// Which of the model's selections this is.
pub(crate) fn selection_number(selection: &Selection) -> u8 {
    u8::from(!selection.headers().is_empty())
}

pub(crate) fn stamp(now: u16) -> Stamp<'static> {
    Stamp::new(time(now), "", "")
}

pub(crate) fn time(now: u16) -> Time {
    Time::from_millis(u64::from(now))
}

/// What the clock showed at a moment in a record.
pub(crate) fn shown(moment: Time) -> u16 {
    u16::try_from(moment.as_millis()).unwrap_or(u16::MAX)
}

/// The outcome for the effect of an attempt.
pub(crate) fn outcome(token: u8) -> Outcome {
    static NAMES: [u8; 256] = {
        let mut names = [0; 256];
        let mut index = 0;
        while index < 256 {
            #[expect(clippy::cast_possible_truncation, reason = "below 256")]
            {
                names[index] = index as u8;
            }
            index += 1;
        }
        names
    };
    let index = usize::from(token);
    Outcome {
        body: Body::Kept(bytes::Bytes::from_static(&NAMES[index..=index])),
        ..Outcome::not_retained(Status::Http(200))
    }
}
