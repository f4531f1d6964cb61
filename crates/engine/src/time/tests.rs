use super::mark::{ContradictionReport, TimeReport};
use super::*;

const START: Time = Time::from_millis(1_800_000_000_000);
const S: fn(u64) -> Duration = Duration::from_secs;
const DAY: Duration = Duration::from_hours(24);

fn settings() -> ClockSettings {
    ClockSettings::default()
}

/// The mark that a node of the boot `boot` wrote at START, at the uptime 100 s.
fn mark(boot: Option<&str>) -> Mark {
    let beat = TimeReport { now: START, shown: START, node: "a", boot, uptime: S(100), steady_since: None };
    Mark::after(None, &beat)
}

/// A node that starts at the uptime `uptime` with a clock that shows `shown`.
fn start(remembered: Option<Mark>, shown: Time, uptime: u64) -> TrustedTime {
    let answer = (shown, S(uptime), S(uptime));
    let (time, _) = TrustedTime::start(settings(), Some("boot"), Ok(remembered), answer);
    time.beaten(S(uptime));
    time
}

/// How far a node that knows the others trusts its clock.
fn trust(time: &TrustedTime, uptime: u64) -> Trust {
    time.beaten(S(uptime));
    time.earliest(S(uptime)).trust
}

#[test]
fn the_stores_time_lies_between_two_bounds() {
    let ms = Duration::from_millis;
    let (time, _) = TrustedTime::start(settings(), None, Ok(None), (START, ms(10), ms(14)));
    assert_eq!(time.earliest(ms(20)).at, START + ms(6));
    assert_eq!(time.latest(ms(20)).at, START + ms(11));
}

#[test]
fn an_outdated_answer_does_not_turn_time_back() {
    let ms = Duration::from_millis;
    let (time, _) = TrustedTime::start(settings(), None, Ok(None), (START, ms(10), ms(14)));
    time.note(START - ms(5), ms(5), ms(16));
    assert_eq!(time.earliest(ms(16)).at, START + ms(2));
    time.note(START - ms(100), ms(20), ms(21));
    assert_eq!(time.earliest(ms(21)).at, START - ms(100), "a small step back is followed");
}

#[test]
fn a_delayed_answer_does_not_turn_time_back() {
    let (time, _) = TrustedTime::start(settings(), None, Ok(None), (START, S(10), S(10)));
    // As if the process was suspended between call and answer.
    time.note(START + S(1), S(11), S(27));
    assert_eq!(time.earliest(S(27)).at, START + S(17), "the earlier answer shows that much");
    assert!(time.latest(S(27)).at < START + S(18));
    time.note(START + S(18), S(28), S(28));
    assert_eq!(time.earliest(S(29)).at, START + S(19));
    // If every answer is slow, each is as precise as the one before.
    time.note(START + S(30), S(40), S(42));
    time.note(START + S(2_030), S(2_040), S(2_042));
    assert_eq!(time.earliest(S(2_042)).at, START + S(2_030), "clocks drift apart meanwhile");
}

#[test]
fn every_start_settles_before_anything_expires() {
    for remembered in [None, Some(mark(Some("boot")))] {
        let time = start(remembered, START + S(100), 200);
        assert_eq!((trust(&time, 200), trust(&time, 319)), (Trust::Settling, Trust::Settling));
        assert_eq!((trust(&time, 320), time.status()), (Trust::Trusted, ClockStatus::Trusted));
    }
}

#[test]
fn a_clock_behind_what_the_store_remembers_is_not_trusted() {
    assert_eq!(trust(&start(Some(mark(None)), START - S(5), 10), 10), Trust::Settling, "within the skew");
    let behind = DistrustReason::Behind(S(6));
    for boot in [None, Some("boot")] {
        let time = start(Some(mark(boot)), START - S(6), 200);
        assert_eq!((trust(&time, 9_999), time.status()), (Trust::Untrusted, ClockStatus::Untrusted(behind)));
        assert_eq!(time.note(START - S(3), S(203), S(203)).0, START + S(3), "it is not earlier than that");
    }
}

#[test]
fn a_clock_ahead_by_more_than_the_allowance_is_untrusted() {
    let week = 7 * DAY;
    assert!(trust(&start(Some(mark(None)), START + week, 10), 10) > Trust::Untrusted);
    let time = start(Some(mark(None)), START + week + S(1), 10);
    assert_eq!(time.status(), ClockStatus::Untrusted(DistrustReason::Ahead(week + S(1))));
}

#[test]
fn an_unreadable_mark_gives_no_trust() {
    let (time, change) = TrustedTime::start(settings(), None, Err(()), (START, S(1), S(1)));
    assert_eq!(change, Some(ClockChange::Distrusted(DistrustReason::Unreadable)));
    assert_eq!(time.note(START + S(5), S(6), S(6)), (START + S(5), None));
    assert_eq!(trust(&time, 6), Trust::Untrusted);
}

#[test]
fn a_clock_that_becomes_plausible_is_trusted_step_by_step() {
    let time = start(Some(mark(None)), START - DAY, 10);
    assert_eq!(time.note(START - DAY + S(10), S(20), S(20)).1, None);
    let set_right = START + S(500);
    assert_eq!(time.note(set_right, S(30), S(30)), (set_right, Some(ClockChange::Plausible)));
    assert_eq!(trust(&time, 60), Trust::Starting, "a live node may use another time");
    time.end_watch();
    let levels = [30, 54, 55, 149, 150].map(|uptime| trust(&time, uptime));
    let (starting, settling) = (Trust::Starting, Trust::Settling);
    assert_eq!(levels, [starting, starting, settling, settling, Trust::Trusted]);
    assert_eq!(time.earliest(S(30)).steady_since, Some(set_right));
}

#[test]
fn a_clock_does_not_become_plausible_by_reaching_the_mark() {
    let time = start(Some(mark(None)), START - S(60), 10);
    for passed in 1..1_000 {
        assert_eq!(time.note(START - S(60) + S(passed), S(10 + passed), S(10 + passed)).1, None, "{passed}");
    }
}

#[test]
fn after_a_stop_of_unknown_length_leases_restart() {
    let shown = START + DAY;
    let time = start(Some(mark(Some("another boot"))), shown, 10);
    time.end_watch();
    assert_eq!((trust(&time, 34), trust(&time, 35)), (Trust::Starting, Trust::Settling));
    assert_eq!(time.earliest(S(35)).steady_since, Some(shown));
    let fresh = start(Some(mark(Some("another boot"))), START + S(25), 10);
    assert_eq!((trust(&fresh, 10), fresh.earliest(S(10)).steady_since), (Trust::Settling, None));
}

/// Whether the node may write after each of these reads.
fn may_write<const N: usize>(time: &TrustedTime, reads: [u64; N]) -> [bool; N] {
    reads.map(|read| time.may_write(S(read)))
}

#[test]
fn a_node_ahead_of_the_mark_watches_it_before_it_writes() {
    let ahead = || start(Some(mark(None)), START + DAY, 10);
    let time = ahead();
    assert!(time.is_watching());
    assert_eq!(may_write(&time, [20, 30, 40]), [false, false, true]);
    assert_eq!(trust(&time, 40), Trust::Starting, "until its time is written");
    time.end_watch();
    assert_eq!(trust(&time, 40), Trust::Settling);
    assert_eq!(may_write(&ahead(), [20, 40, 50, 60, 70]), [false, false, false, false, true], "after a gap");
    let time = ahead();
    assert_eq!(may_write(&time, [20]), [false]);
    time.missed_read();
    assert_eq!(may_write(&time, [30, 40, 50, 60]), [false, false, false, true]);
    let fresh = start(Some(mark(None)), START + S(25), 10);
    assert_eq!((fresh.is_watching(), may_write(&fresh, [10])), (false, [true]));
    assert!(!start(Some(mark(Some("boot"))), START + DAY, 100 + 86_400).is_watching(), "it is measured");
}

/// The mark that a live node writes when its clock shows `now`.
fn moved(now: Time) -> Mark {
    let beat = TimeReport { now, shown: now, node: "live", boot: None, uptime: S(7), steady_since: None };
    Mark::after(Some(&mark(None)), &beat)
}

#[test]
fn a_node_that_another_one_contradicts_gives_way() {
    for (other, is_ahead) in [(START + S(20), true), (START + DAY - S(16), true), (START + 2 * DAY, false)] {
        let time = start(Some(mark(None)), START + DAY, 10);
        let (first, next) = (moved(other - S(10)), moved(other));
        if is_ahead {
            assert_eq!(time.watched(&first, S(0), S(10)), None, "it may be of a node that is gone");
        }
        let change = time.watched(&next, S(10), S(20));
        assert!(
            matches!(change, Some(ClockChange::Distrusted(DistrustReason::Contradicted(_)))),
            "{change:?}"
        );
        assert_eq!((trust(&time, 9_999), may_write(&time, [10_000])), (Trust::Untrusted, [false]));
        assert_eq!(time.contradiction().is_some(), is_ahead);
        // As soon as they agree.
        time.note(other + S(5), S(25), S(25));
        assert_eq!((trust(&time, 25), time.contradiction()), (Trust::Starting, None));
    }
    for agrees in [START + DAY, START + DAY + S(10), START + DAY + S(15)] {
        let time = start(Some(mark(None)), START + DAY, 10);
        assert_eq!(
            (time.watched(&moved(agrees), S(10), S(20)), time.is_watching()),
            (None, false),
            "{agrees:?}"
        );
        assert!(trust(&time, 35) > Trust::Starting);
    }
}

#[test]
fn a_mark_that_was_long_on_its_way_contradicts_nothing() {
    let time = start(Some(mark(None)), START + DAY, 10);
    let of_the_dead = moved(START + S(9));
    // The second time after a beat that failed.
    assert_eq!(time.watched(&of_the_dead, S(10), S(20)), None);
    assert_eq!(time.watched(&of_the_dead, S(20), S(30)), None);
    assert_eq!(may_write(&time, [30, 40, 50, 60]), [false, false, false, true], "nothing followed it");
    // The process was suspended, and the next mark may have been sent right after the first was stored.
    let time = start(Some(mark(None)), START + DAY, 10);
    assert_eq!(time.watched(&moved(START + DAY - S(30)), S(10), S(20)), None);
    assert_eq!(time.watched(&moved(START + DAY), S(100), S(110)), None);
    assert!(time.is_watching(), "which says nothing about the time now");
    assert_eq!(time.watched(&moved(START + DAY + S(110)), S(110), S(120)), None);
    assert!(!time.is_watching(), "it agrees");
}

#[test]
fn a_clock_that_was_contradicted_is_not_trusted_after_a_restart() {
    let report = ContradictionReport { ahead: 6 * DAY, up_to: START + 6 * DAY };
    let known = moved(START).contradicted(report, "late", None).expect("a change");
    let at = |ahead: Duration| start(Some(known.clone()), START + ahead, 10);
    for ahead in [6 * DAY, 6 * DAY + S(3600)] {
        assert_eq!(at(ahead).status(), ClockStatus::Untrusted(DistrustReason::Contradicted(ahead)));
    }
    // The clock of a node that was down for less is another one.
    for ahead in [S(0), S(60), 5 * DAY] {
        assert_eq!(at(ahead).status(), ClockStatus::Trusted, "{ahead:?}");
    }
    let now = at(S(60)).earliest(S(40));
    assert_eq!(now.replaced_up_to, Some(START + 6 * DAY + S(25)), "what it has dated may be left");
}

#[test]
fn a_wrong_clock_does_not_become_plausible_while_the_process_is_suspended() {
    let time = start(Some(mark(None)), START + 40 * DAY, 10);
    let untrusted = ClockStatus::Untrusted(DistrustReason::Ahead(40 * DAY));
    assert_eq!(time.status(), untrusted);
    // It asked after 10 s, and read the answer much later.
    let answer = START + 40 * DAY + S(10);
    assert_eq!((time.note(answer, S(20), S(20) + 39 * DAY).1, time.status()), (None, untrusted));
    // Nor does a clock that is behind by having been asked long ago.
    let time = start(Some(mark(None)), START - DAY, 10);
    assert_eq!(time.note(START - S(60), S(20), S(80)).1, None);
}

#[test]
fn a_date_ahead_is_known_to_be_wrong_a_heartbeat_after_a_confirmation() {
    let time = start(None, START + DAY, 100);
    time.confirm(START, Some(START + DAY), S(200), S(200));
    let is_wrong = |uptime: u64| {
        time.beaten(S(uptime));
        let now = time.earliest(S(uptime));
        (now.trust, now.is_ahead_wrong)
    };
    assert_eq!([is_wrong(210), is_wrong(211)], [(Trust::Starting, false), (Trust::Starting, true)]);
    assert!(!time.earliest(S(300)).is_ahead_wrong, "out of touch, it may have missed another one");
    assert!(!start(Some(mark(None)), START + DAY, 10).earliest(S(30)).is_ahead_wrong, "at a start");
}

#[test]
fn on_one_boot_a_stop_of_any_length_is_measured() {
    for stop in [DAY, 30 * DAY] {
        let uptime = 100 + stop.as_secs();
        let now = start(Some(mark(Some("boot"))), START + stop, uptime).earliest(S(uptime));
        assert_eq!((now.at, now.trust, now.steady_since), (START + stop, Trust::Settling, None));
    }
    // Ten seconds have passed, and the clock shows two hours more.
    let jumped = start(Some(mark(Some("boot"))), START + S(7_210), 110);
    assert_eq!(jumped.earliest(S(110)).at, START + S(10), "as if it had kept running");
    assert_eq!(jumped.status(), ClockStatus::Moved { by_ms: 7_200_000 });
}

#[test]
fn a_gap_is_known_after_an_immediate_restart() {
    let beat = TimeReport {
        now: START,
        shown: START,
        node: "a",
        boot: Some("boot"),
        uptime: S(100),
        steady_since: Some(START),
    };
    let time = start(Some(Mark::after(None, &beat)), START + S(5), 105);
    assert_eq!(time.earliest(S(105)).steady_since, Some(START));
    assert_eq!((trust(&time, 124), trust(&time, 125)), (Trust::Starting, Trust::Settling));
}

#[test]
fn a_jump_while_running_moves_nothing_until_it_is_confirmed() {
    let time = start(None, START, 100);
    let ahead = START + 32 * DAY;
    let (at, change) = time.note(ahead + S(10), S(110), S(110));
    assert_eq!((at, time.earliest(S(111)).at), (START + S(10), START + S(11)));
    assert_eq!(change, Some(ClockChange::Moved { by_ms: 32 * 86_400_000 }));
    assert_eq!(time.note(ahead + S(20), S(120), S(120)), (START + S(20), None), "shown once");
    assert_eq!(trust(&time, 400), Trust::Trusted, "time continues and is trusted");
    time.confirm(ahead + S(300), None, S(400), S(400));
    let now = time.earliest(S(400));
    assert_eq!((now.at, now.trust, now.steady_since), (ahead + S(300), Trust::Starting, Some(now.at)));
    assert_eq!((trust(&time, 425), trust(&time, 520)), (Trust::Settling, Trust::Trusted));
    assert_eq!(time.status(), ClockStatus::Trusted);
}

#[test]
fn future_dates_are_expected_until_a_search() {
    let time = start(None, START + DAY, 100);
    time.confirm(START, Some(START + 2 * DAY), S(200), S(200));
    let seen = time.replaced_up_to();
    assert_eq!(seen, Some(START + 2 * DAY + S(25)), "what others may have written before they knew of it");
    assert_eq!(time.earliest(S(200)).replaced_up_to, seen);
    time.no_dates_are_ahead(None, S(210));
    assert_eq!(time.replaced_up_to(), seen, "it was replaced during the search");
    time.no_dates_are_ahead(seen, S(210));
    assert_eq!(time.replaced_up_to(), Some(START + S(15)), "later dates, beyond the skew, are of this time");
}

#[test]
fn a_new_node_knows_which_dates_a_confirmation_replaced() {
    let before = mark(None);
    let beat = TimeReport {
        now: START - DAY,
        shown: START - DAY,
        node: "b",
        boot: None,
        uptime: S(1),
        steady_since: None,
    };
    let confirmed = Mark::confirmed(Some(&before), &beat, "somebody", "it was a day ahead");
    let time = start(Some(confirmed), START - DAY + S(30), 500);
    let now = time.earliest(S(500));
    assert_eq!((now.replaced_at, now.replaced_up_to), (Some(START - DAY), Some(START + S(25))));
}

#[test]
fn the_first_heartbeat_checks_a_new_mark_against_the_clock() {
    let (time, _) = TrustedTime::start(settings(), Some("other"), Ok(None), (START + 40 * DAY, S(1), S(1)));
    assert!(time.is_starting());
    let again = time.start_again(Some("other"), &mark(Some("boot")), (START + 40 * DAY, S(2), S(2)));
    assert_eq!(again, Some(ClockChange::Distrusted(DistrustReason::Ahead(40 * DAY))));
    assert_eq!(trust(&time, 3), Trust::Untrusted);
    assert!(!time.is_starting(), "only once");
    assert!(!start(None, START, 100).is_starting(), "its first heartbeat is over");
}

#[test]
fn nothing_is_judged_before_the_first_heartbeat() {
    let (time, _) = TrustedTime::start(settings(), Some("boot"), Ok(None), (START, S(100), S(100)));
    assert_eq!(time.earliest(S(10_000)).trust, Trust::Starting, "another node may use another time");
    assert_eq!(trust(&time, 10_000), Trust::Trusted);
}

#[test]
fn nothing_is_judged_long_after_the_last_heartbeat() {
    let time = start(None, START, 100);
    let since = |uptime| (time.earliest(S(uptime)).trust, time.is_out_of_touch(S(uptime)));
    time.beaten(S(300));
    time.beaten(S(299));
    assert_eq!(since(324), (Trust::Trusted, false));
    assert_eq!(since(325), (Trust::Starting, true), "others may use another confirmed time");
    time.beaten(S(325));
    assert_eq!(since(325), (Trust::Trusted, false));
}

#[test]
fn an_untrusted_time_is_dropped_when_another_is_trusted() {
    let time = start(Some(mark(None)), START + 40 * DAY, 10);
    // Two calls are running: the later one is answered first, by the wrong clock.
    time.note(START + 40 * DAY + S(2), S(12), S(12));
    let (at, change) = time.note(START + S(3), S(11), S(13));
    assert_eq!((at, change), (START + S(3), Some(ClockChange::Plausible)));
    assert_eq!(time.earliest(S(13)).at, START + S(3), "it would be written into the store");
}

#[test]
fn a_confirmed_time_is_followed_when_the_clock_shows_it() {
    let confirmed = START + 40 * DAY;
    // At some time between two heartbeats; the later one read it.
    let reference = Reference { at: confirmed, from: S(300), to: S(310), before: None };
    for shown in [confirmed, confirmed + S(10)] {
        let time = start(None, START, 100);
        assert_eq!(time.follow_confirmation(reference, shown, S(310), S(310)), ClockChange::Confirmed);
        assert_eq!(time.status(), ClockStatus::Trusted);
    }
    for (shown, why) in [
        (START + S(210), DistrustReason::Behind((40 * DAY).saturating_sub(S(210)))),
        (confirmed + DAY, DistrustReason::Ahead(DAY.saturating_sub(S(10)))),
        (confirmed + S(16), DistrustReason::Ahead(S(6))),
    ] {
        let time = start(None, START, 100);
        assert_eq!(time.follow_confirmation(reference, shown, S(310), S(310)), ClockChange::Distrusted(why));
        assert_eq!(trust(&time, 311), Trust::Untrusted, "neither time may date a write");
        time.note(shown + S(20), S(330), S(330));
        assert_eq!(trust(&time, 331), Trust::Untrusted);
        // However much later.
        let at_last = confirmed + S(100_005);
        let (at, change) = time.note(at_last, S(100_310), S(100_310));
        assert_eq!((at, change), (at_last, Some(ClockChange::Confirmed)));
        let now = time.earliest(S(100_310));
        assert_eq!((now.replaced_at, now.trust), (Some(at_last), Trust::Starting));
        assert!(
            now.replaced_up_to >= Some(START + S(210)),
            "dates of the replaced time may be left: {now:?}"
        );
    }
}

#[test]
fn a_delayed_answer_makes_no_date_look_ahead() {
    let time = start(None, START, 100);
    time.note(START - DAY + S(10), S(110), S(110));
    let (at, _) = time.note(START - DAY + S(40), S(120), S(140));
    let now = time.at(at, S(140));
    assert_eq!(now.at, START + S(20), "not earlier than the call");
    assert!(now.latest >= START + S(40), "nor later than the answer: {now:?}");
}

#[test]
fn a_step_of_a_second_is_followed_silently() {
    let time = start(None, START, 100);
    for step in [S(0), S(1), S(0)] {
        let shown = START + S(300) + step;
        assert_eq!(time.note(shown, S(400), S(400)), (shown, None));
        assert_eq!((trust(&time, 400), time.earliest(S(400)).steady_since), (Trust::Trusted, None));
    }
}

#[test]
fn no_lease_is_judged_while_nodes_disagree_about_time() {
    let time = start(None, START, 100);
    assert_eq!(trust(&time, 300), Trust::Trusted);
    time.disagree(S(300));
    assert_eq!((trust(&time, 324), trust(&time, 325)), (Trust::Starting, Trust::Settling));
    assert_eq!(time.earliest(S(300)).steady_since, Some(START + S(200)));
}
