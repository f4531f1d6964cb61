//! Encoding and decoding of labels, as the extension with the first tag: nodes that do not know labels keep them.

use super::read::Reader;
use super::{Error, write};
use crate::labels::{LABEL_BYTES_MAX, Labels};
use std::sync::Arc;

/// Lower than every other tag, so that the other extensions stay in one piece.
pub(super) const TAG: u64 = 0;

pub(super) fn size_hint(labels: &Labels) -> usize {
    if labels.is_empty() {
        0
    } else {
        16 + texts(labels).map(|text| text.map_or(0, |text| text.len())).sum::<usize>()
    }
}

fn texts(labels: &Labels) -> impl Iterator<Item = Option<&Arc<str>>> {
    [&labels.resource_type, &labels.resource_id, &labels.error_code].into_iter().map(Option::as_ref)
}

/// Writes nothing if there are no labels.
pub(super) fn write(labels: &Labels, out: &mut Vec<u8>) {
    if labels.is_empty() {
        return;
    }
    let mut content = Vec::with_capacity(size_hint(labels));
    for text in texts(labels) {
        write::bytes(&mut content, text.map_or(&[][..], |text| text.as_bytes()));
    }
    write::varint(out, TAG);
    write::bytes(out, &content);
}

/// Reads the content of the extension, which ends at `end`.
pub(super) fn read(reader: &mut Reader<'_>) -> Result<Labels, Error> {
    let at = reader.at();
    let length: usize = reader.number()?;
    let start = reader.at();
    if length > reader.left() {
        return Err(Error::Damaged { at, what: "a length exceeds the remaining bytes" });
    }
    let mut label = || -> Result<Option<Arc<str>>, Error> {
        let at = reader.at();
        let text = reader.text()?;
        if text.len() > LABEL_BYTES_MAX {
            return Err(Error::Damaged { at, what: "a label is too long" });
        }
        Ok((!text.is_empty()).then(|| text.into()))
    };
    let labels = Labels { resource_type: label()?, resource_id: label()?, error_code: label()? };
    if reader.at() - start != length {
        return Err(Error::Damaged { at, what: "the labels do not have their stated length" });
    }
    if labels.is_empty() {
        return Err(Error::Damaged { at, what: "empty labels" });
    }
    Ok(labels)
}
