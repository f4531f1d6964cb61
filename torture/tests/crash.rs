//! The torture, run for real: what it finds on the product, and that it finds what was broken on purpose.

use semel_test_support::{PostgresServer, ScratchDir};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Tortures a store of its own.
fn torture(name: &str, arguments: &[&str]) -> Output {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("torture-{name}"));
    if directory.exists() {
        std::fs::remove_dir_all(&directory).expect("what an earlier run left is removed");
    }
    torture_at(&format!("sqlite:{}", directory.join("semel.db").display()), arguments)
}

fn torture_at(store: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_semel-torture"))
        .args(["judge", "--store", store])
        .args(arguments)
        .output()
        .expect("the torture starts")
}

#[test]
fn help_is_an_answer_and_no_error() {
    let output = torture("help", &["--help"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("usage: cargo xtask crash"), "{output:?}");
}

/// The count that a row of the summary gives.
fn count(output: &Output, row: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.trim().strip_prefix(row)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no row `{row}` in:\n{text}"))
}

fn expect_kept(output: &Output, rounds: u64) {
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(told.contains("every promise was kept"), "{told}");
    // A torture that met nothing fails by itself; these are what this test is about.
    assert_eq!(count(output, "rounds"), rounds);
    assert!(count(output, "kills") >= rounds / 2);
    assert!(count(output, "replays verified") > 0);
}

/// The judge finds it, says which promise was broken, and how to see it again.
fn expect_caught(output: &Output, promises: &[&str]) {
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{told}\n{errors}");
    let violated = errors.lines().find_map(|line| line.split_once("VIOLATED: "));
    let (_, violated) = violated.unwrap_or_else(|| panic!("no promise is named:\n{told}\n{errors}"));
    assert!(promises.iter().any(|promise| violated.contains(promise)), "{errors}");
    assert!(errors.contains("seed 11"), "{errors}");
}

#[test]
fn fifty_kills_lose_nothing_that_was_acknowledged_and_run_nothing_twice() {
    expect_kept(&torture("kill", &["--rounds", "50"]), 50);
}

/// The same on a server; and what is broken on purpose is found there as well.
#[cfg(target_os = "linux")]
#[test]
fn thirty_kills_on_a_server_lose_nothing_that_was_acknowledged_and_run_nothing_twice() {
    if !PostgresServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "torture-postgres");
    let server = PostgresServer::start(folder.join("data"));
    expect_kept(&torture_at(&server.url(), &["--rounds", "30"]), 30);
    let broken = torture_at(&server.url(), &["--rounds", "30", "--seed", "11", "--sabotage", "take-over"]);
    expect_caught(&broken, &["happened twice within its key's retention"]);
    let again = torture_at(&server.url(), &["--rounds", "1", "--seed", "11"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("choose another seed"), "{again:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn fifty_power_cuts_lose_nothing_that_was_acknowledged_and_run_nothing_twice() {
    let output = torture("power", &["--rounds", "50", "--lose-unsynced"]);
    expect_kept(&output, 50);
    assert!(count(&output, "writes taken back") > 0);
    assert!(count(&output, "told before a cut") > 0);
}

#[test]
fn an_answer_before_its_outcome_is_stored_is_caught() {
    let output = torture("early", &["--rounds", "50", "--seed", "11", "--sabotage", "answer-early"]);
    expect_caught(
        &output,
        &[
            "an acknowledged outcome is lost",
            // An attempt was begun, or a caller was told otherwise.
            "although an outcome had been acknowledged",
            "two different outcomes",
        ],
    );
}

#[test]
fn a_store_that_is_forgotten_between_two_processes_is_caught() {
    let output = torture("forget", &["--rounds", "50", "--seed", "11", "--sabotage", "forget"]);
    expect_caught(
        &output,
        &[
            "an acknowledged outcome is lost",
            "although an outcome had been acknowledged",
            "two different outcomes",
            "happened twice",
            // The secret that ids are made with was forgotten too.
            "different operation ids",
            // It was taken away under the other of two processes.
            "complained",
            "ended by itself",
        ],
    );
}

#[test]
fn an_effect_that_is_run_again_after_its_owner_died_is_caught() {
    let output = torture("take-over", &["--rounds", "50", "--seed", "11", "--sabotage", "take-over"]);
    expect_caught(&output, &["happened twice within its key's retention"]);
}

#[test]
fn a_key_that_a_dead_process_holds_on_to_is_caught() {
    let output = torture("wedge", &["--rounds", "10", "--seed", "11", "--sabotage", "wedge"]);
    expect_caught(&output, &["a key is wedged"]);
}

#[test]
fn an_unknown_outcome_that_nothing_explains_is_caught() {
    let output = torture("doubt", &["--rounds", "20", "--seed", "11", "--sabotage", "silent-doubt"]);
    expect_caught(&output, &["an outcome is unknown, and nothing explains it"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_only_says_that_it_synced_is_caught() {
    let lies = ["--rounds", "50", "--seed", "11", "--lose-unsynced", "--sabotage", "no-sync"];
    expect_caught(
        &torture("no-sync", &lies),
        &[
            "an acknowledged outcome is lost",
            "although an outcome had been acknowledged",
            "two different outcomes",
            "happened twice",
            "different operation ids",
            "cannot be opened any more",
            "is not sound",
            "complained",
            "ended by itself",
        ],
    );
}
