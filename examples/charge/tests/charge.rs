//! The example, run and killed for real.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A shop of its own: an empty directory.
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

/// What it says, to the end.
fn says(mut command: Command) -> String {
    let output = command.output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn charges(shop: &Path) -> usize {
    std::fs::read_to_string(shop.join("card.ledger")).expect("the card has a ledger").lines().count()
}

#[test]
fn killed_between_the_charge_and_its_answer_it_neither_charges_twice_nor_forgets() {
    let shop = shop("killed");
    let mut first = charge(&shop, "order-1", "500").stdout(Stdio::piped()).spawn().expect("it starts");
    let mut said = String::new();
    let output = first.stdout.take().expect("its output");
    BufReader::new(output).read_line(&mut said).expect("a line");
    assert!(said.contains("kill me now"), "{said}");
    first.kill().expect("killed");
    first.wait().expect("dead");
    assert_eq!(charges(&shop), 1);

    // Until the dead process's lease is over, its order counts as under way.
    let told =
        (0..20).map(|_| says(charge(&shop, "order-1", "500"))).find(|told| !told.contains("under way"));
    let told = told.expect("an answer once the lease is over");
    assert!(told.contains("order-1 may be charged") && told.contains("will not be charged again"), "{told}");
    assert_eq!(charges(&shop), 1, "the card was not charged again");
    let again = says(charge(&shop, "order-1", "500"));
    assert_eq!(again, told, "and never will be by itself");
    assert_eq!(charges(&shop), 1);
}

#[test]
fn run_again_after_its_end_it_gives_the_same_receipt_and_charges_nothing() {
    let shop = shop("again");
    let first = says(charge(&shop, "order-2", "700"));
    let (_, receipt) = first.rsplit_once("order-2 is charged: ").expect("charged");
    let again = says(charge(&shop, "order-2", "700"));
    assert_eq!(again, format!("order-2 was charged before: {receipt}"));
    let other = says(charge(&shop, "order-2", "70000"));
    assert!(other.contains("bound to another payload"), "{other}");
    assert_eq!(charges(&shop), 1);
}
