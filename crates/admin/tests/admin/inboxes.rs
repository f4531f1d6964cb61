//! The inboxes of applications.

use super::world::{World, token};
use rusqlite::Connection;
use semel_admin::Role;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;

/// Marks one message as processed `days` ago.
fn mark(world: &World, group: &str, id: &str, days: i64) {
    let connection = Connection::open(world.folder.join("store.db")).expect("it opens");
    let sql = "INSERT INTO semel_inbox_marks VALUES (?1, 'payments', ?2, x'00', \
               CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) - ?3)";
    connection.execute(sql, rusqlite::params![group, id, days * DAY_MS]).expect("marked");
}

#[tokio::test]
async fn marks_are_counted_by_group_and_topic() {
    let world = World::new().await;
    let none = world.get("/v1/inboxes").await;
    assert_eq!((none.status, none.json()["inboxes"].as_array().map(Vec::len)), (200, Some(0)));
    for (group, id, days) in [("billing", "a", 0), ("billing", "b", 3), ("mail", "a", 9), ("mail", "b", 8)] {
        mark(&world, group, id, days);
    }
    let counted = world.get("/v1/inboxes").await.json();
    assert_eq!((&counted["windowSeconds"], &counted["otherMarks"]), (&604_800.into(), &0.into()));
    let shown: Vec<_> = counted["inboxes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|inbox| format!("{} {} {} {}", inbox["group"], inbox["topic"], inbox["marks"], inbox["overdue"]))
        .collect();
    assert_eq!(shown, [r#""billing" "payments" 2 0"#, r#""mail" "payments" 2 2"#]);
    assert!(counted["inboxes"][0]["oldest"].as_str() < counted["inboxes"][0]["newest"].as_str(), "{counted}");
    let shorter = world.get("/v1/inboxes?windowSeconds=86400").await.json();
    assert_eq!(shorter["inboxes"][0]["overdue"], 1);
}

#[tokio::test]
async fn counting_asks_for_the_role_read() {
    let world = World::with(|options| {
        options.tokens = Role::ALL.map(|role| token(role.name(), &[role])).to_vec();
    })
    .await;
    assert_eq!(world.get("/v1/inboxes").await.status, 401);
    for role in Role::ALL {
        let reply = world.ask("GET", "/v1/inboxes").token(&format!("{}-secret", role.name())).send().await;
        assert_eq!(reply.status == 200, role == Role::Read, "{}: {}", role.name(), reply.status);
    }
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_refused() {
    let world = World::new().await;
    for query in ["windowSeconds=-1", "windowSeconds=week", "windowSeconds=99999999999", "window=7d"] {
        let reply = world.get(&format!("/v1/inboxes?{query}")).await;
        assert_eq!(reply.problem(), (400, "INVALID_REQUEST".into()), "{query}");
    }
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_no_store_without_marks() {
    let world = World::new().await;
    world.lose_store().await;
    assert_eq!(world.get("/v1/inboxes").await.status, 503);
}
