//! Which store this is.
//!
//! Contents: a random value in the store's settings, by which a database that somebody else connects to is recognised
//! as the same store, or another. Never here: anything that could be guessed, such as a host's name.

use crate::engine::Engine;
use crate::node::Node;
use semel_core::store::{self, Kind, Setting};
use std::fmt;

/// The setting that it is in.
const NAME: &str = "store-id";
/// How often an answer that was lost is asked for again. Asking again does no harm: what is stored there stays there.
const TRIES: u32 = 4;

/// The name of one store: 128 random bits, drawn by the first engine that asks for them and kept in the store's
/// settings.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoreId([u8; 16]);

impl StoreId {
    /// The setting that it is in, for anyone who reads it by SQL.
    pub const SETTING: &'static str = NAME;

    /// The id in the bytes of that setting; `None` if they are none.
    pub fn from_setting(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// As 32 hexadecimal digits. It is no secret.
impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreId({self})")
    }
}

impl Engine {
    /// Which store this engine works on. Asked of the store once; one that has no id yet is given one.
    pub async fn store_id(&self) -> Result<StoreId, store::Error> {
        let node = &self.node;
        node.store_id.get_or_try_init(|| learn(node)).await.copied()
    }
}

async fn learn(node: &Node) -> Result<StoreId, store::Error> {
    // Reading needs no lock: anyone who holds a transaction open on the store's own file may ask.
    let settings = node.within(node.settings.store_timeout, node.store.settings()).await;
    if let Some(Ok(settings)) = settings
        && let Some((_, stands)) = settings.into_iter().find(|(name, _)| name == NAME)
    {
        return known(&stands);
    }
    let drawn = node.random.bits().to_be_bytes();
    let mut tries = 0;
    loop {
        tries += 1;
        let asked = node.store.set(NAME, None, Some(&drawn));
        let set = node.within(node.settings.store_timeout, asked).await.unwrap_or_else(|| {
            Err(store::Error::new(Kind::Ambiguous, "waiting for the store to tell its id"))
        });
        match set {
            Ok(Setting::Done) => return Ok(StoreId(drawn)),
            Ok(Setting::Refused(Some(stands))) => return known(&stands),
            // Removed by hand in this very moment, or not known to be written: what is stored there now tells.
            Ok(Setting::Refused(None)) if tries < TRIES => {}
            Err(error) if error.is_ambiguous() && tries < TRIES => {}
            Ok(Setting::Refused(None)) => {
                let cause = "somebody keeps removing it";
                return Err(store::Error::new(Kind::Unavailable, "writing the store's id").because(cause));
            }
            Err(error) => return Err(error),
        }
    }
}

fn known(stands: &[u8]) -> Result<StoreId, store::Error> {
    StoreId::from_setting(stands).ok_or_else(|| {
        let cause = format!("the setting `{NAME}` was changed by hand");
        store::Error::new(Kind::Unfit, "reading the store's id").because(cause)
    })
}
