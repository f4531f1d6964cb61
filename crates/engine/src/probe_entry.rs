//! The entries that nodes insert and remove to see whether the store accepts writes.

use semel_core::id::CommandId;

/// How many there are. Of three servers, none is missed.
pub(crate) const COUNT: u8 = 32;
/// The first bytes of their IDs. Those of commands are hashes.
const NAME: &[u8; 31] = b"semel: does the store write now";

pub(crate) fn id(entry: u8) -> CommandId {
    let mut bytes = [entry; 32];
    bytes[..NAME.len()].copy_from_slice(NAME);
    CommandId::from_bytes(bytes)
}

/// Whether this is the ID of such an entry, and not of a command.
pub(crate) fn is_entry(id: CommandId) -> bool {
    id.as_bytes().starts_with(NAME)
}
