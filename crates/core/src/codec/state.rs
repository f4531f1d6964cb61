//! Encoding and decoding of a state and its data.

use super::read::Reader;
use super::{Error, outcome, write};
use crate::record::{Doubt, Proof, State, StateName};

// FAILED_NOT_REPLAYABLE
const PROOF_BITS: u8 = 0b0011;
const BOUND: u8 = 0b0100;
const ANSWERED: u8 = 0b1000;
// UNKNOWN
const OWNER_DOUBT: u8 = 0b01;
const PROBE_PLANNED: u8 = 0b10;

pub(super) fn size_hint(state: &State) -> usize {
    match state {
        State::Succeeded { outcome, .. }
        | State::FailedReplayable { outcome, .. }
        | State::FailedNotReplayable { outcome: Some(outcome), .. } => outcome::size_hint(outcome),
        _ => 0,
    }
}

/// Writes the data of a state; its number is in the record's head.
pub(super) fn write(state: &State, out: &mut Vec<u8>) {
    match state {
        State::Claimed { lease_until } | State::Processing { lease_until } => write::time(out, *lease_until),
        State::Succeeded { outcome, expires_at } | State::FailedReplayable { outcome, expires_at } => {
            write::time(out, *expires_at);
            outcome::write(outcome, out);
        }
        State::FailedNotReplayable { outcome, proof, bound, expires_at } => {
            let proof = match proof {
                Proof::Owner => 0,
                Proof::Verdict => 1,
                Proof::NeverBegan => 2,
            };
            let bound = if *bound { BOUND } else { 0 };
            let answered = if outcome.is_some() { ANSWERED } else { 0 };
            out.push(proof | bound | answered);
            write::time(out, *expires_at);
            if let Some(outcome) = outcome {
                outcome::write(outcome, out);
            }
        }
        State::Unknown { doubt, since, probes, next_probe_at } => {
            let doubt = match doubt {
                Doubt::Lapsed => 0,
                Doubt::Owner => OWNER_DOUBT,
            };
            let planned = if next_probe_at.is_some() { PROBE_PLANNED } else { 0 };
            out.push(doubt | planned);
            write::time(out, *since);
            write::varint(out, (*probes).into());
            if let Some(next_probe_at) = next_probe_at {
                write::time(out, *next_probe_at);
            }
        }
        State::Expired { until } => write::time(out, *until),
    }
}

/// Reads the data of the state `name`.
pub(super) fn read(name: StateName, reader: &mut Reader<'_>) -> Result<State, Error> {
    Ok(match name {
        StateName::Claimed => State::Claimed { lease_until: reader.time()? },
        StateName::Processing => State::Processing { lease_until: reader.time()? },
        StateName::Succeeded => {
            let expires_at = reader.time()?;
            State::Succeeded { expires_at, outcome: outcome::read(reader)? }
        }
        StateName::FailedReplayable => {
            let expires_at = reader.time()?;
            State::FailedReplayable { expires_at, outcome: outcome::read(reader)? }
        }
        StateName::FailedNotReplayable => read_not_replayable(reader)?,
        StateName::Unknown => read_unknown(reader)?,
        StateName::Expired => State::Expired { until: reader.time()? },
    })
}

fn read_not_replayable(reader: &mut Reader<'_>) -> Result<State, Error> {
    let flags = read_flags(reader, PROOF_BITS | BOUND | ANSWERED)?;
    let proof = match flags & PROOF_BITS {
        0 => Proof::Owner,
        1 => Proof::Verdict,
        2 => Proof::NeverBegan,
        _ => return Err(Error::Damaged { at: reader.at() - 1, what: "unknown proof" }),
    };
    let expires_at = reader.time()?;
    let outcome = if flags & ANSWERED == 0 { None } else { Some(outcome::read(reader)?) };
    Ok(State::FailedNotReplayable { outcome, proof, bound: flags & BOUND != 0, expires_at })
}

fn read_unknown(reader: &mut Reader<'_>) -> Result<State, Error> {
    let flags = read_flags(reader, OWNER_DOUBT | PROBE_PLANNED)?;
    let doubt = if flags & OWNER_DOUBT == 0 { Doubt::Lapsed } else { Doubt::Owner };
    let since = reader.time()?;
    let probes = reader.number()?;
    let next_probe_at = if flags & PROBE_PLANNED == 0 { None } else { Some(reader.time()?) };
    Ok(State::Unknown { doubt, since, probes, next_probe_at })
}

fn read_flags(reader: &mut Reader<'_>, known: u8) -> Result<u8, Error> {
    let at = reader.at();
    let flags = reader.byte()?;
    if flags & !known == 0 { Ok(flags) } else { Err(Error::Damaged { at, what: "unknown flags in a state" }) }
}
