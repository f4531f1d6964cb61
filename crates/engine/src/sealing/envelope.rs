//! The layout of sealed bytes.
//!
//! One byte of format, the key's name after its length, 24 bytes of nonce, then the XChaCha20-Poly1305 ciphertext
//! with its tag. The associated data is the format, the key's name, the ID of the record and the status. So sealed
//! bytes are valid only for one record and one status.

use super::{SealingKey, UnsealError};
use crate::runtime::random::Random;
use bytes::Bytes;
use chacha20poly1305::aead::{Aead, AeadInPlace, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use semel_core::id::CommandId;
use semel_core::outcome::Status;

/// The only format.
const FORMAT: u8 = 1;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;

/// Parsed sealed bytes.
pub(super) struct Envelope<'a> {
    pub(super) key_name: &'a str,
    nonce: &'a [u8; NONCE_BYTES],
    sealed: &'a [u8],
}

/// Seals `plain` with `key`, for the record under `id`.
pub(super) fn seal(
    key: &SealingKey,
    id: &CommandId,
    status: Status,
    plain: Vec<u8>,
    random: &dyn Random,
) -> Bytes {
    let nonce = nonce(random);
    let mut sealed = plain;
    sealed.reserve_exact(TAG_BYTES);
    XChaCha20Poly1305::encrypt_in_place(
        key.cipher(),
        XNonce::from_slice(&nonce),
        &covered(key.name(), id, status),
        &mut sealed,
    )
    .expect("an outcome in memory is far below the limit of 256 GiB per nonce");
    let name = key.name().as_bytes();
    let mut out = Vec::with_capacity(2 + name.len() + NONCE_BYTES + sealed.len());
    out.push(FORMAT);
    out.push(u8::try_from(name.len()).expect("a key's name has at most 32 characters"));
    out.extend_from_slice(name);
    out.extend_from_slice(&nonce);
    out.extend_from_slice(&sealed);
    out.into()
}

impl<'a> Envelope<'a> {
    /// Parses sealed bytes, without a key.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, UnsealError> {
        let (&format, rest) = bytes.split_first().ok_or(UnsealError::Damaged)?;
        match format {
            FORMAT => {}
            0 => return Err(UnsealError::Damaged),
            newer => return Err(UnsealError::Newer(newer)),
        }
        let (&length, rest) = rest.split_first().ok_or(UnsealError::Damaged)?;
        let (name, rest) = rest.split_at_checked(length.into()).ok_or(UnsealError::Damaged)?;
        let key_name = std::str::from_utf8(name).map_err(|_| UnsealError::Damaged)?;
        let (nonce, sealed) = rest.split_first_chunk().ok_or(UnsealError::Damaged)?;
        Ok(Self { key_name, nonce, sealed })
    }

    /// The plain bytes, if `key` sealed them for the record under `id` with this status and nothing was changed.
    pub(super) fn open(&self, key: &SealingKey, id: &CommandId, status: Status) -> Option<Vec<u8>> {
        let covered = covered(self.key_name, id, status);
        let payload = Payload { msg: self.sealed, aad: &covered };
        key.cipher().decrypt(XNonce::from_slice(self.nonce), payload).ok()
    }
}

/// 192 random bits: enough that no two seals ever share a nonce.
fn nonce(random: &dyn Random) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    let (first, second) = nonce.split_at_mut(16);
    first.copy_from_slice(&random.bits().to_le_bytes());
    second.copy_from_slice(&random.bits().to_le_bytes()[..8]);
    nonce
}

/// The associated data. Every part has a fixed length or follows its length.
fn covered(key_name: &str, id: &CommandId, status: Status) -> Vec<u8> {
    let (kind, number) = match status {
        Status::Http(status) => (0, status.into()),
        Status::Grpc(status) => (1, status),
        Status::Value => (2, 0_u32),
    };
    let mut covered = b"semel sealed outcome".to_vec();
    covered.push(FORMAT);
    covered.extend_from_slice(id.as_bytes());
    covered.push(kind);
    covered.extend_from_slice(&number.to_le_bytes());
    covered.extend_from_slice(key_name.as_bytes());
    covered
}
