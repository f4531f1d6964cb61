//! Encoding and decoding of an outcome.

use super::read::Reader;
use super::{Error, write};
use crate::outcome::{Body, Fields, Outcome, Status};

const STATUS_BITS: u8 = 0b011;
const HTTP: u8 = 0;
const GRPC: u8 = 1;
const VALUE: u8 = 2;
const BODY_BITS: u8 = 0b1100;
const NOT_RETAINED: u8 = 0b0000;
const KEPT: u8 = 0b0100;
const SEALED: u8 = 0b1000;

/// The lengths of an empty name and an empty value.
const FIELD_BYTES_MIN: usize = 2;

pub(super) fn size_hint(outcome: &Outcome) -> usize {
    let fields = outcome.headers.packed().len() + outcome.trailers.packed().len();
    let body = match &outcome.body {
        Body::Kept(body) | Body::Sealed(body) => body.len(),
        Body::NotRetained => 0,
    };
    fields + body + 16
}

pub(super) fn write(outcome: &Outcome, out: &mut Vec<u8>) {
    let (kind, status) = match outcome.status {
        Status::Http(status) => (HTTP, Some(status.into())),
        Status::Grpc(status) => (GRPC, Some(status)),
        Status::Value => (VALUE, None),
    };
    let (kept, body) = match &outcome.body {
        Body::Kept(body) => (KEPT, Some(body)),
        Body::NotRetained => (NOT_RETAINED, None),
        Body::Sealed(body) => (SEALED, Some(body)),
    };
    out.push(kind | kept);
    if let Some(status) = status {
        write::varint(out, status.into());
    }
    write_fields(&outcome.headers, out);
    write_fields(&outcome.trailers, out);
    if let Some(body) = body {
        write::bytes(out, body);
    }
}

pub(super) fn read(reader: &mut Reader<'_>) -> Result<Outcome, Error> {
    let at = reader.at();
    let flags = reader.byte()?;
    if flags & !(STATUS_BITS | BODY_BITS) != 0 {
        return Err(Error::Damaged { at, what: "unknown flags in an outcome" });
    }
    let status = match flags & STATUS_BITS {
        HTTP => Status::Http(reader.number()?),
        GRPC => Status::Grpc(reader.number()?),
        VALUE => Status::Value,
        _ => return Err(Error::Damaged { at, what: "unknown kind of status" }),
    };
    let headers = read_fields(reader)?;
    let trailers = read_fields(reader)?;
    let body = match flags & BODY_BITS {
        NOT_RETAINED => Body::NotRetained,
        KEPT => Body::Kept(reader.bytes()?),
        SEALED => Body::Sealed(reader.bytes()?),
        _ => return Err(Error::Damaged { at, what: "a body is both kept and sealed" }),
    };
    Ok(Outcome { headers, body, trailers, ..Outcome::not_retained(status) })
}

fn write_fields(fields: &Fields, out: &mut Vec<u8>) {
    write::length(out, fields.len());
    out.extend_from_slice(fields.packed());
}

/// Checks every length, then keeps the fields as packed bytes.
fn read_fields(reader: &mut Reader<'_>) -> Result<Fields, Error> {
    let count = reader.count(FIELD_BYTES_MIN)?;
    let start = reader.at();
    for _ in 0..count {
        reader.slice()?;
        reader.slice()?;
    }
    // Without fields, keep no reference to the input.
    if count == 0 {
        return Ok(Fields::default());
    }
    Ok(Fields::from_packed(reader.since(start), count))
}
