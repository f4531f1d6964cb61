//! What newer versions may add to a record without a new format.
//!
//! An extension is a tag, a length and bytes. A node that does not know an even tag ignores and keeps it; an odd tag
//! must be understood. Tags ascend, so the order is unique and no tag occurs twice.

use super::read::Reader;
use super::{Error, Newer, labels};
use crate::labels::Labels;
use bytes::Bytes;

/// Reads to the end: the labels, which come first, and the bytes of all other ignorable extensions.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<(Labels, Bytes), Error> {
    let (mut start, mut last, mut unknown) = (reader.at(), None, None);
    let mut known = Labels::default();
    while reader.left() > 0 {
        let at = reader.at();
        let tag = reader.varint()?;
        if last.is_some_and(|last| tag <= last) {
            return Err(Error::Damaged { at, what: "the extensions are out of order" });
        }
        last = Some(tag);
        if tag == labels::TAG {
            known = labels::read(reader)?;
            start = reader.at();
            continue;
        }
        reader.slice()?;
        if tag % 2 == 1 {
            unknown = unknown.or(Some(tag));
        }
    }
    match unknown {
        Some(tag) => Err(Error::Newer(Newer::Extension(tag))),
        None => Ok((known, reader.since(start))),
    }
}
