//! The connection to an admin address: tokens, TLS, and invalid responses.

use crate::upstream::request;
use crate::world::{Gateway, RunResult, World, command, key, run, semel};
use std::io::{BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::thread::JoinHandle;

/// Answers one request with `response`, and returns the request.
pub(crate) fn once(response: String) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut head = vec![0; 4096];
        let read = stream.peek(&mut head).expect("a request");
        head.truncate(read);
        request(&mut BufReader::new(stream.try_clone().expect("a second handle")));
        drop(stream.write_all(response.as_bytes()));
        drop(stream.shutdown(std::net::Shutdown::Write));
        // Reads until the client disconnects, so that a reset cannot overtake the response.
        drop(stream.read_to_end(&mut Vec::new()));
        String::from_utf8(head).expect("text")
    });
    (url, server)
}

pub(crate) fn json(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[test]
fn a_token_is_never_read_from_the_command_line() {
    let none = json("200 OK", "{\"records\":[]}");
    let (url, server) = once(none.clone());
    let mut from_environment = command(&["records", "list", "--admin", &url]);
    from_environment.env("SEMEL_ADMIN_TOKEN", "s3cret");
    run(from_environment).exits(0);
    assert!(
        server
            .join()
            .expect("a request")
            .to_ascii_lowercase()
            .contains("\r\nauthorization: bearer s3cret\r\n")
    );

    let scratch = crate::world::Scratch::new();
    let file = scratch.write("token", "fr0m-file\n");
    let (url, server) = once(none.clone());
    let mut from_file = command(&["records", "list", "--token-file", &file]);
    from_file.env("SEMEL_ADMIN_TOKEN", "s3cret").env("SEMEL_ADMIN_URL", &url);
    run(from_file).exits(0);
    assert!(
        server
            .join()
            .expect("a request")
            .to_ascii_lowercase()
            .contains("\r\nauthorization: bearer fr0m-file\r\n")
    );

    let (url, server) = once(none);
    semel(&["records", "list", "--admin", &url]).exits(0);
    assert!(!server.join().expect("a request").to_ascii_lowercase().contains("authorization"));

    semel(&["records", "list", "--token", "s3cret"]).exits(2);
    let empty = scratch.write("empty", " \n");
    semel(&["records", "list", "--token-file", &empty]).exits(2);
}

#[test]
fn the_response_decides_the_exit_code() {
    let problem = |code: &str, detail: &str| format!("{{\"code\":\"{code}\",\"detail\":\"{detail}\"}}");
    let ask = |response: String| -> RunResult {
        let (url, server) = once(response);
        let ran = semel(&["records", "show", "00000000-0000-8000-8000-000000000000", "--admin", &url]);
        server.join().expect("a request");
        ran
    };
    let refused = ask(json("401 Unauthorized", &problem("UNAUTHENTICATED", "Send a token."))).exits(1);
    assert!(refused.err.contains("SEMEL_ADMIN_TOKEN"), "{refused:?}");
    ask(json("403 Forbidden", &problem("FORBIDDEN", "Not with this one."))).exits(1);
    ask(json("404 Not Found", &problem("OPERATION_NOT_FOUND", "None."))).exits(3);
    ask(json("404 Not Found", &problem("PATH_NOT_FOUND", "None."))).exits(1);
    ask(json("409 Conflict", &problem("RECORD_UNREADABLE", "Damaged."))).exits(4);
    ask(json("503 Service Unavailable", &problem("X", "Down."))).exits(1);
    let page = ask("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>".to_owned()).exits(1);
    assert!(page.err.contains("is this an admin address?"), "{page:?}");
    ask("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned()).exits(1);
    ask(String::new()).exits(1);
    let steering = ask(json("409 Conflict", &problem("X", "a\\u001b[2Jb"))).exits(4);
    assert!(!steering.err.contains('\u{1b}'), "{steering:?}");
}

#[test]
fn a_token_shows_stored_responses_only_on_request() {
    let record = r#"{"operationId":"x","fingerprint":"f1ngerprint","response":{"protocol":"http","status":200,"retained":true,
        "headers":[["x-card","4711"]],"body":"card 4711"},"history":[]}"#;
    for (more, is_shown) in
        [(&[][..], false), (&["--json"], false), (&["--body"], true), (&["--body", "--json"], true)]
    {
        let (url, server) = once(json("200 OK", record));
        let show = ["records", "show", "00000000-0000-8000-8000-000000000000", "--admin", &url];
        let output = semel(&[&show[..], more].concat()).exits(0).out;
        server.join().expect("a request");
        assert_eq!(output.contains("4711"), is_shown, "{more:?}: {output}");
        assert!(is_shown || !output.contains("f1ngerprint"), "{output}");
    }
}

#[test]
fn an_https_address_is_believed_by_its_certificate_only() {
    let world = World::new();
    let id = world.post("/charges", Some(&key(1)), "{}");
    let issued = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let certificate = world.scratch.write("cert.pem", issued.cert.pem());
    let private = world.scratch.write("key.pem", issued.signing_key.serialize_pem());
    // A gateway that protects nothing, with TLS, before the admin address.
    let (admin, store) =
        (world.gateway.admin.expect("it has an admin address"), world.scratch.path("front.db"));
    let front = format!(
        "[listen]\ntls_cert = '{certificate}'\ntls_key = '{private}'\n[upstream]\nurl = \"http://{admin}\"\nhost = \"target\"\n\
         [store]\nurl = 'sqlite:{}'\n[defaults]\nkey = \"off\"\n",
        store.display()
    );
    let front = Gateway::start(&["--config", &world.scratch.write("front.toml", front)]);
    let url = format!("https://localhost:{}", front.address.port());
    let listed = semel(&["records", "list", "--json", "--admin", &url, "--ca", &certificate]).exits(0).json();
    assert_eq!(listed["records"][0]["operationId"], id.id());
    let unknown = semel(&["records", "list", "--admin", &url]).exits(1);
    assert!(unknown.err.contains("TLS") || unknown.err.contains("certificate"), "{unknown:?}");
    let other_name = format!("https://127.0.0.1:{}", front.address.port());
    let other_name = semel(&["records", "list", "--admin", &other_name, "--ca", &certificate]).exits(1);
    assert!(other_name.err.contains("TLS"), "{other_name:?}");
}

#[test]
fn json_from_another_service_is_recognised() {
    let id = "00000000-0000-8000-8000-000000000000";
    let commands: [&[&str]; 4] = [
        &["records", "list"],
        &["records", "show", id],
        &["records", "show", id, "--json"],
        &["records", "release", id, "--reason", "to see"],
    ];
    for body in ["[1]", "\"hello\"", "7", "null", "{\"hello\":1}"] {
        for command in commands {
            let (url, server) = once(json("200 OK", body));
            let ran = semel(&[command, &["--admin", &url]].concat()).exits(1);
            server.join().expect("a request");
            assert!(ran.err.contains("is this an admin address?") && ran.out.is_empty(), "{body}: {ran:?}");
        }
    }
}

#[test]
fn a_record_without_an_answer_is_shown_as_it_came() {
    let record = r#"{"operationId":"x","state":"CLAIMED","history":[]}"#;
    let (url, server) = once(json("200 OK", record));
    let show = ["records", "show", "00000000-0000-8000-8000-000000000000", "--json", "--admin", &url];
    let shown = semel(&show).exits(0).json();
    server.join().expect("a request");
    assert_eq!(shown, serde_json::from_str::<serde_json::Value>(record).expect("a document"));
}
