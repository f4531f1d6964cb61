//! What operations seal and limit for themselves.

use super::{mistakes, one_mistake, parsed};
use crate::config::{Config, Overrides, read};
use semel::sealing::Seal;
use semel_http::Retain;
use std::ffi::OsString;

const KEY: &str = "[[sealing.key]]\nname = \"2026-11\"\nsecret = \"env:GOOD\"\n";

/// A file with a sealing key.
fn with_key(text: &str) -> Config {
    let good = |name: &str| (name == "GOOD").then(|| OsString::from("5a".repeat(32)));
    let read = read(&format!("{text}{KEY}"), &Overrides::default(), &good);
    read.unwrap_or_else(|mistakes| panic!("{mistakes:#?}"))
}

#[test]
fn sealing_without_a_key_is_a_mistake_at_its_line() {
    let words = ["needs a key, but [sealing] has none", "write a [[sealing.key]]"];
    one_mistake("[[operation]]\npath = \"/cards\"\nkept = \"sealed\"\n", "3:1", &words);
    // Once, and not for each operation that inherits it.
    let inherited =
        "[defaults]\nkept = \"sealed\"\n[[operation]]\npath = \"/a\"\n[[operation]]\npath = \"/b\"\n";
    one_mistake(inherited, "2:1", &words);
    // An invalid key is one mistake.
    let missing = format!("[[operation]]\npath = \"/cards\"\nkept = \"sealed\"\n{KEY}");
    one_mistake(&missing, "6:10", &["the environment variable GOOD"]);
    one_mistake("[sealing]\nseals = \"chosen\"\n", "2:1", &["nothing can be sealed", "or remove seals"]);
    one_mistake(
        "[sealing]\nseals = \"some\"\n",
        "2:9",
        &["`seals` cannot be \"some\"", "\"all\" or \"chosen\""],
    );
    one_mistake("[defaults]\nkept = \"some\"\n", "2:8", &["write \"whole\" or \"sealed\" or \"minimal\""]);
    parsed("[sealing]\nseals = \"all\"\n");
}

#[test]
fn everything_is_sealed_unless_only_what_is_chosen_is() {
    let operations = "[[operation]]\npath = \"/cards\"\nkept = \"sealed\"\n\
        [[operation]]\npath = \"/logs\"\n[[operation]]\npath = \"/exports\"\nkept = \"minimal\"\n";
    let seals = |config: &Config| -> Vec<Seal> {
        let operations = config.operations.iter().map(|operation| operation.route_settings.seal);
        operations.chain([config.route_settings.seal]).collect()
    };
    let all = with_key(operations);
    assert_eq!(seals(&all), [Seal::Required, Seal::WithKeys, Seal::WithKeys, Seal::WithKeys]);
    assert!(matches!(all.operations[0].route_settings.retain, Retain::Whole), "as whole, and sealed");
    let chosen = with_key(&format!("{operations}[sealing]\nseals = \"chosen\"\n"));
    assert_eq!(seals(&chosen), [Seal::Required, Seal::Off, Seal::Off, Seal::Off]);
    // An operation's own setting overrides the defaults.
    let inverse = "[defaults]\nkept = \"sealed\"\n[[operation]]\npath = \"/logs\"\nkept = \"whole\"\n";
    let inverse = with_key(&format!("{inverse}[sealing]\nseals = \"chosen\"\n"));
    assert_eq!(seals(&inverse), [Seal::Off, Seal::Required]);
}

#[test]
fn an_operation_has_rates_of_its_own_and_no_caps() {
    let exports = "[[operation]]\npath = \"/exports\"\n[operation.quotas]\n";
    let text = format!(
        "{exports}new_per_caller = \"5/1m\"\nnew_in_total = \"100/1h\"\n[[operation]]\npath = \"/x\"\n"
    );
    let config = parsed(&text);
    let [limited, free] = &config.operations[..] else { panic!("{config:?}") };
    let count = |rate: Option<semel::quota::Rate>| rate.map(|rate| (rate.count.get(), rate.per.as_secs()));
    assert_eq!(count(limited.rates.new_per_caller), Some((5, 60)));
    assert_eq!(
        (count(limited.rates.new_per_address), count(limited.rates.new_in_total)),
        (None, Some((100, 3600)))
    );
    assert!(free.rates.are_off() && config.quotas.are_off());

    one_mistake(&format!("{exports}new_per_caller = \"5\"\n"), "4:18", &["`5` is not a rate", "\"100/1m\""]);
    one_mistake(
        &format!("{exports}new_in_total = \"5/0s\"\n"),
        "4:1",
        &["longer than zero", "change new_in_total"],
    );
    one_mistake(
        &format!("{exports}records_per_caller = 5\n"),
        "4:1",
        &["unknown key `records_per_caller` in [operation.quotas]", "put it under [quotas]"],
    );
    one_mistake(
        &format!("{exports}tracked_max = 5\n"),
        "4:1",
        &["unknown key `tracked_max` in [operation.quotas]", "put it under [quotas]"],
    );
    let off =
        "[[operation]]\npath = \"/exports\"\nkey = \"off\"\n[operation.quotas]\nnew_in_total = \"5/1m\"\n";
    one_mistake(off, "4:12", &["quotas have no effect", "remove quotas, or set key"]);
    one_mistake(
        "[[operation]]\npath = \"/exports\"\nquotas = \"off\"\n",
        "3:10",
        &["`quotas`: expected a table, [operation.quotas], found a string"],
    );
    let everywhere = mistakes("[defaults.quotas]\nnew_in_total = \"5/1m\"\n");
    assert!(everywhere[0].contains("unknown key `quotas` in [defaults]"), "{everywhere:?}");
}
