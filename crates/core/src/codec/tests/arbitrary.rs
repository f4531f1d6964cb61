//! Records of every state with arbitrary fields.

use crate::codec::write;
use crate::fingerprint::{Fingerprint, Selection};
use crate::history::{self, History};
use crate::id::{CallerHash, KeyHash, OperationId};
use crate::labels::Labels;
use crate::outcome::{Body, Fields, Outcome, Status};
use crate::policy::{AfterExpiry, Class, Policy, PolicySettings};
use crate::record::{Doubt, Proof, Record, State, StateName, Token};
use crate::time::Time;
use bytes::Bytes;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Numbers of every length: a uniform distribution would hardly ever give a short one.
fn number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64u32).prop_map(|(bits, shift)| bits >> shift)
}

fn small_number() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0..32u32).prop_map(|(bits, shift)| bits >> shift)
}

fn time() -> impl Strategy<Value = Time> {
    number().prop_map(Time::from_millis)
}

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn duration() -> impl Strategy<Value = Duration> {
    let exact = (number(), 0..1_000_000_000u32).prop_map(|(secs, nanos)| Duration::new(secs, nanos));
    prop_oneof![number().prop_map(Duration::from_millis), exact, Just(Duration::MAX), Just(Duration::ZERO)]
}

fn selection() -> impl Strategy<Value = Selection> {
    let headers = btree_set("x-[a-z]{1,8}", 0..3);
    let pointers = || btree_set("(/[a-zé]{1,5}){1,3}", 0..3);
    (0..3u8, headers, pointers(), pointers()).prop_filter_map(
        "invalid",
        |(version, headers, include, exclude)| {
            let list = |set: std::collections::BTreeSet<String>| set.into_iter().collect::<Vec<_>>();
            Selection::from_parts(version, list(headers), list(include), list(exclude)).ok()
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let class = prop_oneof![Just(Class::Local), Just(Class::Downstream), Just(Class::External)];
    let after_expiry = prop_oneof![Just(AfterExpiry::Refuse), Just(AfterExpiry::RunAsNew)];
    let durations = [(); 7].map(|()| duration());
    let rest = (option::of(small_number()), any::<u8>(), selection());
    (class, after_expiry, durations, rest).prop_map(|(class, after_expiry, durations, rest)| {
        let [lease, work_deadline, skew, ttl, denied_ttl, tombstone, dedup_window] = durations;
        let (attempts_max, history_entries_max, selection) = rest;
        Policy::as_stored(PolicySettings {
            class,
            lease,
            work_deadline,
            skew,
            ttl,
            denied_ttl,
            tombstone,
            dedup_window,
            attempts_max,
            after_expiry,
            history_entries_max,
            selection,
        })
    })
}

fn fields() -> impl Strategy<Value = Fields> {
    vec((bytes(), bytes()), 0..5).prop_map(Fields::from_iter)
}

pub(super) fn outcome() -> impl Strategy<Value = Outcome> {
    let status = prop_oneof![
        any::<u16>().prop_map(Status::Http),
        small_number().prop_map(Status::Grpc),
        Just(Status::Value)
    ];
    let body = prop_oneof![
        4 => bytes().prop_map(Body::Kept),
        1 => Just(Body::NotRetained),
        2 => bytes().prop_map(Body::Sealed),
    ];
    (status, fields(), body, fields()).prop_map(|(status, headers, body, trailers)| Outcome {
        status,
        headers,
        body,
        trailers,
        labels: Labels::default(),
    })
}

fn state() -> impl Strategy<Value = State> {
    let proof = prop_oneof![Just(Proof::Owner), Just(Proof::Verdict), Just(Proof::NeverBegan)];
    let doubt = prop_oneof![Just(Doubt::Lapsed), Just(Doubt::Owner)];
    prop_oneof![
        time().prop_map(|lease_until| State::Claimed { lease_until }),
        time().prop_map(|lease_until| State::Processing { lease_until }),
        (outcome(), time()).prop_map(|(outcome, expires_at)| State::Succeeded { outcome, expires_at }),
        (outcome(), time()).prop_map(|(outcome, expires_at)| State::FailedReplayable { outcome, expires_at }),
        (option::of(outcome()), proof, any::<bool>(), time()).prop_map(
            |(outcome, proof, bound, expires_at)| State::FailedNotReplayable {
                outcome,
                proof,
                bound,
                expires_at
            }
        ),
        (doubt, time(), small_number(), option::of(time())).prop_map(
            |(doubt, since, probes, next_probe_at)| State::Unknown { doubt, since, probes, next_probe_at }
        ),
        time().prop_map(|until| State::Expired { until }),
    ]
}

fn history() -> impl Strategy<Value = History> {
    let entry = (small_number(), proptest::sample::select(&StateName::ALL[..]), time(), ".{0,20}", ".{0,20}")
        .prop_map(|(attempt, to, at, who, why)| history::Entry {
            attempt,
            to,
            at,
            who: who.into(),
            why: why.into(),
        });
    (small_number(), vec(entry, 0..6)).prop_map(|(dropped, entries)| History { dropped, entries })
}

fn labels() -> impl Strategy<Value = Labels> {
    let label = || option::of("[^\\p{Cc}]{1,20}").prop_map(|text: Option<String>| text.map(Into::into));
    (label(), label(), label()).prop_map(|(resource_type, resource_id, error_code)| Labels {
        resource_type,
        resource_id,
        error_code,
    })
}

/// Extensions that a node may ignore.
fn extensions() -> impl Strategy<Value = Bytes> {
    btree_map(number().prop_map(|tag| (tag & !1).max(2)), bytes(), 0..3).prop_map(|extensions| {
        let mut out = Vec::new();
        for (tag, value) in extensions {
            write::varint(&mut out, tag);
            write::bytes(&mut out, &value);
        }
        out.into()
    })
}

prop_compose! {
    pub(super) fn record()(
        ids in (any::<[u8; 16]>(), any::<[u8; 32]>(), any::<[u8; 32]>(), any::<[u8; 32]>()),
        counters in (number(), any::<u128>(), small_number(), number()),
        times in (time(), time(), time()),
        operation in ".{0,40}",
        generation in prop_oneof![Just(0), small_number()],
        (earlier_doubt, policy, state, history, labels, extensions) in
            (any::<bool>(), policy(), state(), history(), labels(), extensions()),
    ) -> Record {
        let (operation_id, key_hash, caller_hash, fingerprint) = ids;
        let (version, token, attempt, fence) = counters;
        let (created_at, updated_at, owner_wrote_at) = times;
        Record {
            operation_id: OperationId::from_bytes(operation_id),
            generation,
            key_hash: KeyHash::from_bytes(key_hash),
            caller_hash: CallerHash::from_bytes(caller_hash),
            operation: operation.into(),
            policy: Arc::new(policy),
            fingerprint: Fingerprint::from_bytes(fingerprint),
            version: (version >> 1).max(1),
            token: Token::from_random(token),
            attempt,
            fence,
            created_at,
            updated_at,
            owner_wrote_at,
            earlier_doubt,
            state,
            history,
            labels,
            extensions,
        }
    }
}
