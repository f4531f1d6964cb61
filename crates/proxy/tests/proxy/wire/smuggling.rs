//! Requests that two parsers read differently. Each gets 400, ends its connection, and does not reach the service.

use super::world::{World, get};

/// Sends `bytes` followed by a valid request, and expects a single response: a refusal that contains `reason`.
async fn refused(bytes: impl AsRef<[u8]>, status: &str, reason: &str) {
    let world = World::new().await;
    let sent = [bytes.as_ref(), get("/behind").as_bytes()].concat();
    let answer = world.exchange(sent).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    assert!(answer.contains("application/problem+json") && answer.contains(reason), "{answer}");
    assert_eq!(answer.contains("\"MALFORMED_REQUEST\""), status == "400", "{answer}");
    assert!(answer.contains("\"retryable\":false"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    assert!(world.service.seen().is_empty(), "{:?}", world.service.seen());
}

/// The same, for a head with these lines after a valid request line and Host.
async fn refused_lines(lines: &str, reason: &str) {
    refused(format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n"), "400", reason).await;
}

macro_rules! lines {
    ($($name:ident: $lines:expr, $reason:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            refused_lines($lines, $reason).await;
        })*
    };
}

lines! {
    a_length_before_a_transfer_coding: "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "both Content-Length";
    a_transfer_coding_before_a_length: "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "both Content-Length";
    two_equal_lengths: "Content-Length: 5\r\nContent-Length: 5\r\n", "two lengths";
    two_unequal_lengths: "Content-Length: 5\r\nContent-Length: 6\r\n", "two lengths";
    a_list_of_equal_lengths: "Content-Length: 5, 5\r\n", "plain decimal";
    a_length_with_a_sign: "Content-Length: +5\r\n", "plain decimal";
    a_negative_length: "Content-Length: -5\r\n", "plain decimal";
    a_hexadecimal_length: "Content-Length: 0x5\r\n", "plain decimal";
    an_empty_length: "Content-Length:\r\n", "plain decimal";
    a_length_beyond_any_file: "Content-Length: 9223372036854775808\r\n", "plain decimal";
    a_length_that_wraps_around: "Content-Length: 18446744073709551621\r\n", "plain decimal";
    two_transfer_codings: "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "two transfer codings";
    a_transfer_coding_and_identity: "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "other than plain";
    a_list_of_transfer_codings: "Transfer-Encoding: gzip, chunked\r\n", "other than plain";
    chunked_twice_in_one_line: "Transfer-Encoding: chunked, chunked\r\n", "other than plain";
    an_unknown_transfer_coding: "Transfer-Encoding: xchunked\r\n", "other than plain";
    a_quoted_transfer_coding: "Transfer-Encoding: \"chunked\"\r\n", "other than plain";
    a_transfer_coding_with_a_vertical_tab: "Transfer-Encoding: \x0bchunked\r\n", "control character";
    a_transfer_coding_with_a_space_before_its_colon: "Transfer-Encoding : chunked\r\n", "and its colon";
    a_length_with_a_tab_before_its_colon: "Content-Length\t: 5\r\n", "and its colon";
    a_disguised_length: "Content_Length: 5\r\n", "underscore";
    a_disguised_transfer_coding: "Transfer_Encoding: chunked\r\n", "underscore";
    a_second_host: "Host: b\r\n", "two Host headers";
    a_second_host_that_is_the_same: "Host: a\r\n", "two Host headers";
    a_folded_header: "X: a\r\n b\r\n", "folding";
    a_folded_transfer_coding: "Transfer-Encoding:\r\n chunked\r\n", "other than plain";
    a_first_header_that_is_folded: " X: a\r\n", "folding";
    a_null_byte_in_a_value: "X: a\0b\r\n", "control character";
    an_escape_in_a_value: "X: a\x1bb\r\n", "control character";
    a_bare_carriage_return_in_a_value: "X: a\rContent-Length: 5\r\n", "carriage return";
    a_bare_line_feed: "X: a\nContent-Length: 5\r\n", "line feed";
    a_name_that_is_no_token: "X(a): b\r\n", "not a token";
    a_name_with_a_null_byte: "X\0: b\r\n", "not a token";
    a_header_without_a_name: ": b\r\n", "not a token";
    a_header_without_a_colon: "X\r\n", "not a token";
}

macro_rules! refused_requests {
    ($($name:ident: $bytes:expr, $status:literal, $reason:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            refused($bytes, $status, $reason).await;
        })*
    };
}

refused_requests! {
    no_host: "GET / HTTP/1.1\r\n\r\n", "400", "no Host header";
    a_host_with_a_path: "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400", "not a host";
    a_host_with_a_user: "GET / HTTP/1.1\r\nHost: a@b\r\n\r\n", "400", "not a host";
    a_target_for_another_host: "GET http://b/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "Host header differ";
    a_target_with_a_user: "GET http://u@a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "contains a user name";
    a_target_with_a_user_and_no_host: "GET http://u@a/ HTTP/1.0\r\n\r\n", "400", "contains a user name";
    a_target_with_a_fragment: "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", "400", "fragment";
    a_query_with_a_fragment: "GET /a?b# HTTP/1.1\r\nHost: a\r\n\r\n", "400", "fragment";
    a_url_with_a_fragment: "GET http://a#b HTTP/1.1\r\nHost: a\r\n\r\n", "400", "fragment";
    a_target_that_is_a_host: "GET evil HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_that_is_the_same_host: "GET a:80 HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_of_another_scheme: "GET ftp://evil/x HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_that_is_a_scheme_alone: "GET http:/x HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_for_all_with_a_method_for_one: "POST * HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_that_begins_with_a_question: "GET ?x HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_tunnel_to_a_path: "CONNECT /x HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_tunnel_to_a_url: "CONNECT http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "neither a path";
    a_target_for_another_port: "GET http://a:81/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "Host header differ";
    a_transfer_coding_in_http_1_0:
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400", "HTTP/1.0";
    lines_that_end_in_line_feeds_alone: "GET / HTTP/1.1\nHost: a\n\n", "400", "line feed";
    two_spaces_in_the_request_line: "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", "400", "request line";
    a_space_before_the_method: " GET / HTTP/1.1\r\nHost: a\r\n\r\n", "400", "request line";
    a_tab_in_the_request_line: "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", "400", "request line";
    a_request_line_without_a_version: "GET /\r\nHost: a\r\n\r\n", "400", "request line";
    something_after_the_version: "GET / HTTP/1.1 x\r\nHost: a\r\n\r\n", "400", "request line";
    a_later_version: "GET / HTTP/1.2\r\nHost: a\r\n\r\n", "400", "version other";
    a_preface_of_http_2_that_goes_wrong: "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", "400", "version other";
    a_carriage_return_in_the_request_line: "GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", "400", "request line";
    a_handshake_of_tls: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400", "request line";
    nothing_but_empty_lines: "\r\n\r\n\r\n\r\n\r\n", "400", "empty lines";
    a_head_without_end: format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "x".repeat(70_000)), "431", "headers are too long";
    too_many_headers: format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: a\r\n".repeat(100)), "431", "too many header";
}

/// Invalid chunks arrive after their head has passed. The service sees a broken body, never a complete one, and the
/// rest is not taken for a request.
async fn broken(body: &str) {
    let world = World::new().await;
    let head = "POST /chunks HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = world.exchange(format!("{head}{body}{}", get("/behind"))).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    let seen = world.service.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].body, None, "{seen:?}");
}

macro_rules! chunks {
    ($($name:ident: $body:expr;)*) => {
        $(#[tokio::test]
        async fn $name() {
            broken($body).await;
        })*
    };
}

chunks! {
    a_chunk_size_with_a_sign: "+5\r\nhello\r\n0\r\n\r\n";
    a_negative_chunk_size: "-5\r\nhello\r\n0\r\n\r\n";
    a_chunk_size_with_a_prefix: "0x5\r\nhello\r\n0\r\n\r\n";
    a_chunk_size_before_white_space: "5 \r\nhello\r\n0\r\n\r\n";
    a_chunk_size_after_white_space: " 5\r\nhello\r\n0\r\n\r\n";
    a_chunk_size_that_wraps_around: "10000000000000005\r\nhello\r\n0\r\n\r\n";
    a_chunk_size_with_an_underscore: "1_0\r\nhello\r\n0\r\n\r\n";
    no_chunk_size: "\r\nhello\r\n0\r\n\r\n";
    a_chunk_size_line_that_ends_in_a_line_feed: "5\nhello\r\n0\r\n\r\n";
    a_chunk_that_is_longer_than_its_size: "3\r\nhello\r\n0\r\n\r\n";
    a_chunk_that_ends_in_a_line_feed: "5\r\nhello\n0\r\n\r\n";
    a_line_feed_in_an_extension: "5;a\nb\r\nhello\r\n0\r\n\r\n";
    a_carriage_return_in_an_extension: "5;a\rb\r\nhello\r\n0\r\n\r\n";
    a_null_byte_in_an_extension: "5;a\0b\r\nhello\r\n0\r\n\r\n";
    endless_extensions: &format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(9_000));
    a_length_among_the_trailers: "0\r\nContent-Length: 5\r\n\r\n";
    a_host_among_the_trailers: "0\r\nHost: b\r\n\r\n";
    a_folded_trailer: "0\r\nX: a\r\n b\r\n\r\n";
    trailers_that_end_in_line_feeds: "0\r\nX: a\n\n";
    a_last_chunk_that_ends_in_a_line_feed: "0\n\r\n";
    endless_trailers: &format!("0\r\nX: {}\r\n\r\n", "x".repeat(9_000));
}

#[tokio::test]
async fn what_comes_before_a_refused_request_is_answered_first() {
    let world = World::new().await;
    let bad = "POST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n";
    let answer = world.exchange(format!("{}{}{bad}{}", get("/1"), get("/2"), get("/3"))).await;
    let statuses: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "200", "400"], "{answer}");
    assert_eq!(world.service.lines(), ["GET /1", "GET /2"]);
}

#[tokio::test]
async fn a_refused_request_waits_for_the_one_that_still_runs() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send(format!("{}nonsense\r\n\r\n", get("/hang"))).await;
    super::world::within(world.service.arrived.notified()).await;
    world.service.release();
    let answer = client.rest().await;
    let statuses: Vec<_> =
        answer.match_indices("HTTP/1.1 ").map(|(at, _)| &answer[at + 9..at + 12]).collect();
    assert_eq!(statuses, ["200", "400"], "{answer}");
}

#[tokio::test]
async fn a_client_that_keeps_sending_still_receives_a_refusal() {
    let world = World::new().await;
    let mut client = world.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 1\r\n\r\n").await;
    client.send(vec![b'x'; 1 << 20]).await;
    let answer = client.rest().await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}
