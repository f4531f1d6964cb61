//! A description of decoded entries that does not change when a type's debug output does.

use bytes::Bytes;
use semel_core::codec::{self, Error};
use semel_core::history;
use semel_core::outcome::{Body, Fields, Outcome};
use semel_core::policy::{Policy, PolicySettings};
use semel_core::record::{Entry, Record, State};
use std::fmt::Write;

pub(crate) fn describe(decoded: &Result<Entry, Error>) -> String {
    match decoded {
        Ok(Entry::Record(record)) => describe_record(record),
        Ok(Entry::Moved) => "moved\n".to_owned(),
        Err(Error::Newer(newer)) => format!("newer: {newer:?}\n"),
        Err(Error::Damaged { at, what }) => format!("damaged at {at}: {what}\n"),
    }
}

fn describe_record(record: &Record) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| writeln!(text, "{name}: {value}").unwrap();
    line("state", &record.state_name());
    line("operation_id", &record.operation_id());
    if record.generation() != 0 {
        line("generation", &record.generation());
    }
    line("key_hash", &record.key_hash().to_hex());
    line("caller_hash", &record.caller_hash().to_hex());
    line("fingerprint", &hex(record.fingerprint().as_bytes()));
    line("operation", record.operation());
    line("token", &format_args!("{:032x}", record.token().bits()));
    line("version", &record.version());
    line("attempt", &record.attempt());
    line("fence", &record.fence());
    line("created_at", &record.created_at().as_millis());
    line("updated_at", &record.updated_at().as_millis());
    line("owner_wrote_at", &record.owner_wrote_at().as_millis());
    line("earlier_doubt", &record.earlier_doubt());
    line("extensions", &extensions(record));
    describe_policy(record.policy(), &mut line);
    describe_state(record.state(), &mut line);
    line("history.dropped", &record.history().dropped());
    for history::Entry { attempt, to, at, who, why } in record.history().entries() {
        let at = at.as_millis();
        line("history", &format_args!("attempt {attempt} {to} at {at} by {who:?} because {why:?}"));
    }
    text
}

type Line<'a> = dyn FnMut(&str, &dyn std::fmt::Display) + 'a;

fn describe_policy(policy: &Policy, line: &mut Line<'_>) {
    let PolicySettings { lease, work_deadline, skew, ttl, denied_ttl, tombstone, dedup_window, .. } =
        &**policy;
    line("policy.class", &policy.class);
    for (name, duration) in [
        ("lease", lease),
        ("work_deadline", work_deadline),
        ("skew", skew),
        ("ttl", ttl),
        ("denied_ttl", denied_ttl),
        ("tombstone", tombstone),
        ("dedup_window", dedup_window),
    ] {
        line(&format!("policy.{name}"), &format_args!("{}ns", duration.as_nanos()));
    }
    line("policy.attempts_max", &format_args!("{:?}", policy.attempts_max));
    line("policy.after_expiry", &format_args!("{:?}", policy.after_expiry));
    line("policy.history_entries_max", &policy.history_entries_max);
    let selection = &policy.selection;
    line("policy.selection.version", &selection.version());
    line("policy.selection.headers", &format_args!("{:?}", selection.headers()));
    line("policy.selection.include", &format_args!("{:?}", selection.include()));
    line("policy.selection.exclude", &format_args!("{:?}", selection.exclude()));
}

fn describe_state(state: &State, line: &mut Line<'_>) {
    match state {
        State::Claimed { lease_until } | State::Processing { lease_until } => {
            line("lease_until", &lease_until.as_millis());
        }
        State::Succeeded { outcome, expires_at } | State::FailedReplayable { outcome, expires_at } => {
            line("expires_at", &expires_at.as_millis());
            describe_outcome(outcome, line);
        }
        State::FailedNotReplayable { outcome, proof, bound, expires_at } => {
            line("proof", &format_args!("{proof:?}"));
            line("bound", bound);
            line("expires_at", &expires_at.as_millis());
            match outcome {
                Some(outcome) => describe_outcome(outcome, line),
                None => line("outcome", &"none"),
            }
        }
        State::Unknown { doubt, since, probes, next_probe_at } => {
            line("doubt", &format_args!("{doubt:?}"));
            line("since", &since.as_millis());
            line("probes", probes);
            line("next_probe_at", &format_args!("{next_probe_at:?}"));
        }
        State::Expired { until } => line("until", &until.as_millis()),
    }
}

fn describe_outcome(outcome: &Outcome, line: &mut Line<'_>) {
    line("outcome.status", &format_args!("{:?}", outcome.status));
    let mut fields = |name: &str, fields: &Fields| {
        for (key, value) in fields.iter() {
            line(name, &format_args!("{} = {}", key.escape_ascii(), value.escape_ascii()));
        }
    };
    fields("outcome.header", &outcome.headers);
    fields("outcome.trailer", &outcome.trailers);
    match &outcome.body {
        Body::Kept(body) => line("outcome.body", &format_args!("{} bytes {}", body.len(), hex(body))),
        Body::NotRetained => line("outcome.body", &"not retained"),
        Body::Sealed(body) => {
            line("outcome.body", &format_args!("sealed, {} bytes {}", body.len(), hex(body)));
        }
    }
}

/// Only the codec uses extensions, so a record shows only their length. They are the last bytes before the checksum of
/// four bytes.
fn extensions(record: &Record) -> String {
    let debug = format!("{record:?}");
    let (_, shown) = debug.rsplit_once("extensions: ").unwrap();
    let length: usize = shown.split(' ').next().unwrap().parse().unwrap();
    let written = codec::encode_record(record);
    let end = written.len() - 4;
    format!("{:?}", Bytes::copy_from_slice(&written[end - length..end]))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    hex::encode(bytes)
}
