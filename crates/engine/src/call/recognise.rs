//! From an intent to its command, under every relevant secret.
//!
//! What is derived once from an intent, and where to look for its record. A command is never recognised under an
//! outdated view.

use crate::call::answer::Error;
use crate::call::intent::Intent;
use crate::call::local;
use crate::node::Node;
use crate::node::store_access::StoreAccess;
use crate::sealing::Seal;
use crate::secrets::{self, Commands, Located, View};
use semel_core::fingerprint::{self, Fingerprint, Payload, Selection};
use semel_core::id::CommandId;
use semel_core::machine::Command;
use semel_core::policy::{Class, Policy};
use semel_core::store::{self, Kind, Reading};
use std::sync::Arc;
use std::time::Duration;

/// A recognised intent; cheap to clone. Its payload is read again only if a record was claimed under another
/// selection.
#[derive(Clone)]
pub(crate) struct RecognisedIntent {
    pub(crate) intent: Arc<Intent>,
    pub(crate) view: View,
    /// The uptime by which its effect must have begun.
    pub(crate) begin_by: Option<Duration>,
    current: CommandWithoutPayload,
    old: Option<CommandWithoutPayload>,
}

/// A command whose payload is that of its intent.
#[derive(Clone)]
struct CommandWithoutPayload {
    command: Arc<Command<'static>>,
}

/// A payload whose fingerprint under one selection is known.
struct Read {
    policy: Arc<Policy>,
    fingerprint: Fingerprint,
    payload: Arc<dyn Payload>,
}

impl Payload for Read {
    fn fingerprint(&self, selection: &Selection) -> Result<Fingerprint, fingerprint::Error> {
        if *selection == self.policy.selection {
            return Ok(self.fingerprint);
        }
        self.payload.fingerprint(selection)
    }
}

/// A placeholder for the payload of a command.
static NO_PAYLOAD: Fingerprint = Fingerprint::from_bytes([0; 32]);

impl RecognisedIntent {
    /// Recognises an intent under the current secrets.
    pub(crate) fn new(node: &Node, intent: Intent) -> Result<Self, Error> {
        Self::of(node, under_its_class(intent)?)
    }

    /// The same for an intent whose effect is in the transaction of its record.
    pub(crate) fn local(node: &Node, intent: Intent) -> Result<Self, Error> {
        if intent.policy.class != Class::Local {
            return Err(Error::NotLocalClass(intent.policy.class));
        }
        Self::of(node, intent)
    }

    fn of(node: &Node, mut intent: Intent) -> Result<Self, Error> {
        if local::inside::is_inside() {
            return Err(Error::InsideLocalWork);
        }
        let skew = node.settings.clock.skew;
        if intent.policy.skew < skew {
            let policy = Policy::clone(&intent.policy).with(|policy| policy.skew = skew);
            intent.policy = Arc::new(policy.map_err(Error::Policy)?);
        }
        if intent.seal == Seal::Required && !node.sealing.has_keys() {
            return Err(Error::NoSealingKey);
        }
        let view = current_view(node)?;
        let fingerprint = intent.payload.fingerprint(&intent.policy.selection).map_err(Error::Fingerprint)?;
        let (policy, payload) = (Arc::clone(&intent.policy), Arc::clone(&intent.payload));
        let read = Read { policy, fingerprint, payload };
        let begin_by = intent.begin_within.map(|limit| node.clock.uptime().saturating_add(limit));
        Self::under(view, Arc::new(Intent { payload: Arc::new(read), ..intent }), begin_by)
    }

    /// The same intent under the current secrets.
    pub(crate) fn again(&self, node: &Node) -> Result<Self, Error> {
        Self::under(current_view(node)?, Arc::clone(&self.intent), self.begin_by)
    }

    fn under(view: View, intent: Arc<Intent>, begin_by: Option<Duration>) -> Result<Self, Error> {
        let Intent { scope, key, policy, payload, .. } = &*intent;
        let commands =
            view.commands(scope, key, Arc::clone(policy), &**payload).map_err(Error::Fingerprint)?;
        let current = CommandWithoutPayload::of(&commands.current);
        let old = commands.old.as_ref().map(CommandWithoutPayload::of);
        Ok(Self { intent, view, begin_by, current, old })
    }

    /// How long a transaction may wait for this process: as long as its work may take, and its commit after that.
    pub(crate) fn transaction_idle_max(&self, store_timeout: Duration) -> Duration {
        self.intent.policy.work_deadline.saturating_add(store_timeout)
    }

    /// The command's ID in this process, wherever its record is stored.
    pub(crate) fn id(&self) -> CommandId {
        self.current.command.id
    }

    /// Every ID that its record may be stored under.
    pub(crate) fn ids(&self) -> impl Iterator<Item = CommandId> {
        std::iter::once(&self.current).chain(&self.old).map(|one| one.command.id)
    }

    /// The command under the secret in use.
    pub(crate) fn command(&self) -> Command<'_> {
        self.current.with(&*self.intent.payload)
    }

    /// The command under every relevant secret.
    pub(crate) fn commands(&self) -> Commands<'_> {
        let payload = &*self.intent.payload;
        Commands { current: self.current.with(payload), old: self.old.as_ref().map(|old| old.with(payload)) }
    }
}

/// The intent with the class that its attempts are stored with. Only the effect's own transaction can keep the
/// promise of `local`, unless there is no effect.
fn under_its_class(intent: Intent) -> Result<Intent, Error> {
    match (intent.policy.class, intent.has_effect) {
        (Class::Local, true) => Err(Error::LocalClass),
        (Class::Local, false) | (_, true) => Ok(intent),
        (_, false) => {
            let policy = Policy::clone(&intent.policy).with(|policy| policy.class = Class::Local);
            let policy = policy.map_err(Error::Policy)?;
            Ok(Intent { policy: Arc::new(policy), ..intent })
        }
    }
}

impl CommandWithoutPayload {
    fn of(command: &Command<'_>) -> Self {
        let command = Command {
            operation: Arc::clone(&command.operation),
            policy: Arc::clone(&command.policy),
            payload: &NO_PAYLOAD,
            ..*command
        };
        Self { command: Arc::new(command) }
    }

    fn with<'a>(&self, payload: &'a dyn Payload) -> Command<'a> {
        Command { payload, ..Command::clone(&self.command) }
    }
}

/// The view of the hashing secret for one request. If the store has lost data, that is why there is none.
fn current_view(node: &Node) -> Result<View, Error> {
    node.secrets.view().map_err(|error| match node.store.loss.refusing(node.clock.uptime()) {
        Some(refusal) => store::Error::new(refusal.kind, "reading the state of the hashing secret").into(),
        None => Error::Secrets(error),
    })
}

/// Where to look for and claim the record of a command. Needs the store only during a rotation of the hashing secret.
pub(crate) async fn locate<'c, 'a>(
    store: &StoreAccess,
    view: &View,
    commands: &'c Commands<'a>,
) -> Result<Located<'c, 'a>, Error> {
    let dating = |reading: &mut Reading, asked| store.date(&mut reading.now, asked);
    let located = secrets::locate(&*store.raw, view, &*store.clock.machine, &dating, commands);
    if view.outgoing.is_none() {
        return located.await.map_err(Error::Secrets);
    }
    tokio::select! {
        biased;
        located = located => located.map_err(Error::Secrets),
        // A marker that is inserted after this is harmless.
        () = store.clock.sleep(store.settings.store_timeout) => {
            Err(store::Error::new(Kind::Unavailable, "locating the record of a command").into())
        }
    }
}
