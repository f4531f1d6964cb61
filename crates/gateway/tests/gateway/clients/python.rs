//! Python's clients: `requests`, which retries by itself, and `httpx`, which speaks HTTP/2.

use super::world::{Language, World, source};
use crate::tools;
use std::ffi::OsStr;
use std::process::Command;

/// Runs a script to its end. The script itself checks its results and fails.
pub(crate) fn run(script: &str, arguments: &[&str]) -> Option<()> {
    let script = source(script);
    let arguments = [script.as_os_str()].into_iter().chain(arguments.iter().map(OsStr::new));
    let output = python(arguments)?;
    assert!(output.ends_with("done\n"), "{output}");
    Some(())
}

/// Runs a few lines, and returns what they printed.
pub(crate) fn run_text(program: &str) -> Option<String> {
    python(["-c", program])
}

fn python<'a>(arguments: impl IntoIterator<Item = impl AsRef<OsStr> + 'a>) -> Option<String> {
    let output = Command::new(tools::python()?).args(arguments).output().expect("Python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn requests_sends_a_lost_request_again_and_it_is_done_once() {
    let Some(world) = World::new(Language::InPython) else { return };
    let lossy = world.lossy();
    let (way, direct) = (format!("http://{}", lossy.address), format!("http://{}", world.gateway));
    if run("scripts/lost_requests.py", &[&way, &direct]).is_none() {
        return;
    }
    assert!(lossy.has_lost());
    assert_eq!(world.ledger().len(), 1);
}

#[test]
fn httpx_over_http_2_gets_a_lost_answer_again() {
    let Some(world) = World::with_tls(Language::InNode) else { return };
    let lossy = world.lossy();
    let (way, direct) = (format!("https://{}", lossy.address), format!("https://{}", world.gateway));
    let certificate = world.certificate();
    if run("scripts/lost_httpx.py", &[&way, &direct, certificate.to_str().expect("text")]).is_none() {
        return;
    }
    assert!(lossy.has_lost());
    assert_eq!(world.ledger().len(), 2, "one effect per key");
}
