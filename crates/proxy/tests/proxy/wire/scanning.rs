//! The scanner alone: its decision does not depend on how the bytes are cut.

use proptest::prelude::*;
use semel_proxy::wire::{Limits, MessageRefusal, Protocol, Scanner};

/// The result of a complete input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) passed: usize,
    pub(crate) messages: u64,
    pub(crate) refusal: Option<MessageRefusal>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) is_amid: bool,
}

/// Feeds the input to the scanner like a socket: cut after these numbers of bytes, repeatedly.
pub(crate) fn scanned(input: &[u8], cuts: &[usize], limits: Limits) -> Verdict {
    let mut scanner = Scanner::new(limits);
    let (mut available, mut passed) = (0, 0);
    let mut cuts = cuts.iter().copied().filter(|cut| *cut > 0).cycle();
    while available < input.len() {
        available = (available + cuts.next().unwrap_or(input.len())).min(input.len());
        passed += scanner.scan(&input[passed..available]);
    }
    Verdict {
        passed,
        messages: scanner.messages(),
        refusal: scanner.refusal(),
        protocol: scanner.protocol(),
        is_amid: scanner.is_amid_message(),
    }
}

const SMALL: Limits = Limits { head_bytes_max: 200, headers_max: 6 };

/// Parts of requests, valid and invalid, that together produce every kind of verdict.
const PIECES: &[&str] = &[
    "GET / HTTP/1.1\r\n",
    "POST /a HTTP/1.1\r\n",
    "GET http://a/ HTTP/1.1\r\n",
    "GET / HTTP/1.0\r\n",
    "GET /a#b HTTP/1.1\r\n",
    "GET http://u@a/ HTTP/1.1\r\n",
    "CONNECT a:1 HTTP/1.1\r\n",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "GET  / HTTP/1.1\r\n",
    "Host: a\r\n",
    "Host: b\r\n",
    "Content-Length: 5\r\n",
    "content-length: 0\r\n",
    "Content-Length: 5, 5\r\n",
    "Content-Length: 99\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: gzip\r\n",
    "Upgrade: x\r\n",
    "X: y\r\n",
    " folded\r\n",
    "X : y\r\n",
    "X: \0\r\n",
    "X: a\rb\r\n",
    "X: a\n",
    "Connection: close\r\n",
    "Expect: 100-continue\r\n",
    "\r\n",
    "\r\n",
    "\r\n",
    "\n",
    "\r",
    "hello",
    "5\r\nhello\r\n",
    "0\r\n\r\n",
    "0\r\nX: y\r\n\r\n",
    "5;a=b\r\nhello\r\n",
    "0x5\r\n",
    "5 \r\n",
    "A\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "ffffffffffffffff\r\n",
    "\r\n\r\n\r\n\r\n\r\n",
];

/// Lines of a head.
const LINES: &[&str] = &[
    "Host: a\r\n",
    "Host: a\r\n",
    "Host: a:80\r\n",
    "Host: b\r\n",
    "Host: a/\r\n",
    "Content-Length: 5\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Transfer_Encoding: chunked\r\n",
    "Content-Type: text/plain\r\n",
    "X-Long: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n",
    "X: y\r\n",
    "X: y\r\n",
];

/// Complete requests, so that something valid precedes the invalid part.
const WHOLE: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;\0\r\nhello\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n",
];

pub(crate) fn inputs() -> impl Strategy<Value = Vec<u8>> {
    let head = prop::collection::vec(prop::sample::select(LINES), 0..8)
        .prop_map(|lines| format!("POST http://a/ HTTP/1.1\r\n{}\r\n", lines.concat()).into_bytes());
    let piece = prop_oneof![
        5 => head,
        15 => prop::sample::select(WHOLE).prop_map(|text| text.as_bytes().to_vec()),
        20 => prop::sample::select(PIECES).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..4),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_verdict_does_not_depend_on_how_the_bytes_were_cut(
        input in inputs(),
        cuts in prop::collection::vec(1_usize..40, 1..6),
    ) {
        let uncut = scanned(&input, &[], SMALL);
        prop_assert_eq!(&scanned(&input, &[1], SMALL), &uncut);
        prop_assert_eq!(&scanned(&input, &cuts, SMALL), &uncut);
    }

    #[test]
    fn nothing_passes_beyond_what_came_or_after_a_refusal(input in inputs(), more in inputs()) {
        let first = scanned(&input, &[], SMALL);
        prop_assert!(first.passed <= input.len());
        let both = [input, more].concat();
        let after = scanned(&both, &[], SMALL);
        prop_assert!(after.passed >= first.passed);
        if first.refusal.is_some() {
            prop_assert_eq!(after, first);
        }
    }
}

#[test]
fn every_kind_of_verdict_comes_up_among_the_inputs() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut refusals, mut passed) = (std::collections::BTreeSet::new(), 0);
    for _ in 0..50_000 {
        let input = inputs().new_tree(&mut runner).expect("a value").current();
        let verdict = scanned(&input, &[], SMALL);
        passed += u32::from(verdict.messages > 1 && verdict.refusal.is_none());
        refusals.extend(verdict.refusal.map(|refusal| format!("{refusal:?}")));
    }
    assert!(passed > 100, "{passed}");
    let absent: Vec<_> = MessageRefusal::ALL
        .iter()
        .map(|refusal| format!("{refusal:?}"))
        .filter(|name| !refusals.contains(name))
        .collect();
    let unseen = ["CutShort", "HeadTimeout", "BodyTimeout", "Busy"];
    assert_eq!(
        absent, unseen,
        "only refusals that need a clock, a closed connection or other requests may be missing"
    );
}

#[test]
fn a_head_may_have_exactly_the_limit() {
    let head = |bytes: usize| {
        let start = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
        format!("{start}{}\r\n\r\n", "x".repeat(bytes - start.len() - 4))
    };
    for cut in [1, 7, 1000] {
        assert_eq!(scanned(head(200).as_bytes(), &[cut], SMALL).messages, 1);
        assert_eq!(scanned(head(201).as_bytes(), &[cut], SMALL).refusal, Some(MessageRefusal::HeadTooLarge));
    }
}

#[test]
fn the_http_2_preface_counts_only_at_the_start() {
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let verdict = scanned(preface, &[1], SMALL);
    assert_eq!((verdict.protocol, verdict.passed), (Some(Protocol::Http2), preface.len()));
    let later = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", &preface[..]].concat();
    assert_eq!(scanned(&later, &[1], SMALL).refusal, Some(MessageRefusal::Version));
}
