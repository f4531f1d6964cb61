//! The story, printed to a file.

use super::world::{World, get};
use semel_gateway::demo::story::{self, Balance, Totals};
use semel_http::{KeyRule, Layer, RouteSettings};
use std::collections::BTreeMap;

async fn play(world: &World) -> (Balance, String) {
    let stage = world.stage();
    // In its own task, like a server that keeps serving.
    let telling = tokio::spawn(async move {
        let mut out = Vec::new();
        story::play(stage, &mut out).await.map(|balance| (balance, out))
    });
    let (balance, mut out) = telling.await.expect("no panic").expect("a story");
    story::print_commands("semel", &balance, world.gateway, Some(world.gateway), false, &mut out)
        .expect("an invitation");
    (balance, String::from_utf8(out).expect("UTF-8"))
}

fn totals_line(how: &str, Totals { intents, attempts, charges, .. }: Totals) -> String {
    format!("{how:<13}  {intents} intents, {attempts} attempts, {charges:>2} charges: ")
}

/// The amount charged beyond the orders, as printed.
fn overcharged(balance: &Balance, totals: Totals) -> String {
    let cents = totals.taken - balance.wanted();
    format!("{}.{:02}", cents / 100, cents % 100)
}

#[tokio::test]
async fn only_with_semel_every_intent_is_one_charge() {
    let world = World::new().await;
    let (balance, text) = play(&world).await;
    assert!(balance.is_balanced(), "{text}");
    let (without, with) = (balance.without(), balance.with());
    assert_eq!((with.intents, with.charges, with.taken), (8, 8, balance.wanted()));
    assert_eq!(with.attempts, world.posts(), "the clients' count equals the number of requests");
    assert!(with.attempts > 8, "somebody retried");
    assert_eq!(without.intents, 8);
    assert!(without.charges > 8 && without.taken > balance.wanted(), "{without:?}");

    // The printed numbers match the counted ones, and those match the ledger.
    assert!(text.contains(&format!("{}balanced", totals_line("with Semel", with))), "{text}");
    assert!(
        text.contains(&format!(
            "{}{} too much",
            totals_line("without Semel", without),
            overcharged(&balance, without)
        )),
        "{text}"
    );
    let ledger = get(world.gateway, "/ledger").await.json();
    assert_eq!(ledger["count"], with.charges);
    let charges = ledger["charges"].as_array().expect("a list");
    let amount = |row: &story::Row| (row.customer.clone(), row.amount);
    let charged = charges.iter().map(|charge| {
        (charge["customer"].as_str().expect("a name").to_owned(), charge["amount"].as_u64().expect("cents"))
    });
    assert_eq!(charged.collect::<BTreeMap<_, _>>(), balance.rows.iter().map(amount).collect());
}

/// The numbers are not hard-coded: the same story without protection prints other ones.
#[tokio::test]
async fn a_gateway_that_protects_nothing_is_found_out() {
    let unprotected = RouteSettings { key: KeyRule::Off, ..RouteSettings::default() };
    let world = World::with(|engine| Layer::new(engine, unprotected).expect("valid settings")).await;
    let (balance, text) = play(&world).await;
    assert!(!balance.is_balanced());
    let with = balance.with();
    assert!(with.charges > 8, "{with:?}");
    assert!(
        text.contains(&format!(
            "{}{} too much",
            totals_line("with Semel", with),
            overcharged(&balance, with)
        )),
        "{text}"
    );
    assert!(!text.contains("replayed ch_"), "{text}");
}

#[tokio::test]
async fn each_client_hears_what_the_contract_promises() {
    let world = World::new().await;
    let (balance, text) = play(&world).await;
    let acts = text.split_once("through Semel").expect("two halves").1;
    let replies = |customer: &str| -> Vec<(String, &str)> {
        let key = &balance.rows.iter().find(|row| row.customer == customer).expect("they appear").key[..6];
        let requests = acts.lines().filter(|line| line.contains(&format!("{customer:<4} {key} ")));
        requests.map(last_columns).collect()
    };
    let is_one = |replies: &[(String, &str)]| {
        let mut charges: Vec<&str> =
            replies.iter().map(|(_, charge)| *charge).filter(|id| !id.is_empty()).collect();
        charges.dedup();
        charges.len() == 1
    };
    for (customer, expected) in [
        ("ada", &["- lost", "201 replayed"][..]),
        ("ben", &["201 ran", "201 replayed", "201 replayed"]),
        ("cleo", &["- lost", "201 replayed"]),
        ("dan", &["201 ran", "201 replayed", "201 replayed"]),
        ("eve", &["201 ran", "422 refused"]),
        ("fay", &["502 in doubt", "409 unknown", "201 replayed"]),
        ("gus", &["502 in doubt", "409 unknown", "201 ran"]),
        ("hal", &["503 not run", "201 ran"]),
    ] {
        let replies = replies(customer);
        assert_eq!(replies.iter().map(|(play, _)| play).collect::<Vec<_>>(), expected, "{customer}: {text}");
        assert!(is_one(&replies), "every receipt of {customer} is the same: {replies:?}");
    }
}

/// The status with its description, and the charge on the receipt.
fn last_columns(line: &str) -> (String, &str) {
    let mut words: Vec<&str> = line.get(58..).expect("a status").split_whitespace().collect();
    let charge = words.pop_if(|word| word.starts_with("ch_")).unwrap_or_default();
    (words.join(" "), charge)
}

#[tokio::test]
async fn only_ids_and_addresses_differ_between_runs() {
    let (one, other) = tokio::join!(anonymous(), anonymous());
    assert_eq!(one, other);
}

/// The story without its ids, keys and addresses.
async fn anonymous() -> String {
    let world = World::new().await;
    let (balance, mut text) = play(&world).await;
    for charge in balance.rows.iter().flat_map(|row| &row.with.charges) {
        text = text.replace(charge.operation_id.as_deref().expect("it came through the gateway"), "ID");
    }
    for (number, row) in balance.rows.iter().enumerate() {
        text = text.replace(&row.key, "KEY").replace(&row.key[..6], &format!("KEY{number:<3}"));
    }
    text.replace(&world.gateway.to_string(), "GATEWAY")
        .replace(&world.payments.address().to_string(), "PAYMENTS")
}

#[tokio::test]
async fn it_fits_80_columns_without_control_characters() {
    let world = World::new().await;
    let (_, text) = play(&world).await;
    for line in text.lines() {
        // With the longest address that a port can produce.
        let spare = 5 - world.gateway.port().to_string().len();
        let addresses = line.matches(&world.gateway.to_string()).count();
        assert!(line.chars().count() + spare * addresses <= 80, "{line}");
        assert!(!line.contains(char::is_control), "{line:?}");
        assert_eq!(line, line.trim_end(), "trailing spaces");
    }
}

#[tokio::test]
async fn commands_name_the_program_as_it_was_started() {
    let world = World::new().await;
    let (balance, _) = play(&world).await;
    let mut out = Vec::new();
    story::print_commands("./semel", &balance, world.gateway, Some(world.gateway), false, &mut out)
        .expect("an invitation");
    let text = String::from_utf8(out).expect("UTF-8");
    assert!(text.contains("  ./semel records resolve --operation 'POST /charges' \\\n"), "{text}");
}

#[tokio::test]
async fn with_colours_it_says_the_same() {
    let world = World::new().await;
    let (plain, coloured) = (&mut Vec::new(), &mut Vec::new());
    let balance = story::play(world.stage(), &mut Vec::new()).await.expect("a story");
    let admin = Some(world.gateway);
    story::print_commands("semel", &balance, world.gateway, admin, false, plain).expect("an invitation");
    story::print_commands("semel", &balance, world.gateway, admin, true, coloured).expect("an invitation");
    let mut stripped = String::new();
    for (index, part) in str::from_utf8(coloured).expect("UTF-8").split('\u{1b}').enumerate() {
        stripped += if index == 0 { part } else { part.split_once('m').expect("a colour").1 };
    }
    assert_ne!(plain, coloured);
    assert_eq!(stripped.as_bytes(), plain);
}

#[tokio::test]
async fn the_ledger_is_what_stays_on_a_screen_of_24_lines() {
    let world = World::new().await;
    let mut out = Vec::new();
    let stage = story::Stage { keeps_running: true, ..world.stage() };
    story::play(stage, &mut out).await.expect("a story");
    let text = String::from_utf8(out).expect("UTF-8");
    // The cursor is on the last line.
    let lines: Vec<_> = text.lines().collect();
    let screen = lines[lines.len() - 23..].join("\n");
    for part in
        ["own ledger, in EUR", "wants to pay", "ada ", "hal ", "sum ", "balanced", "Ctrl-C ends the demo"]
    {
        assert!(screen.contains(part), "{part} is not on the screen:\n{screen}");
    }
    assert!(text.find("curl -i").expect("commands") < text.find("own ledger, in EUR").expect("a ledger"));
}
