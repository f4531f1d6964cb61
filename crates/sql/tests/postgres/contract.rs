//! Every promise of the contract, and through a pooler those that depend on sessions.

use crate::server::{Schema, connect, url};
use semel_core::store::Backend as _;
use semel_sql::postgres::Backend;
use semel_test_support::services;
use semel_testkit::Subject;

async fn open() -> Subject {
    let schema = Schema::new();
    let address = schema.address();
    opened_at(schema, address).await
}

/// Through a pooler in transaction mode; only notifications come from the server itself.
async fn open_through_pgbouncer() -> Subject {
    let schema = Schema::new();
    let pooler = services::pgbouncer_url().unwrap_or_else(url);
    let direct = url();
    let server = direct.rsplit_once('@').and_then(|(_, rest)| rest.split('/').next()).expect("a host");
    let address = format!("{}&listen={server}", schema.address_at(&pooler));
    opened_at(schema, address).await
}

async fn opened_at(schema: Schema, address: String) -> Subject {
    let name = schema.name.clone();
    Backend.check(&address).expect("an address");
    Subject::opened_by(&Backend, &address)
        .await
        .damaged_by(move |id, bytes| {
            let sql = format!("UPDATE {name}.records SET entry = $2 WHERE command_id = $1");
            Box::pin(async move {
                let changed = connect().await.execute(&sql, &[&&id.as_bytes()[..], &&bytes[..]]).await;
                assert_eq!(changed.expect("overwritten"), 1, "there was nothing to damage");
            })
        })
        .holding(schema)
}

semel_testkit::contract!(store, open);

// Each transaction may run in another session, and notifications come past the pooler.
semel_testkit::contract!(
    through_pgbouncer,
    open_through_pgbouncer,
    [
        claims::of_many_claims_one_wins_and_every_other_is_shown_it,
        claims::a_claim_on_an_existing_record_changes_nothing,
        claims::a_record_is_read_as_it_was_written_in_every_state,
        clock::every_answer_carries_the_stores_time,
        counts::tallies_add_up_to_every_record_by_operation_and_state,
        due::nothing_is_due_before_its_time,
        durability::acknowledged_writes_survive_a_restart,
        durability::hazards_say_what_is_wrong_and_how_to_fix_it,
        expiry::of_expire_purge_and_reuse_exactly_one_wins,
        expiry::of_many_removals_one_is_done,
        handles::a_write_is_seen_at_once_through_another_handle,
        handles::readers_never_go_back_in_time,
        handles::a_waiter_is_notified_of_a_change,
        lost_answers::a_claim_whose_answer_was_lost_is_recognised,
        lost_answers::a_swap_whose_answer_was_lost_is_recognised,
        markers::of_a_claim_and_a_marker_one_wins,
        paging::every_record_is_shown_once_the_oldest_first,
        paging::a_page_is_bounded_in_bytes,
        settings::of_many_creators_of_a_setting_one_wins,
        swaps::of_many_writes_from_one_reading_one_is_applied,
        swaps::no_write_that_was_answered_as_done_is_lost,
        unreadable::it_is_never_treated_as_absent,
        values::an_outcome_of_sixteen_mebibytes_is_kept_or_refused_whole,
    ]
);
