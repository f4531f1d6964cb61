//! For any bytes: decoding never panics, a decoded record is encoded to the same bytes, and the state machine
//! accepts it at any time.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use semel_core::classify::Ending;
use semel_core::codec;
use semel_core::fingerprint::{Error, Fingerprint, Payload, Selection};
use semel_core::id::CommandId;
use semel_core::machine::{
    self, Begin, Command, Decision, Expect, Found, NewAttempt, Reply, Stamp, Verdict, Write,
};
use semel_core::outcome::{Outcome, Status};
use semel_core::record::{Entry, Record, Token};
use semel_core::time::Time;
use std::time::Duration;

fuzz_target!(|data: &[u8]| {
    let bytes = Bytes::copy_from_slice(data);
    check(&bytes, Time::MAX);
    // A checksum stops nearly every change that a fuzzer makes, so try again with a correct one. The four
    // bytes that it replaces serve as a time.
    if let Some((content, rest)) = data.split_last_chunk::<4>() {
        let sealed = [content, &crc32(content).to_le_bytes()].concat();
        check(&sealed.into(), Time::from_millis(u64::from(u32::from_le_bytes(*rest))));
    }
});

fn check(bytes: &Bytes, time: Time) {
    let decoded = codec::decode(bytes);
    let found = codec::found(&decoded);
    match &decoded {
        Ok(entry) => {
            assert_eq!(codec::encode(entry), *bytes);
            if let Entry::Record(record) = entry {
                let due_times = record.due_at().into_iter().chain(record.gone_at());
                let times = due_times.chain([record.created_at(), record.updated_at(), Time::MAX, time]);
                times.for_each(|now| exercise(record, now));
            }
        }
        Err(_) => {
            assert_eq!(found, Found::Unreadable);
            assert!(!Expect::Absent.met_by(found));
        }
    }
}

struct Same(Fingerprint);

impl Payload for Same {
    fn fingerprint(&self, _: &Selection) -> Result<Fingerprint, Error> {
        Ok(self.0)
    }
}

fn exercise(record: &Record, now: Time) {
    for now in [now - Duration::from_millis(1), now, now + Duration::from_millis(1)] {
        let stamp = Stamp::new(now, "fuzz", "");
        let payload = Same(record.fingerprint());
        let command = Command {
            id: CommandId::from_bytes([0; 32]),
            operation_id: record.operation_id(),
            key_hash: record.key_hash(),
            caller_hash: record.caller_hash(),
            operation: record.operation().clone(),
            policy: record.policy().clone(),
            fingerprint: record.fingerprint(),
            payload: &payload,
            generation: 0,
        };
        let found = Found::Record(record);
        let new_attempt =
            NewAttempt { token: Token::from_random(!record.token().bits()), begin: Begin::Claimed };
        match machine::decide(found, &command, new_attempt, stamp) {
            Decision::Run(write) | Decision::MarkUnknown(write) => rewrite(record, &write),
            Decision::Answer(reply) => assert_ne!(reply, Reply::Unreadable),
            Decision::Follow => panic!("a record is not a marker"),
        }
        assert_ne!(machine::attend(found, &command, now), Reply::Unreadable);
        let _ = machine::due(record, now);
        let _ = machine::purge(record, now);
        let token = record.token();
        let endings = [
            Ending::Succeeded(Outcome::value("1")),
            Ending::FailedReplayable(Outcome::not_retained(Status::Http(400))),
            Ending::NotApplied(None),
            Ending::InDoubt,
        ];
        let verdicts = [
            Verdict::Applied(None),
            Verdict::Failed(Outcome::value("")),
            Verdict::NotApplied { asked_at: now },
            Verdict::Refused,
        ];
        let writes = endings
            .into_iter()
            .map(|ending| machine::finish(record, token, ending, stamp))
            .chain(verdicts.iter().map(|verdict| machine::resolve(record, verdict.clone(), stamp)))
            .chain(verdicts.iter().map(|verdict| machine::reconcile(record, verdict.clone(), stamp)))
            .chain([
                machine::start(record, token, stamp),
                machine::renew(record, token, now),
                machine::lapse(record, stamp),
                machine::postpone(record, None, now),
                machine::release(record, stamp),
                machine::expire(record, stamp),
            ]);
        writes.flatten().for_each(|write| rewrite(record, &write));
    }
}

/// A record that the state machine writes is readable, and recognised as the written one.
fn rewrite(record: &Record, write: &Write) {
    assert!(write.expect.met_by(Found::Record(record)));
    let reread = codec::decode(&codec::encode_record(&write.next).into());
    // Only the last possible version has no successor.
    if write.next.version() <= u64::MAX >> 1 {
        assert!(machine::was_applied(write, codec::found(&reread)), "{reread:?}");
    }
}

/// CRC-32 bit by bit, independent of the crate that the codec uses.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}
