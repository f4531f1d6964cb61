//! Every promise of the contract on a server, and on other forms of it the promises that depend on the form.

use crate::world::{Keys, servers_of};
use semel_core::id::OperationId;
use semel_core::store::Backend as _;
use semel_redis::Backend;
use semel_test_support::{RedisReply, services};
use semel_testkit::Subject;

async fn opened(url: Option<String>, parameters: &str) -> Subject {
    let url =
        url.expect("a server: run `cargo xtask test`, or `cargo xtask services up` and set what it prints");
    let keys = Keys::at(&url);
    let full = keys.url_with(parameters);
    let address = full.split_once(':').expect("a URL").1.to_owned();
    Backend.check(&address).expect("an address");
    let prefix = keys.prefix.clone();
    let subject = Subject::opened_by(&Backend, &address).await;
    subject
        .damaged_by(move |id, bytes| {
            let pattern = format!("{{{prefix}:*}}r:{}", OperationId::of(&id).to_string().replace('-', ""));
            for mut server in servers_of(&url) {
                let RedisReply::Array(found) = server.ask(&["KEYS", &pattern]) else { panic!("no keys") };
                if let Some(key) = found.into_iter().next() {
                    let key = key.bytes();
                    let mut value = server.ask(&[&b"GET"[..], &key]).bytes();
                    let name = u32::from_be_bytes(value[122..126].try_into().expect("four bytes"));
                    value.truncate(126 + usize::try_from(name).expect("small"));
                    value.extend_from_slice(&bytes);
                    server.ask(&[&b"SET"[..], &key, &value]);
                    return Box::pin(std::future::ready(()));
                }
            }
            panic!("there was nothing to damage");
        })
        .holding(keys)
}

async fn open() -> Subject {
    opened(services::redis_url(), "").await
}

/// Three buckets, so that walks cross them and find several records in each.
async fn open_with_few_buckets() -> Subject {
    opened(services::redis_url(), "&buckets=3").await
}

async fn open_on_cluster() -> Subject {
    opened(services::redis_cluster_url(), "").await
}

async fn open_on_valkey() -> Subject {
    opened(services::valkey_url(), "").await
}

semel_testkit::contract!(store, open);

// A list, a count and a page are merged over buckets.
semel_testkit::contract!(
    few_buckets,
    open_with_few_buckets,
    [
        counts::counts_follow_every_write_and_stop_at_the_limit,
        counts::tallies_add_up_to_every_record_by_operation_and_state,
        due::the_longest_overdue_records_come_first,
        due::a_write_moves_a_record_to_its_new_time,
        expiry::a_removed_record_is_gone_from_every_query,
        finding::each_of_many_records_is_found,
        identity::hostile_scopes_and_keys_are_searched_for_exactly,
        markers::markers_are_listed_apart_from_records,
        paging::every_record_is_shown_once_the_oldest_first,
        paging::a_page_is_bounded_in_bytes,
        paging::an_empty_store_has_one_empty_page,
        paging::a_filter_shows_exactly_what_matches,
        unreadable::it_is_shown_beside_readable_records,
    ]
);

// Each command goes to the server of its bucket, and a list to all of them.
semel_testkit::contract!(
    cluster,
    open_on_cluster,
    [
        claims::of_many_claims_one_wins_and_every_other_is_shown_it,
        claims::an_unused_key_has_no_record,
        clock::every_answer_carries_the_stores_time,
        counts::tallies_add_up_to_every_record_by_operation_and_state,
        due::a_write_moves_a_record_to_its_new_time,
        due::the_longest_overdue_records_come_first,
        durability::acknowledged_writes_survive_a_restart,
        durability::hazards_say_what_is_wrong_and_how_to_fix_it,
        expiry::of_expire_purge_and_reuse_exactly_one_wins,
        expiry::a_removed_record_is_gone_from_every_query,
        finding::each_of_many_records_is_found,
        handles::a_write_is_seen_at_once_through_another_handle,
        handles::readers_never_go_back_in_time,
        handles::a_waiter_is_notified_of_a_change,
        identity::hostile_scopes_and_keys_are_searched_for_exactly,
        lost_answers::a_claim_whose_answer_was_lost_is_recognised,
        markers::of_a_claim_and_a_marker_one_wins,
        paging::every_record_is_shown_once_the_oldest_first,
        paging::a_page_is_bounded_in_bytes,
        paging::unchanged_records_are_listed_once_during_writes,
        settings::of_many_creators_of_a_setting_one_wins,
        swaps::no_write_that_was_answered_as_done_is_lost,
        swaps::of_many_writes_from_one_reading_one_is_applied,
        unreadable::it_is_never_treated_as_absent,
        values::an_outcome_of_sixteen_mebibytes_is_kept_or_refused_whole,
    ]
);

// Another program, which runs the same scripts.
semel_testkit::contract!(
    valkey,
    open_on_valkey,
    [
        claims::of_many_claims_one_wins_and_every_other_is_shown_it,
        claims::a_record_is_read_as_it_was_written_in_every_state,
        clock::every_answer_carries_the_stores_time,
        clock::the_first_and_the_last_moment_are_kept,
        counts::counts_follow_every_write_and_stop_at_the_limit,
        due::nothing_is_due_before_its_time,
        durability::acknowledged_writes_survive_a_restart,
        durability::hazards_say_what_is_wrong_and_how_to_fix_it,
        expiry::of_expire_purge_and_reuse_exactly_one_wins,
        expiry::a_purge_of_a_reused_key_is_refused,
        finding::a_record_is_found_by_its_operation_id,
        handles::a_waiter_is_notified_of_a_change,
        leases::a_dead_claim_is_taken_over_once,
        lost_answers::a_swap_whose_answer_was_lost_is_recognised,
        markers::of_a_claim_and_a_marker_one_wins,
        paging::a_page_is_bounded_in_bytes,
        settings::a_setting_changes_only_from_what_was_expected,
        settings::settings_keep_their_names_and_bytes,
        swaps::another_version_alone_is_refused,
        swaps::another_token_alone_is_refused,
        swaps::no_write_that_was_answered_as_done_is_lost,
        unreadable::it_refuses_swaps_and_removals,
        values::binary_outcomes_are_kept_to_the_byte,
        values::an_outcome_of_sixteen_mebibytes_is_kept_or_refused_whole,
    ]
);
