//! Random digits for the identity of a new store.

use ring::rand::{SecureRandom as _, SystemRandom};
use semel_core::store::{Error, Kind};

/// 32 hexadecimal digits.
pub(crate) fn digits() -> Result<String, Error> {
    let mut bytes = [0; 16];
    let failed = |_| Error::new(Kind::Unavailable, "drawing random digits for the store's identity");
    SystemRandom::new().fill(&mut bytes).map_err(failed)?;
    Ok(hex::encode(bytes))
}
