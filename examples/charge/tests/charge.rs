//! Runs the example, and kills it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A new, empty directory.
fn shop(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("charge-{name}"));
    if directory.exists() {
        std::fs::remove_dir_all(&directory).expect("what an earlier run left is removed");
    }
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

fn charge(shop: &Path, order: &str, cents: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_charge"));
    command.current_dir(shop).args([order, cents]);
    command
}

/// The complete output.
fn output_of(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn charges(shop: &Path) -> usize {
    std::fs::read_to_string(shop.join("card.ledger")).expect("the card has a ledger").lines().count()
}

#[test]
fn a_kill_after_the_charge_neither_repeats_nor_loses_it() {
    let shop = shop("killed");
    let mut first = charge(&shop, "order-1", "500").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    let output = first.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert!(line.contains("kill me now"), "{line}");
    first.kill().expect("killed");
    first.wait().expect("dead");
    assert_eq!(charges(&shop), 1);

    // Until the dead process's lease is over, its order counts as running.
    let report = (0..20)
        .map(|_| output_of(charge(&shop, "order-1", "500")))
        .find(|report| !report.contains("another attempt is running"));
    let report = report.expect("an answer once the lease is over");
    assert!(
        report.contains("order-1 may be charged") && report.contains("will not be charged again"),
        "{report}"
    );
    assert_eq!(charges(&shop), 1, "the card was not charged again");
    let again = output_of(charge(&shop, "order-1", "500"));
    assert_eq!(again, report, "and never will be by itself");
    assert_eq!(charges(&shop), 1);
}

#[test]
fn a_second_run_returns_the_same_receipt_without_charging() {
    let shop = shop("again");
    let first = output_of(charge(&shop, "order-2", "700"));
    let (_, receipt) = first.rsplit_once("order-2 is charged: ").expect("charged");
    let again = output_of(charge(&shop, "order-2", "700"));
    assert_eq!(again, format!("order-2 was charged before: {receipt}"));
    let other = output_of(charge(&shop, "order-2", "70000"));
    assert!(other.contains("bound to another payload"), "{other}");
    assert_eq!(charges(&shop), 1);
}
