//! Outcomes are returned byte for byte, whatever they contain.

use crate::harness::Subject;
use crate::scene::{START, assert_stored, command, finish, first, insert, swap, token};
use bytes::Bytes;
use semel_core::classify::Ending;
use semel_core::outcome::{Body, Outcome, Status};
use semel_core::record::{Record, State};
use semel_core::store::{Change, Kind, Written};

async fn assert_kept(subject: &Subject, n: u64, outcome: Outcome) {
    let store = &**subject.store();
    let command = command(n);
    let record = first(&command, token(n), START);
    insert(store, &command, &record).await;
    let done = finish(&record, Ending::Succeeded(outcome.clone()), START);
    swap(store, &command, &done).await;
    assert_stored(store, &command, &done.next).await;
    let reading = crate::scene::read(store, &command).await;
    let Some(State::Succeeded { outcome: read, .. }) = reading.record().map(Record::state) else {
        panic!("it succeeded")
    };
    assert!(*read == outcome, "outcome {n} was changed");
}

/// Bytes that are not text are kept, in bodies and in headers.
pub async fn binary_outcomes_are_kept_to_the_byte(subject: Subject) {
    subject.set_time(START).await;
    let every_byte: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).collect();
    assert_kept(&subject, 1, Outcome::value(every_byte.clone())).await;
    let headers: [(&[u8], &[u8]); 4] =
        [(b"x", &[0xff, 0x00, 0xfe]), (b"x", b""), (b"X", b"second"), (b"", &every_byte)];
    assert_kept(&subject, 2, Outcome::http(200, headers, vec![0; 1_000])).await;
    assert_kept(&subject, 3, Outcome::value(vec![0xff; 70_000])).await;
    assert_kept(&subject, 4, Outcome::value("\u{feff}\r\n\0'\"\\%_$1{}")).await;
}

/// Values that look empty are kept as they are, and a body that was not retained is not an empty one.
pub async fn values_that_look_like_nothing_are_kept(subject: Subject) {
    subject.set_time(START).await;
    for (n, value) in (0..).zip(["", "0", "\"\"", "[]", "false", "null", " ", "\0"]) {
        assert_kept(&subject, n, Outcome::value(value)).await;
    }
    assert_kept(&subject, 20, Outcome::http(204, [("", ""); 0], "")).await;
    assert_kept(&subject, 21, Outcome::not_retained(Status::Http(200))).await;
    assert_kept(&subject, 22, Outcome::not_retained(Status::Grpc(u32::MAX))).await;
    assert_kept(
        &subject,
        23,
        Outcome { body: Body::Kept(Bytes::new()), ..Outcome::not_retained(Status::Value) },
    )
    .await;
}

/// An outcome of 16 MiB is kept; or, if the store declares a lower limit, refused as too large, with nothing written.
pub async fn an_outcome_of_sixteen_mebibytes_is_kept_or_refused_whole(subject: Subject) {
    const SIZE: usize = 16 * 1024 * 1024;
    subject.set_time(START).await;
    // No two parts of it are equal, so that a cut or a swap is noticed.
    let pattern = |at: usize| u8::try_from((at ^ (at >> 8) ^ (at >> 16)) & 0xff).unwrap_or(0);
    let body: Vec<u8> = (0..SIZE).map(pattern).collect();
    let store = &**subject.store();
    if store.capabilities().entry_bytes_max > SIZE as u64 + 4_096 {
        return assert_kept(&subject, 1, Outcome::value(body)).await;
    }
    let command = command(1);
    let record = first(&command, token(1), START);
    insert(store, &command, &record).await;
    let done = finish(&record, Ending::Succeeded(Outcome::value(body)), START);
    let answer: Result<Written, _> = store.write(command.id, Change::from(&done)).await;
    assert_eq!(answer.expect_err("too much for this store").kind(), Kind::TooLarge);
    assert_stored(store, &command, &record).await;
}
