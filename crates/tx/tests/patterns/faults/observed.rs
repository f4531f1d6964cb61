//! The events of an inbox.

use crate::world::{World, message, process, with_effects};
use semel_tx::patterns::{Inbox, InboxCounts, PatternError};
use std::collections::BTreeSet;
use std::time::Duration;

on_both!(every_answer_and_every_purge_is_counted, a_batch_counts_each_message_after_its_commit);

fn assert_counted(counts: &InboxCounts, result: &str, expected: u64) {
    let text = counts.text();
    let line = format!(
        "inbox_messages_total{{group=\"billing\",topic=\"payments\",result=\"{result}\"}} {expected}\n"
    );
    assert!(text.contains(&line), "{line} is not in {text}");
}

/// A panel or a rule for a series that is not reported would stay empty.
#[test]
fn dashboard_and_rules_use_the_metrics_that_consumers_report() {
    let reported = InboxCounts::default().text();
    for asking in [
        include_str!("../../../../../docs/operations/grafana.json"),
        include_str!("../../../../../docs/operations/alerts.yml"),
    ] {
        let words = asking.split(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '_');
        let asked: BTreeSet<_> = words.filter(|word| word.starts_with("inbox_")).collect();
        assert!(asked.contains("inbox_messages_total"), "{asked:?}");
        for name in asked {
            assert!(reported.contains(&format!("# TYPE {name} counter")), "{name} is not reported");
        }
    }
}

async fn every_answer_and_every_purge_is_counted<W: World>() {
    let world: W = with_effects().await;
    let counts = InboxCounts::default();
    let inbox = Inbox::new("billing").tables(world.tables()).observer(counts.clone());
    for (id, body) in [("m-1", "5"), ("m-1", "5"), ("m-2", "5"), ("m-1", "6")] {
        let done = process(&world, &inbox, &message(id, body)).await;
        assert!(matches!(done, Ok(_) | Err(PatternError::Mismatch(_))), "{done:?}");
    }
    let mut transaction = world.begin().await;
    let failed = inbox
        .once(&mut *transaction, &message("m-3", "5"), |_, _| Box::pin(async { Err::<(), _>("no".into()) }))
        .await;
    assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
    drop(transaction);
    for (result, expected) in
        [("processed", 2), ("duplicate", 1), ("mismatch", 1), ("failed", 1), ("busy", 0)]
    {
        assert_counted(&counts, result, expected);
    }
    let mut connection = world.pool().acquire().await.expect("a connection");
    world.sql("UPDATE {o:inbox_marks} SET processed_at = processed_at - 2000").await;
    let narrow = inbox.window(Duration::from_secs(1));
    assert_eq!(narrow.purge(&mut *connection, 10).await.expect("purged"), 2);
    assert!(counts.text().contains("inbox_purged_total{group=\"billing\"} 2\n"), "{}", counts.text());
}

async fn a_batch_counts_each_message_after_its_commit<W: World>() {
    let world: W = with_effects().await;
    let counts = InboxCounts::default();
    let inbox = Inbox::new("billing").tables(world.tables()).observer(counts.clone());
    process(&world, &inbox, &message("b", "5")).await.expect("ran");
    let batch =
        [message("a", "5"), message("b", "5"), message("c", "bad"), message("b", "6"), message("d", "5")];
    let mut connection = world.pool().acquire().await.expect("a connection");
    let seen = counts.clone();
    let results = inbox.batch(&mut *connection, &batch, move |_, message| {
        assert_counted(&seen, "processed", 1);
        let fails = message.body() == b"bad";
        Box::pin(async move { if fails { Err("the message is bad".into()) } else { Ok(()) } })
    });
    assert_eq!(results.await.expect("committed").len(), 5);
    for (result, expected) in [("processed", 3), ("duplicate", 1), ("mismatch", 1), ("failed", 1)] {
        assert_counted(&counts, result, expected);
    }
}
