//! Tests of the suite: each store here is wrong in one way, and the promise about it fails.
//!
//! A passing suite proves nothing until it was seen to fail.

use crate::wrong::{Store, Wrong};
use semel_testkit::contract::{self, PROMISES, Promise};
use semel_testkit::{FakeClock, Subject};
use std::future::{Ready, ready};
use std::sync::Arc;

fn open(wrong: Wrong) -> Ready<Subject> {
    let clock = FakeClock::default();
    let inner = Arc::new(semel::memory::Store::with_clock(Arc::new(clock.clone())));
    let store = Arc::new(Store::new(Arc::clone(&inner), wrong));
    let again = Arc::clone(&store);
    let subject = Subject::new(store, clock).damaged_by(move |id, bytes| {
        assert!(inner.overwrite(id, bytes).expect("the memory store works"));
        Box::pin(ready(()))
    });
    if wrong == Wrong::ForgetsOnRestart {
        return ready(subject.reopened_by(move || {
            let forgetful = Store::new(Arc::new(semel::memory::Store::new()), again.wrong());
            Box::pin(ready(Arc::new(forgetful) as Arc<_>))
        }));
    }
    ready(subject)
}

fn promise(name: &str) -> Promise {
    *PROMISES
        .iter()
        .find(|promise| promise.to_string() == name)
        .unwrap_or_else(|| panic!("no promise {name}"))
}

/// Asserts that the wrong store breaks the promise about its mistake.
fn is_caught(wrong: Wrong, by: &str) {
    let broken = contract::show(promise(by), open(wrong)).expect_err("a wrong store kept its promise");
    println!("{wrong:?}: {}", broken.how);
}

macro_rules! caught {
    ($($test:ident: $wrong:ident by $subject:ident :: $promise:ident;)*) => {
        $(#[test]
        fn $test() {
            is_caught(Wrong::$wrong, concat!(stringify!($subject), "::", stringify!($promise)));
        })*

        #[test]
        fn every_kind_of_wrong_store_is_tried() {
            let tried = [$(Wrong::$wrong),*];
            for wrong in Wrong::ALL {
                assert!(*wrong == Wrong::Nowhere || tried.contains(wrong), "{wrong:?} is not tried");
            }
        }
    };
}

caught! {
    an_insert_overwrites: InsertWritesOver by claims::a_claim_on_an_existing_record_changes_nothing;
    an_insert_reads_and_then_writes: InsertLooksThenWrites by claims::of_many_claims_one_wins_and_every_other_is_shown_it;
    an_insert_is_retried_silently: InsertHiddenRetry by claims::of_many_claims_one_wins_and_every_other_is_shown_it;
    a_refusal_shows_nothing: RefusalShowsNothing by claims::a_refusal_shows_the_payload_that_is_in_flight;
    the_version_is_ignored: IgnoresVersion by swaps::another_version_alone_is_refused;
    the_token_is_ignored: IgnoresToken by swaps::another_token_alone_is_refused;
    the_state_is_ignored: IgnoresState by swaps::another_state_alone_is_refused;
    a_swap_inserts: SwapInserts by swaps::a_swap_without_a_record_inserts_nothing;
    a_swap_reads_and_then_writes: SwapLooksThenWrites by swaps::of_many_writes_from_one_reading_one_is_applied;
    a_lost_write_is_answered_as_done: SwapLosesWrites by swaps::no_write_that_was_answered_as_done_is_lost;
    removes_regardless: RemovesRegardless by expiry::a_purge_of_a_reused_key_is_refused;
    removes_regardless_of_the_owner: RemovesRegardless by leases::a_stale_owner_changes_nothing_of_its_successors;
    removes_regardless_of_copies: RemovesRegardless by lost_answers::a_second_copy_of_a_removal_spares_the_next_record;
    a_removal_of_nothing_is_done: RemovalOfNothingDone by expiry::of_many_removals_one_is_done;
    the_unreadable_is_absent: UnreadableIsAbsent by unreadable::it_is_never_treated_as_absent;
    the_unreadable_is_overwritten: UnreadableIsWrittenOver by unreadable::it_refuses_claims_and_markers;
    the_unreadable_is_skipped: UnreadableIsSkipped by unreadable::it_is_shown_beside_readable_records;
    reads_are_stale: StaleReads by handles::a_write_is_seen_at_once_through_another_handle;
    reads_are_stale_for_owners: StaleReads by lost_answers::a_swap_whose_answer_was_lost_is_recognised;
    the_time_is_the_hosts: OwnTime by clock::every_answer_carries_the_stores_time;
    the_time_is_left_out_of_refusals: RefusalsOutOfTime by clock::a_refusal_is_judged_by_its_own_time;
    due_records_are_skipped: DueSkips by due::the_longest_overdue_records_come_first;
    due_records_are_left_behind: DueSkips by due::ten_thousand_are_swept_in_chunks;
    due_records_are_unordered: DueBackwards by due::the_longest_overdue_records_come_first;
    due_records_are_unbounded: DueUnbounded by due::ten_thousand_are_swept_in_chunks;
    pages_skip: PageSkips by paging::every_record_is_shown_once_the_oldest_first;
    pages_repeat: PageRepeats by paging::unchanged_records_are_listed_once_during_writes;
    a_filter_ignores_ids: FilterIgnoresIds by paging::a_filter_shows_exactly_what_matches;
    the_oldest_are_always_first: OldestAlwaysFirst by paging::every_record_is_shown_once_the_oldest_first;
    pages_are_too_heavy: PageTooHeavy by paging::a_page_is_bounded_in_bytes;
    pages_are_too_long: PageUnbounded by paging::every_record_is_shown_once_the_oldest_first;
    pages_never_end: PageNeverEnds by paging::an_empty_store_has_one_empty_page;
    filters_ignore_case: FilterIgnoresCase by identity::hostile_scopes_and_keys_are_searched_for_exactly;
    filters_ignore_time: FilterIgnoresTime by paging::a_filter_shows_exactly_what_matches;
    a_record_overwrites_a_marker: RecordOverMarker by markers::a_marker_is_not_overwritten;
    a_record_is_removed_as_a_marker: RecordGoesAsMarker by markers::only_a_marker_is_removed_as_one;
    markers_count_as_records: MarkersCountAsRecords by markers::markers_are_listed_apart_from_records;
    a_census_leaves_a_state_out: CensusWithoutTombstones by counts::counts_follow_every_write_and_stop_at_the_limit;
    a_count_exceeds_the_limit: CountUnbounded by counts::counts_follow_every_write_and_stop_at_the_limit;
    a_setting_is_overwritten: SettingWritesOver by settings::a_setting_changes_only_from_what_was_expected;
    a_setting_is_read_and_then_written: SettingLooksThenWrites by settings::of_many_creators_of_a_setting_one_wins;
    an_empty_setting_is_none: EmptySettingIsNone by settings::settings_keep_their_names_and_bytes;
    only_the_first_state_is_found: FindsFirstWriteOnly by finding::a_record_is_found_by_its_operation_id;
    ids_are_compared_without_case: FoldsIds by identity::ids_are_distinguished_to_the_last_bit;
    outcomes_are_text: OutcomesAreText by values::binary_outcomes_are_kept_to_the_byte;
    empty_outcomes_are_not_kept: EmptyOutcomesAreDropped by values::values_that_look_like_nothing_are_kept;
    a_restart_forgets_unreadable_entries: ForgetsOnRestart by unreadable::it_is_shown_after_a_restart_too;
    a_restart_forgets: ForgetsOnRestart by durability::acknowledged_writes_survive_a_restart;
    a_hazard_has_no_advice: HazardsWithoutAdvice by durability::hazards_say_what_is_wrong_and_how_to_fix_it;
    a_declared_notification_is_missing: SaysItNotifies by handles::a_waiter_is_notified_of_a_change;
    tokens_are_cut_in_half: HalvesTokens by lost_answers::a_claim_whose_answer_was_lost_is_recognised;
    a_danger_is_not_reported: HidesItsDanger by durability::acknowledged_writes_survive_a_restart;
}

#[test]
fn a_correct_wrapper_keeps_every_promise() {
    contract::run_all(|| open(Wrong::Nowhere));
}

#[test]
#[should_panic(expected = "paging::every_record_is_shown_once_the_oldest_first")]
fn a_run_of_all_names_what_is_broken() {
    contract::run_all(|| open(Wrong::PageSkips));
}

#[test]
fn every_promise_is_broken_by_some_wrong_store() {
    let mut unbroken: Vec<String> = PROMISES.iter().map(ToString::to_string).collect();
    for wrong in Wrong::ALL {
        unbroken.retain(|name| contract::show(promise(name), open(*wrong)).is_ok());
    }
    assert_eq!(unbroken, [""; 0], "promises that no wrong store breaks");
}
