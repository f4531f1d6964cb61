//! Messages, one at a time.

use crate::world::{World, effect, effects, message, process, race, with_effects};
use semel_tx::BoxError;
use semel_tx::patterns::{Inbox, InboxResult, Message, MessageId, PatternError};
use std::sync::Arc;
use std::time::Duration;

on_both!(
    a_message_is_processed_once_and_its_copies_are_duplicates,
    the_same_id_with_another_body_is_reported,
    a_failed_message_leaves_no_mark_and_no_effect,
    a_cancelled_caller_leaves_no_mark,
    a_rolled_back_message_is_processed_again,
    a_call_outside_a_transaction_is_refused,
    groups_topics_and_ids_are_distinguished,
    sixty_four_copies_at_once_have_one_effect,
    old_marks_are_removed_in_chunks_and_young_ones_stay,
);

fn inbox<W: World>(world: &W) -> Inbox {
    Inbox::new("billing").tables(world.tables())
}

async fn a_message_is_processed_once_and_its_copies_are_duplicates<W: World>() {
    let world: W = with_effects().await;
    let (inbox, message) = (inbox(&world), message("m-1", "5"));
    assert_eq!(process(&world, &inbox, &message).await.expect("ran"), InboxResult::Processed(()));
    for _ in 0..3 {
        assert_eq!(process(&world, &inbox, &message).await.expect("looked"), InboxResult::Duplicate);
    }
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (1, 1));
}

async fn the_same_id_with_another_body_is_reported<W: World>() {
    let world: W = with_effects().await;
    let inbox = inbox(&world);
    process(&world, &inbox, &message("m-1", "5")).await.expect("ran");
    let other = process(&world, &inbox, &message("m-1", "500")).await;
    assert!(matches!(other, Err(PatternError::Mismatch(_))), "{other:?}");
    assert_eq!(effects(&world).await, 1);
}

/// Even if the caller commits although the work has failed.
async fn a_failed_message_leaves_no_mark_and_no_effect<W: World>() {
    let world: W = with_effects().await;
    let (inbox, message) = (inbox(&world), message("m-1", "5"));
    let mut transaction = world.begin().await;
    W::run(&mut transaction, effect(&world, "own")).await.expect("written");
    let sql = effect(&world, "m-1");
    let failed = inbox
        .once(&mut *transaction, &message, |tx, _| {
            Box::pin(async move {
                W::run(tx, sql).await?;
                Err::<(), BoxError>("the card was declined".into())
            })
        })
        .await;
    assert!(matches!(failed, Err(PatternError::Work(_))), "{failed:?}");
    let broken = inbox
        .once(&mut *transaction, &message, |tx, _| {
            Box::pin(async move { W::run(tx, "INSERT INTO no_such_table VALUES (1)".to_owned()).await })
        })
        .await;
    assert!(matches!(broken, Err(PatternError::Work(_))), "{broken:?}");
    W::commit(transaction).await.expect("the transaction is intact");
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (1, 0));
    assert_eq!(process(&world, &inbox, &message).await.expect("ran"), InboxResult::Processed(()));
}

async fn a_cancelled_caller_leaves_no_mark<W: World>() {
    let world: W = with_effects().await;
    let (inbox, message) = (inbox(&world), message("m-1", "5"));
    let mut transaction = world.begin().await;
    let (begun, begin) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let (notify, sql) = (Arc::clone(&begun), effect(&world, "m-1"));
    let running = inbox.once(&mut *transaction, &message, |tx, _| {
        Box::pin(async move {
            W::run(tx, sql).await?;
            notify.notify_one();
            begin.notified().await;
            Ok(())
        })
    });
    tokio::select! {
        _ = running => panic!("it waits for ever"),
        () = begun.notified() => {}
    }
    W::commit(transaction).await.expect("committed");
    assert_eq!((effects(&world).await, world.ask("SELECT count(*) FROM {o:inbox_marks}").await), (0, 0));
}

async fn a_rolled_back_message_is_processed_again<W: World>() {
    let world: W = with_effects().await;
    let (inbox, message) = (inbox(&world), message("m-1", "5"));
    let mut transaction = world.begin().await;
    let done = inbox.once(&mut *transaction, &message, |_, _| Box::pin(async { Ok(()) })).await.expect("ran");
    assert_eq!(done, InboxResult::Processed(()));
    drop(transaction);
    assert_eq!(process(&world, &inbox, &message).await.expect("ran"), InboxResult::Processed(()));
}

/// A mark that is committed separately would exist before its effect.
async fn a_call_outside_a_transaction_is_refused<W: World>() {
    let world: W = with_effects().await;
    let mut connection = world.pool().acquire().await.expect("a connection");
    let refused =
        inbox(&world).once(&mut *connection, &message("m-1", "5"), |_, _| Box::pin(async { Ok(()) })).await;
    assert!(matches!(refused, Err(PatternError::NoTransaction)), "{refused:?}");
    assert_eq!(world.ask("SELECT count(*) FROM {o:inbox_marks}").await, 0);
}

async fn groups_topics_and_ids_are_distinguished<W: World>() {
    let world: W = with_effects().await;
    let id = |parts: [&str; 2]| MessageId::composite(parts).expect("an id");
    let of = |topic: &str, id| Message::raw(topic, id, b"5".to_vec()).expect("a message");
    for group in ["billing", "mail"] {
        let inbox = Inbox::new(group).tables(world.tables());
        for message in [of("a", id(["1", "23"])), of("a", id(["12", "3"])), of("b", id(["1", "23"]))] {
            let done = process(&world, &inbox, &message).await.expect("ran");
            assert_eq!(done, InboxResult::Processed(()), "{group} {message:?}");
        }
    }
}

async fn sixty_four_copies_at_once_have_one_effect<W: World>() {
    let world = Arc::new(with_effects::<W>().await);
    let inbox = inbox(&*world).wait(Duration::from_mins(1));
    let results = race(|_| {
        let (world, inbox) = (Arc::clone(&world), inbox.clone());
        async move { process(&*world, &inbox, &message("m-1", "5")).await.expect("an answer") }
    })
    .await;
    assert_eq!(results.iter().filter(|result| **result == InboxResult::Processed(())).count(), 1);
    assert_eq!(effects(&*world).await, 1);
}

async fn old_marks_are_removed_in_chunks_and_young_ones_stay<W: World>() {
    let world: W = with_effects().await;
    let (billing, mail) = (inbox(&world), Inbox::new("mail").tables(world.tables()));
    for number in 0..7 {
        process(&world, &billing, &message(&format!("m-{number}"), "5")).await.expect("ran");
        process(&world, &mail, &message(&format!("m-{number}"), "5")).await.expect("ran");
    }
    let mut connection = world.pool().acquire().await.expect("a connection");
    assert_eq!(billing.purge(&mut *connection, 100).await.expect("purged"), 0, "all are young");
    let eight_days = 8 * 24 * 60 * 60 * 1_000_i64;
    world.sql(&format!("UPDATE {{o:inbox_marks}} SET processed_at = processed_at - {eight_days} WHERE message_id <> 'm-6'")).await;
    for expected in [4, 2, 0] {
        assert_eq!(billing.purge(&mut *connection, 4).await.expect("purged"), expected);
    }
    assert_eq!(world.ask("SELECT count(*) FROM {o:inbox_marks}").await, 8, "one of billing, all of mail");
    assert_eq!(
        process(&world, &billing, &message("m-6", "5")).await.expect("looked"),
        InboxResult::Duplicate
    );
    let narrow = mail.clone().window(Duration::from_hours(30 * 24));
    assert_eq!(narrow.purge(&mut *connection, 100).await.expect("purged"), 0, "the window is longer");
}
