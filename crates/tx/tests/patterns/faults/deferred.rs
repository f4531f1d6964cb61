//! Constraints that only the commit checks, in a batch on PostgreSQL.

use crate::world::{Pg, World, message};
use semel_tx::patterns::{Inbox, Message};

/// A payment belongs to an account, and may be written before it.
async fn bank() -> Pg {
    let world = Pg::new().await;
    world.sql("CREATE TABLE {t:accounts} (id bigint PRIMARY KEY)").await;
    world
        .sql(
            "CREATE TABLE {t:payments} (name text, account bigint REFERENCES {t:accounts} (id) DEFERRABLE INITIALLY DEFERRED, \
             CONSTRAINT named CHECK (name <> ''))",
        )
        .await;
    world.sql("INSERT INTO {t:accounts} VALUES (7)").await;
    world
}

/// Each message is a payment to the account in its body; `new` opens one afterwards, and `bad` fails itself.
async fn pay(world: &Pg, messages: &[Message]) -> Vec<bool> {
    let mut connection = world.pool().acquire().await.expect("a connection");
    let (payments, accounts) = (world.table("payments"), world.table("accounts"));
    let inbox = Inbox::new("billing").tables(world.tables());
    let results = inbox.batch(&mut *connection, messages, move |tx, message| {
        let (id, body) = (message.id().as_str(), String::from_utf8_lossy(message.body()));
        let account = match &*body {
            "7" => 7,
            "new" => 8,
            _ => 9,
        };
        let pay = format!("INSERT INTO {payments} VALUES ('{id}', {account})");
        let open = (body == "new").then(|| format!("INSERT INTO {accounts} VALUES ({account})"));
        let fails = body == "bad";
        Box::pin(async move {
            Pg::run(tx, pay).await?;
            if let Some(open) = open {
                Pg::run(tx, open).await?;
            }
            if fails { Err("the message is bad".into()) } else { Ok(()) }
        })
    });
    results.await.expect("the others are processed").iter().map(Result::is_ok).collect()
}

async fn assert_marked(world: &Pg, expected: &[&str]) {
    for table in ["SELECT count(*) FROM {o:inbox_marks}", "SELECT count(*) FROM {t:payments}"] {
        assert_eq!(world.ask(table).await, i64::try_from(expected.len()).expect("few"), "{table}");
    }
    for id in expected {
        let both = format!(
            "SELECT count(*) FROM {{o:inbox_marks}} JOIN {{t:payments}} ON name = message_id WHERE name = '{id}'"
        );
        assert_eq!(world.ask(&both).await, 1, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_commit_would_refuse_fails_alone() {
    for at in 0..4 {
        let world = bank().await;
        let batch: Vec<Message> = (0..4)
            .map(|number| message(&format!("m-{number}"), if number == at { "missing" } else { "7" }))
            .collect();
        let expected: Vec<bool> = (0..4).map(|number| number != at).collect();
        assert_eq!(pay(&world, &batch).await, expected);
        let ids: Vec<String> =
            (0..4).filter(|number| *number != at).map(|number| format!("m-{number}")).collect();
        assert_marked(&world, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_refused_at_commit_fails_beside_another_failure() {
    let world = bank().await;
    let batch = [
        message("a", "7"),
        message("b", "bad"),
        message("c", "missing"),
        message("d", "7"),
        message("e", "7"),
    ];
    assert_eq!(pay(&world, &batch).await, [true, false, false, true, true]);
    assert_marked(&world, &["a", "d", "e"]).await;
}

/// A constraint that is checked early for one message is still deferred for the next.
#[tokio::test(flavor = "multi_thread")]
async fn work_may_continue_to_defer_its_constraints() {
    let world = bank().await;
    // After one that failed, and after one that passed the check.
    let batch = [message("a", "missing"), message("b", "7"), message("c", "new"), message("d", "7")];
    assert_eq!(pay(&world, &batch).await, [false, true, true, true]);
    assert_marked(&world, &["b", "c", "d"]).await;
}
