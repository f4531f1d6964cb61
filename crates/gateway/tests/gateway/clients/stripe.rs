//! The `stripe` package for Python and its own retries, pointed at the demo.

use super::lossy::Lossy;
use super::process::Process;
use super::python::{run, run_text};
use super::world::{folder, serve};
use semel_test_support::ScratchDir;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// `semel serve --demo`, after its story has been printed.
pub(crate) struct Demo {
    pub(crate) gateway: SocketAddr,
    process: Process,
    _folder: ScratchDir,
}

impl Demo {
    pub(crate) fn new() -> Self {
        let folder = folder();
        let process = Process::start(&mut serve(&["--demo"], &folder));
        let gateway = process
            .wait_for(|line| line.trim().strip_prefix("curl http://")?.strip_suffix("/ledger")?.parse().ok());
        Self { gateway, process, _folder: folder }
    }
}

/// The amount that a customer was charged, according to the ledger.
pub(crate) fn charges(gateway: SocketAddr, customer: &str) -> usize {
    let mut stream = TcpStream::connect(gateway).expect("it listens");
    write!(stream, "GET /ledger HTTP/1.1\r\nHost: demo\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    let ledger: Value = serde_json::from_str(body).expect("JSON");
    ledger["charges"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|charge| charge["customer"] == customer)
        .count()
}

#[test]
fn its_own_retry_of_a_lost_answer_charges_once() {
    let demo = Demo::new();
    let gateway = demo.gateway;
    let lossy = Lossy::new(gateway, move || charges(gateway, "cus_lost") > 0);
    if run("scripts/stripe_lost.py", &[&format!("http://{}", lossy.address), "cus_lost"]).is_none() {
        return;
    }
    assert!(lossy.has_lost(), "the first response was lost, so the package retried");
    assert_eq!(charges(gateway, "cus_lost"), 1);
}

#[test]
fn its_retries_of_an_unknown_outcome_charge_nothing_more() {
    let demo = Demo::new();
    if run("scripts/stripe_in_doubt.py", &[&format!("http://{}", demo.gateway), "cus_doubt"]).is_none() {
        return;
    }
    assert_eq!(charges(demo.gateway, "cus_doubt"), 1);
}

/// Runs the demo's example exactly as printed.
#[test]
fn the_demos_stripe_example_works() {
    let demo = Demo::new();
    demo.process.wait_for(|line| line.contains("Stripe's Python package").then_some(()));
    // On a busy machine, two retries may be too few for a timeout of 0.2 s; everything else is as printed.
    let mut program = "import stripe\nstripe.max_network_retries = 20\n".to_owned();
    while !program.contains("print(") {
        program += &demo.process.wait_for(|line| Some(line.trim().to_owned() + "\n"));
    }
    let before = charges(demo.gateway, "anonymous");
    let Some(output) = run_text(&program) else { return };
    assert!(output.contains("\"status\": \"succeeded\""), "{output}");
    assert_eq!(charges(demo.gateway, "anonymous"), before + 1);
}
