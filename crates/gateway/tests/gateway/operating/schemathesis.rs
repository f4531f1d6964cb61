//! Schemathesis on the description of the admin address: nothing fails, and every response matches the description.

use crate::tools;
use crate::world::{Gateway, Scratch};
use semel_test_support::client::TestRequest;
use semel_test_support::upstream::{Act, Upstream, response};
use std::path::Path;
use std::process::Command;

/// What a schema cannot express, and schemathesis cannot know: valid cursors, and keys that are too weak.
const UNKNOWABLE: &str = "positive_data_acceptance";

fn schemathesis(python: &Path, scratch: &Scratch, settings: &str, url: &str, more: &[&str]) -> u32 {
    let config = scratch.write("schemathesis.toml", settings);
    let mut command = Command::new(python.with_file_name("schemathesis"));
    command.arg("--config-file").arg(config).args([
        "run",
        url,
        "--checks",
        "all",
        "--exclude-checks",
        UNKNOWABLE,
    ]);
    command.args(["--phases", "examples,coverage,fuzzing", "--max-examples", "20", "--seed", "1"]);
    // Its own database of examples would affect the next run.
    command.args(more).current_dir(config_folder(scratch)).env("NO_COLOR", "1");
    let output = super::run(&mut command);
    let cases = output.lines().find_map(|line| line.trim().split_once(" generated, "));
    let (generated, passed) = cases.unwrap_or_else(|| panic!("no count of cases in {output}"));
    assert_eq!(format!("{generated} passed"), passed, "{output}");
    generated.parse().expect("a number")
}

fn config_folder(scratch: &Scratch) -> std::path::PathBuf {
    scratch.config().parent().expect("a folder").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_of_the_admin_address_is_as_it_is_described() {
    let Some(python) = tools::python() else { return };
    let scratch = Scratch::new();
    let upstream = Upstream::start(|seen| match seen.number % 3 {
        0 => Act::End,
        1 => Act::Say(response("201 Created", &[("location", "/charges/1")], "charged")),
        _ => Act::Say(response("429 Too Many Requests", &[], "later")),
    })
    .await;
    let mut gateway = Gateway::start(&scratch, upstream.address, &["--admin", "127.0.0.1:0"]);
    let admin = gateway.admin();
    let mut ids = Vec::new();
    for number in 0..12 {
        let ask = TestRequest::post("/charges").key(&format!("a-key-of-its-own-{number:04}"));
        let reply = ask.send(gateway.address).await.expect("an answer");
        ids.push(reply.header("operation-id").expect("an id").to_owned());
    }
    let url = format!("http://{admin}/openapi.json");
    let tried = schemathesis(&python, &scratch, "", &url, &[]);
    assert!(tried > 300, "{tried}");
    // The same for existing records, one of each state.
    for id in &ids[..3] {
        let settings = format!("[parameters]\n\"path.id\" = \"{id}\"\n");
        let tried = schemathesis(&python, &scratch, &settings, &url, &["--include-path-regex", "\\{id\\}"]);
        assert!(tried > 50, "{tried}");
    }
    assert_eq!(
        TestRequest::get("/readyz").send(admin).await.expect("an answer").status,
        200,
        "the gateway is not ready after the run"
    );
}
