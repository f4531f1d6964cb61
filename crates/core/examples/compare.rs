//! Compares two JSON bodies as Semel does: `cargo run -p semel-core --example compare -- '{"a": 1.0}' '{"a":1}'`

use semel_core::fingerprint::{Fingerprint, Limits, Request, Selection};
use std::error::Error;

fn fingerprint(body: &str) -> Result<Fingerprint, Box<dyn Error>> {
    let request = Request::new("POST", "charge", "/charges", body.as_bytes());
    let request = Request { content_type: &[b"application/json"], ..request };
    Ok(request.fingerprint(&Selection::default(), &Limits::default())?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [one, two] = &arguments[..] else { return Err("usage: compare JSON JSON".into()) };
    let (first, second) = (fingerprint(one)?, fingerprint(two)?);
    println!("{}\n{}", first.to_hex(), second.to_hex());
    println!("{}", if first == second { "the same request" } else { "two different requests" });
    Ok(())
}
