//! The list of promises, for both the table and the tests.

/// Passes the list to [`__generate`](crate::__generate!).
#[doc(hidden)]
#[macro_export]
macro_rules! __promises {
    ($($what:tt)*) => {
        $crate::__generate! {
            [$($what)*]
            claims {
                of_many_claims_one_wins_and_every_other_is_shown_it
                a_claim_on_an_existing_record_changes_nothing
                a_record_is_read_as_it_was_written_in_every_state
                an_unused_key_has_no_record
                a_refusal_shows_the_payload_that_is_in_flight
            }
            clock {
                every_answer_carries_the_stores_time
                a_lease_is_judged_by_the_stores_time
                a_refusal_is_judged_by_its_own_time
                the_first_and_the_last_moment_are_kept
            }
            counts {
                counts_follow_every_write_and_stop_at_the_limit
                tallies_add_up_to_every_record_by_operation_and_state
            }
            due {
                the_longest_overdue_records_come_first
                a_write_moves_a_record_to_its_new_time
                nothing_is_due_before_its_time
                ten_thousand_are_swept_in_chunks
            }
            durability {
                acknowledged_writes_survive_a_restart
                hazards_say_what_is_wrong_and_how_to_fix_it
            }
            expiry {
                of_expire_purge_and_reuse_exactly_one_wins
                a_purge_of_a_reused_key_is_refused
                a_removed_record_is_gone_from_every_query
                of_many_removals_one_is_done
            }
            finding {
                a_record_is_found_by_its_operation_id
                each_of_many_records_is_found
            }
            handles {
                a_write_is_seen_at_once_through_another_handle
                readers_never_go_back_in_time
                a_waiter_is_notified_of_a_change
            }
            identity {
                ids_are_distinguished_to_the_last_bit
                hostile_scopes_and_keys_are_kept_apart
                hostile_scopes_and_keys_are_searched_for_exactly
            }
            leases {
                a_dead_claim_is_taken_over_once
                a_stale_owner_changes_nothing_of_its_successors
                a_late_finish_sees_the_verdict_and_can_be_repeated
            }
            lost_answers {
                a_claim_whose_answer_was_lost_is_recognised
                a_swap_whose_answer_was_lost_is_recognised
                a_removal_whose_answer_was_lost_has_happened
                a_claim_that_arrives_late_is_refused_by_its_successor
                a_second_copy_of_a_claim_changes_nothing
                a_second_copy_of_a_swap_changes_nothing
                a_second_copy_of_a_removal_spares_the_next_record
            }
            markers {
                a_marker_is_not_overwritten
                a_marker_is_refused_by_a_record
                only_a_marker_is_removed_as_one
                markers_are_listed_apart_from_records
                of_a_claim_and_a_marker_one_wins
            }
            paging {
                every_record_is_shown_once_the_oldest_first
                a_page_is_bounded_in_bytes
                an_empty_store_has_one_empty_page
                a_filter_shows_exactly_what_matches
                a_filter_finds_the_few_among_thousands
                unchanged_records_are_listed_once_during_writes
            }
            settings {
                a_setting_changes_only_from_what_was_expected
                settings_keep_their_names_and_bytes
                of_many_creators_of_a_setting_one_wins
            }
            swaps {
                another_version_alone_is_refused
                another_token_alone_is_refused
                another_state_alone_is_refused
                a_swap_without_a_record_inserts_nothing
                a_swap_changes_one_record_only
                of_many_writes_from_one_reading_one_is_applied
                no_write_that_was_answered_as_done_is_lost
            }
            unreadable {
                it_is_never_treated_as_absent
                it_refuses_claims_and_markers
                it_refuses_swaps_and_removals
                it_is_shown_beside_readable_records
                it_is_shown_after_a_restart_too
            }
            values {
                binary_outcomes_are_kept_to_the_byte
                values_that_look_like_nothing_are_kept
                an_outcome_of_sixteen_mebibytes_is_kept_or_refused_whole
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __generate {
    ([table] $($subject:ident { $($promise:ident)* })*) => {
        &[$($($crate::contract::Promise {
            subject: stringify!($subject),
            name: stringify!($promise),
            show: |under_test| Box::pin($crate::contract::$subject::$promise(under_test)),
        }),*),*]
    };
    ([tests] $($subject:ident { $($promise:ident)* })*) => {
        $(mod $subject {
            $(#[test]
            fn $promise() {
                let name = concat!(stringify!($subject), "::", stringify!($promise));
                $crate::contract::show_named(name, super::open_fresh());
            })*
        })*
    };
}

/// One test for each promise of the contract, in a module `$name`.
///
/// `$open` is called for each: a closure or function that opens a fresh, empty store, and returns a future of it as a
/// [`Subject`](crate::Subject).
///
/// ```
/// use semel_testkit::Subject;
///
/// semel_testkit::contract!(memory, || async { Subject::memory() });
/// # fn main() {}
/// ```
///
/// For another form of a server whose store keeps every promise, a list names those that depend on the form. Each of
/// them is a test. An ignored test, `every_promise`, is for all of them: `cargo test -- --ignored every_promise`.
///
/// ```
/// use semel_testkit::Subject;
///
/// semel_testkit::contract!(boxed, || async { Subject::memory() }, [handles::readers_never_go_back_in_time]);
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! contract {
    ($name:ident, $open:expr) => {
        $crate::__suite! { $name, $open, $crate::__promises! { tests } }
    };
    ($name:ident, $open:expr, [$($subject:ident :: $promise:ident),+ $(,)?]) => {
        $crate::__suite! { $name, $open,
            $(#[test]
            fn $promise() {
                let name = concat!(stringify!($subject), "::", stringify!($promise));
                $crate::contract::show_named(name, open_fresh());
            })+

            #[test]
            #[ignore = "it takes a minute, and `cargo xtask campaign` runs it"]
            fn every_promise() {
                $crate::contract::run_all(open_fresh);
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($name:ident, $open:expr, $($tests:tt)*) => {
        mod $name {
            #[allow(unused_imports, reason = "the opening function may use full paths")]
            use super::*;

            fn open_fresh() -> impl ::std::future::Future<Output = $crate::Subject> + Send + 'static {
                ($open)()
            }

            $($tests)*
        }
    };
}

pub(super) const PROMISES: &[super::Promise] = crate::__promises! { table };
