//! Which connection carries the next request.

use super::world::{KEY, Script, ask, get, keyed, layer, post, through};
use semel_proxy::upstream::Options;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;

const EMPTY: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[tokio::test]
async fn a_connection_is_used_again_for_whatever_has_no_body() {
    let script = Script::new(|_, peer| {
        while let Some(request) = peer.request() {
            peer.say(match request.split(' ').nth(1).expect("a path") {
                "/head" => "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n",
                "/204" => "HTTP/1.1 204 No Content\r\n\r\n",
                "/304" => "HTTP/1.1 304 Not Modified\r\ncontent-length: 1000\r\n\r\n",
                _ => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            });
        }
    });
    let upstream = script.upstream();
    for path in ["/head", "/204", "/304", "/", "/"] {
        let mut request = get(path);
        if path == "/head" {
            *request.method_mut() = http::Method::HEAD;
        }
        let reply = ask(&upstream, request).await.expect("an answer");
        assert_eq!(reply.text(), if path == "/" { "ok" } else { "" });
        // The connection's task may still be finishing the exchange.
        tokio::task::yield_now().await;
    }
    assert_eq!(script.connections(), 1);
}

/// The server's thread reports its close: by then the system knows, but the runtime under test does not.
#[tokio::test]
async fn a_closed_idle_connection_is_noticed_before_use() {
    let (closed, is_closed) = mpsc::channel();
    let script = Script::new(move |_, peer| {
        peer.request();
        peer.say(EMPTY);
        peer.half_close();
        closed.send(()).expect("a receiver");
        assert_eq!(peer.rest(), 0, "a second request on a closed connection");
    });
    let upstream = script.upstream();
    for round in 1..=200 {
        let reply = ask(&upstream, post("/", "1")).await;
        assert_eq!(reply.expect("an answer").status, 200, "round {round}");
        is_closed.recv().expect("a connection");
    }
    assert_eq!(script.requests().len(), 200);
}

#[tokio::test]
async fn unrequested_bytes_on_an_idle_connection_are_not_a_response() {
    let (written, is_written) = mpsc::channel();
    let script = Script::new(move |number, peer| {
        peer.request();
        peer.say("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n1");
        if number == 1 {
            peer.say("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong");
        }
        written.send(()).expect("a receiver");
        peer.rest();
    });
    let upstream = script.upstream();
    for connections in [1, 2] {
        assert_eq!(ask(&upstream, get("/")).await.expect("an answer").text(), "1");
        is_written.recv().expect("an answer");
        assert_eq!(script.connections(), connections);
    }
}

#[tokio::test]
async fn a_body_beyond_its_length_ends_the_connection() {
    let script = Script::answering("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nfour, and more");
    let upstream = script.upstream();
    for connections in [1, 2, 3] {
        assert_eq!(ask(&upstream, get("/")).await.expect("an answer").text(), "four");
        assert_eq!(script.connections(), connections);
    }
}

#[tokio::test]
async fn the_upstreams_keep_alive_is_respected() {
    for (answer, connections) in [
        (EMPTY, 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nkeep-alive: timeout=5, max=100\r\n\r\n", 1),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nkeep-alive: timeout=0\r\n\r\n", 3),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n", 3),
        ("HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", 3),
    ] {
        let script = Script::answering(answer);
        let upstream = script.upstream();
        for _ in 0..3 {
            ask(&upstream, get("/")).await.expect("an answer");
            tokio::task::yield_now().await;
        }
        assert_eq!(script.connections(), connections, "{answer:?}");
    }
}

#[tokio::test]
async fn protected_requests_can_have_fresh_connections() {
    for (options, connections) in [
        (Options::default(), 1),
        (Options { is_fresh_when_protected: true, ..Options::default() }, 3),
        (Options { idle_time_max_protected: Duration::ZERO, ..Options::default() }, 3),
    ] {
        let script = Script::answering(EMPTY);
        let (upstream, layer) = (script.upstream_with(options.clone()), layer().await);
        // The first request leaves a connection for all requests that may reuse one.
        ask(&upstream, get("/")).await.expect("an answer");
        for key in [KEY, "another-key-0123456789"] {
            assert_eq!(through(&layer, &upstream, keyed("/charges", key)).await.status, 200);
            tokio::task::yield_now().await;
        }
        assert_eq!(script.connections(), connections, "{options:?}");
        ask(&upstream, get("/")).await.expect("an answer");
        assert_eq!(script.connections(), connections, "unprotected requests reuse the connection");
    }
}

#[tokio::test]
async fn no_more_connections_are_kept_than_allowed() {
    let (ended, mut has_ended) = unbounded_channel();
    let script = Script::new(move |_, peer| {
        while peer.request().is_some() {
            peer.say(EMPTY);
        }
        ended.send(()).expect("a receiver");
    });
    let upstream = script.upstream_with(Options { idle_max: 2, ..Options::default() });
    // Heads first, so that no connection is returned before the last one was opened.
    let mut heads = Vec::new();
    let slow = Script::new(|_, peer| {
        while peer.request().is_some() {
            peer.say("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
        }
    });
    let many = slow.upstream_with(Options { idle_max: 2, ..Options::default() });
    for _ in 0..5 {
        heads.push(super::world::head(&many, get("/")).await.expect("a head"));
    }
    assert_eq!(slow.connections(), 5);
    for head in heads {
        super::world::Reply::read(head).await.expect("a body");
    }
    let mut heads = Vec::new();
    for _ in 0..5 {
        heads.push(super::world::head(&many, get("/")).await.expect("a head"));
    }
    assert_eq!(slow.connections(), 8, "two of the five were kept");
    // And no unusable connection is kept.
    ask(&upstream, get("/")).await.expect("an answer");
    drop(upstream);
    has_ended.recv().await.expect("the connection is closed with its pool");
}

/// Connections end at any time: after a few responses, with a request unanswered, or at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn under_load_nothing_is_sent_twice() {
    let arrivals = Arc::new(Mutex::new(BTreeMap::<String, usize>::new()));
    let recorded = Arc::clone(&arrivals);
    let script = Script::new(move |number, peer| {
        for turn in 0..=number % 5 {
            if turn == number % 5 && number % 3 == 0 {
                return;
            }
            let Some(head) = peer.head() else { return };
            let path = head.split(' ').nth(1).expect("a path").to_owned();
            *recorded.lock().expect("no panic").entry(path).or_default() += 1;
            if turn < number % 5 {
                peer.say(EMPTY);
            }
        }
    });
    let upstream = script.upstream();
    let crowd = (0..16).map(|client| {
        let upstream = upstream.clone();
        tokio::spawn(async move {
            let mut results = Vec::new();
            for round in 0..200 {
                let path = format!("/{client}/{round}");
                let reply = ask(&upstream, get(&path)).await.map(|_| ());
                results.push((path, reply));
            }
            results
        })
    });
    let mut results = Vec::new();
    for client in crowd.collect::<Vec<_>>() {
        results.extend(client.await.expect("no panic"));
    }
    let arrivals = arrivals.lock().expect("no panic");
    assert!(arrivals.values().all(|times| *times == 1), "something was sent twice");
    for (path, result) in &results {
        match result {
            Ok(()) => assert!(arrivals.contains_key(path), "{path}"),
            Err(failure) => {
                assert!(!failure.nothing_was_sent() || !arrivals.contains_key(path), "{path}: {failure}");
            }
        }
    }
    let answered = results.iter().filter(|(_, result)| result.is_ok()).count();
    assert!(answered > 0 && answered < results.len(), "{answered} of {}", results.len());
}
