//! The demo leaves an outcome unknown, and prints the command that settles it.

use crate::world::semel;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Ended with its test.
struct Demo(Child);

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The head of the response to the second umbrella's request.
fn second_umbrella(gateway: &str) -> String {
    let body = "amount=2500&currency=eur";
    let mut stream = TcpStream::connect(gateway).expect("it listens");
    write!(
        stream,
        "POST /charges HTTP/1.1\r\nHost: {gateway}\r\nConnection: close\r\nIdempotency-Key: my-second-umbrella\r\n\
         Demo-Trouble: hang-up\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn the_printed_command_settles_what_the_demo_left_unknown() {
    let mut started = Command::new(env!("CARGO_BIN_EXE_semel"))
        .args(["serve", "--demo", "--listen", "127.0.0.1:0"])
        // The demo has its own service, store and terms; as terms of `serve`, these would be refused.
        .envs([
            ("SEMEL_UPSTREAM", "http://127.0.0.1:1"),
            ("SEMEL_STORE", "redis://127.0.0.1:1"),
            ("SEMEL_TTL", "1s"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("semel starts");
    let output = started.stdout.take().expect("piped");
    let _demo = Demo(started);
    let mut lines = BufReader::new(output).lines().map_while(Result::ok);
    let mut next = |start: &str| {
        let found = lines.find_map(|line| Some(line.trim().strip_prefix(start)?.to_owned()));
        found.unwrap_or_else(|| panic!("{start} is not printed"))
    };
    let gateway = next("curl http://").split('/').next().expect("an address").to_owned();
    // By the path that it was started by: it need not be in PATH.
    let first = next(concat!(env!("CARGO_BIN_EXE_semel"), " records resolve "));
    let reason = next("--outcome applied --reason ");
    let admin = next("--admin ");
    // As a shell splits it: without the continuation, and without the quotes.
    assert_eq!(first, "--operation 'POST /charges' \\");
    let reason = reason.trim_end_matches(" \\").trim_matches('\'').to_owned();
    // If nobody reads the rest, the demo ends.
    std::thread::spawn(move || lines.for_each(drop));

    assert!(second_umbrella(&gateway).starts_with("HTTP/1.1 502 "));
    assert!(second_umbrella(&gateway).contains("IDEMPOTENCY_OUTCOME_UNKNOWN"));
    let arguments = ["records", "resolve", "--operation", "POST /charges", "--outcome", "applied"];
    let more = ["--reason", &reason, "--admin", &admin, "--yes"];
    let ran = semel(&[&arguments[..], &more].concat());
    assert!(ran.out.contains("1 record was resolved"), "{ran:?}");
    let settled = second_umbrella(&gateway);
    assert!(settled.contains("IDEMPOTENCY_RESPONSE_NOT_RETAINED"), "{settled}");
}
