//! What is counted, and that it stays bounded.

use super::*;

fn seen(path: &str, has_key: bool, is_repeat: bool) -> ShadowDetails<'_> {
    ShadowDetails { method: "POST", path, has_key, is_repeat }
}

#[test]
fn shadow_mode_counts_every_request_once() {
    let tally = Tally::new(Time::from_millis(0));
    let keyed = seen("/charges", true, false);
    for outcome in [
        ShadowOutcome::Run,
        ShadowOutcome::Replay,
        ShadowOutcome::Refuse(Code::InProgress),
        ShadowOutcome::Refuse(Code::Mismatch),
        ShadowOutcome::NotJudged,
    ] {
        tally.count("other", &keyed, outcome);
    }
    tally.count("other", &seen("/charges", false, true), ShadowOutcome::RunAgain);
    tally.count("other", &seen("/charges", false, true), ShadowOutcome::Refuse(Code::Missing));
    let summary = tally.summary();
    assert_eq!(summary.since, "1970-01-01T00:00:00.000Z");
    let [route] = &summary.routes[..] else { panic!("one route: {summary:?}") };
    assert_eq!(route.render(), "POST /charges");
    assert_eq!((route.requests, route.with_key, route.likely_duplicates), (7, 5, 2));
    assert_eq!((route.would_run, route.would_replay, route.would_block), (2, 1, 1));
    assert_eq!((route.refused(), route.not_judged), (2, 1));
    assert_eq!(
        route.requests,
        route.would_run + route.would_replay + route.would_block + route.refused() + route.not_judged
    );
}

#[test]
fn an_operation_is_one_route_whatever_its_paths() {
    let tally = Tally::new(Time::from_millis(0));
    tally.count("charge", &seen("/a/charges", true, false), ShadowOutcome::Run);
    tally.count("charge", &seen("/b/charges", true, false), ShadowOutcome::Run);
    let routes = tally.summary().routes;
    assert_eq!((routes.len(), routes[0].render().as_str(), routes[0].requests), (1, "charge", 2));
}

#[test]
fn a_flood_of_paths_is_counted_together() {
    let tally = Tally::new(Time::from_millis(0));
    for number in 0..ROUTES_MAX + 500 {
        let path = "/".to_owned() + &"x".repeat(number);
        tally.count("other", &seen(&path, false, false), ShadowOutcome::Run);
    }
    let routes = tally.summary().routes;
    assert_eq!(routes.len(), ROUTES_MAX + 1);
    let rest = routes.iter().find(|route| route.path.is_none()).expect("the rest");
    assert_eq!((rest.render().as_str(), rest.requests), ("other", 500));
    assert_eq!(routes.iter().map(|route| route.requests).sum::<u64>(), (ROUTES_MAX + 500) as u64);
}
