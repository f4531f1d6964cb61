//! Runs the crash test: on the product, and with deliberate faults that it must find.

use semel_test_support::{PostgresServer, ScratchDir};
use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs it on a new store.
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
fn help_is_not_an_error() {
    let output = torture("help", &["--help"]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Usage: cargo xtask crash"), "{output:?}");
}

/// The count in a row of the summary.
fn count(output: &Output, row: &str) -> u64 {
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.trim().strip_prefix(row)?.trim().parse().ok());
    found.unwrap_or_else(|| panic!("no row `{row}` in:\n{text}"))
}

fn assert_promises_kept(output: &Output, rounds: u64) {
    let (output_text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{output_text}\n{errors}");
    assert!(output_text.contains("every promise was kept"), "{output_text}");
    // A run that met nothing fails by itself; these counts are what this test is about.
    assert_eq!(count(output, "rounds"), rounds);
    assert!(count(output, "kills") >= rounds / 2);
    assert!(count(output, "replays verified") > 0);
}

/// The judge finds the fault, and prints the broken promise and the seed.
fn assert_violation_found(output: &Output, promises: &[&str]) {
    let (output_text, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{output_text}\n{errors}");
    let violated = errors.lines().find_map(|line| line.split_once("VIOLATED: "));
    let (_, violated) = violated.unwrap_or_else(|| panic!("no promise is named:\n{output_text}\n{errors}"));
    assert!(promises.iter().any(|promise| violated.contains(promise)), "{errors}");
    assert!(errors.contains("seed 11"), "{errors}");
}

#[test]
fn fifty_kills_lose_nothing_acknowledged_and_run_nothing_twice() {
    assert_promises_kept(&torture("kill", &["--rounds", "50"]), 50);
}

/// The same on a server, including a deliberate fault.
#[cfg(target_os = "linux")]
#[test]
fn thirty_kills_on_a_server_lose_and_repeat_nothing() {
    if !PostgresServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "torture-postgres");
    let server = PostgresServer::start(folder.join("data"));
    assert_promises_kept(&torture_at(&server.url(), &["--rounds", "30"]), 30);
    let broken = torture_at(&server.url(), &["--rounds", "30", "--seed", "11", "--sabotage", "take-over"]);
    assert_violation_found(&broken, &["happened twice within its key's retention"]);
    let again = torture_at(&server.url(), &["--rounds", "1", "--seed", "11"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("choose another seed"), "{again:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn fifty_power_cuts_lose_nothing_acknowledged_and_run_nothing_twice() {
    let output = torture("power", &["--rounds", "50", "--lose-unsynced"]);
    assert_promises_kept(&output, 50);
    assert!(count(&output, "writes discarded") > 0);
    assert!(count(&output, "read before a cut") > 0);
}

#[test]
fn an_answer_before_its_outcome_is_stored_is_caught() {
    let output = torture("early", &["--rounds", "50", "--seed", "11", "--sabotage", "answer-early"]);
    assert_violation_found(
        &output,
        &[
            "an acknowledged outcome is lost",
            // An attempt was started, or a caller got another answer.
            "although an outcome had been acknowledged",
            "two different outcomes",
        ],
    );
}

#[test]
fn a_store_that_is_forgotten_between_two_processes_is_caught() {
    let output = torture("forget", &["--rounds", "50", "--seed", "11", "--sabotage", "forget"]);
    assert_violation_found(
        &output,
        &[
            "an acknowledged outcome is lost",
            "although an outcome had been acknowledged",
            "two different outcomes",
            "happened twice",
            // The secret that IDs are derived from was lost too.
            "different operation ids",
            // It was removed while the other of two processes was running.
            "printed an error",
            "ended by itself",
        ],
    );
}

#[test]
fn an_effect_repeated_after_its_owner_died_is_caught() {
    let output = torture("take-over", &["--rounds", "50", "--seed", "11", "--sabotage", "take-over"]);
    assert_violation_found(&output, &["happened twice within its key's retention"]);
}

#[test]
fn a_key_held_by_a_dead_process_is_caught() {
    let output = torture("wedge", &["--rounds", "10", "--seed", "11", "--sabotage", "wedge"]);
    assert_violation_found(&output, &["a key is wedged"]);
}

#[test]
fn an_unexplained_unknown_outcome_is_caught() {
    let output = torture("doubt", &["--rounds", "20", "--seed", "11", "--sabotage", "silent-doubt"]);
    assert_violation_found(&output, &["an outcome is unknown, and nothing explains it"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_falsely_reports_a_sync_is_caught() {
    let arguments = ["--rounds", "50", "--seed", "11", "--lose-unsynced", "--sabotage", "no-sync"];
    assert_violation_found(
        &torture("no-sync", &arguments),
        &[
            "an acknowledged outcome is lost",
            "although an outcome had been acknowledged",
            "two different outcomes",
            "happened twice",
            "different operation ids",
            "can no longer be opened",
            "is not intact",
            "printed an error",
            "ended by itself",
        ],
    );
}
