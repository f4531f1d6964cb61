//! Client requests: the scanner never panics, decides the same for every fragmentation of the bytes, and
//! another parser frames the passed requests in the same way.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_proxy::wire::{Limits, Protocol, Scanner};

const LIMITS: Limits = Limits { head_bytes_max: 512, headers_max: 8 };

/// The result for an input that arrives `cut` bytes at a time.
fn scanned(input: &[u8], cut: usize) -> (usize, Scanner) {
    let mut scanner = Scanner::new(LIMITS);
    let (mut received, mut passed) = (0, 0);
    while received < input.len() {
        received = (received + cut).min(input.len());
        passed += scanner.scan(&input[passed..received]);
    }
    (passed, scanner)
}

fuzz_target!(|data: &[u8]| {
    let Some((cut, input)) = data.split_first() else { return };
    let (passed, scanner) = scanned(input, input.len().max(1));
    assert!(passed <= input.len());
    for cut in [1, usize::from(*cut).max(1)] {
        let (passed_too, cut_up) = scanned(input, cut);
        assert_eq!((passed_too, cut_up.refusal()), (passed, scanner.refusal()));
        assert_eq!((cut_up.messages(), cut_up.protocol()), (scanner.messages(), scanner.protocol()));
        assert_eq!(cut_up.is_amid_message(), scanner.is_amid_message());
    }
    match scanner.protocol() {
        Some(Protocol::Http1) => assert_eq!(heads(&input[..passed]), scanner.messages()),
        Some(Protocol::Http2) => assert_eq!(passed, input.len()),
        None => assert_eq!(passed, 0),
    }
});

/// The number of complete heads that another parser finds in the passed bytes.
fn heads(mut rest: &[u8]) -> u64 {
    let mut count = 0;
    while !rest.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = match request.parse(rest) {
            Ok(httparse::Status::Complete(bytes)) => bytes,
            // It requires UTF-8 targets; stop at such a request.
            Err(httparse::Error::Token) if !rest.is_ascii() => return u64::MAX.min(count + more(rest)),
            other => panic!("{other:?}: {}", rest.escape_ascii()),
        };
        count += 1;
        let value = |name: &str| {
            let mut values = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let value = values.next().map(|header| header.value);
            assert!(values.next().is_none(), "two of {name}");
            value
        };
        let (length, coding) = (value("content-length"), value("transfer-encoding"));
        assert!(length.is_none() || coding.is_none());
        assert!(value("host").is_some() || request.version == Some(0));
        let is_chunked = coding.is_some();
        let length =
            length.map(|text| std::str::from_utf8(text).expect("digits").trim().parse().expect("a number"));
        rest = &rest[parsed..];
        rest =
            if is_chunked { after_chunks(rest) } else { rest.get(length.unwrap_or(0)..).unwrap_or_default() };
    }
    count
}

/// The heads that the scanner itself finds in the remaining bytes, which the other parser cannot read.
fn more(rest: &[u8]) -> u64 {
    scanned(rest, rest.len()).1.messages()
}

/// The bytes after the chunks and trailers that begin here; empty if they do not end.
fn after_chunks(mut rest: &[u8]) -> &[u8] {
    loop {
        let Ok(httparse::Status::Complete((line, size))) = httparse::parse_chunk_size(rest) else {
            return b"";
        };
        rest = &rest[line..];
        if size == 0 {
            break;
        }
        let end = usize::try_from(size).ok().and_then(|size| size.checked_add(2));
        rest = end.and_then(|end| rest.get(end..)).unwrap_or_default();
    }
    let mut trailers = [httparse::EMPTY_HEADER; 64];
    match httparse::parse_headers(rest, &mut trailers) {
        Ok(httparse::Status::Complete((bytes, _))) => &rest[bytes..],
        _ => b"",
    }
}
