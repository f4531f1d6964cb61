//! What to enforce, based on what shadow mode has counted, with the configuration for it. It never advises to enforce
//! something that would have refused legitimate requests.

use super::Route;
use semel_http::Code;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// The advice for a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// No legitimate request would have been refused.
    Enforce,
    /// Something would have been refused unexpectedly, or most requests could not be judged: find out why first.
    LookFirst,
    /// No request has a key: there is nothing to enforce yet.
    AskForKeys,
}

impl Verdict {
    /// The verdict in a word or two.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::LookFirst => "look first",
            Self::AskForKeys => "ask for keys",
        }
    }
}

/// A recommendation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Advice {
    /// What to do.
    pub verdict: Verdict,
    /// Why, a sentence each.
    pub reasons: Vec<String>,
    /// The configuration for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
}

/// The advice that follows from a route's counts.
pub fn advise(route: &Route) -> Advice {
    let mut reasons = Vec::new();
    if route.would_replay > 0 {
        reasons.push(format!("{} would have been replayed, and ran again", route.would_replay));
    }
    if route.would_block > 0 {
        reasons.push(format!(
            "{} would have waited for a running duplicate, and ran in parallel",
            route.would_block
        ));
    }
    if route.likely_duplicates > 0 {
        let many = route.likely_duplicates;
        reasons.push(format!(
            "{many} without a key had the payload of an earlier one within ten minutes: likely duplicates"
        ));
    }
    let mut is_to_look_at = false;
    for (code, count) in &route.would_refuse {
        if let Some((fix, is_expected)) = fix(code) {
            is_to_look_at |= !is_expected;
            reasons.push(format!("{count} would have been refused as {code}: {fix}"));
        } else {
            is_to_look_at = true;
            reasons.push(format!("{count} would have been refused as {code}"));
        }
    }
    // Requests that could not be judged may be anything: if most are, the rest says little.
    let judged = route.requests - route.not_judged.min(route.requests);
    let is_unjudged = route.not_judged > judged;
    if is_unjudged {
        reasons.push(format!(
            "{} of {} could not be judged: the service does not read the body or answers too late, or there \
                were too many at once",
            route.not_judged, route.requests
        ));
    } else if route.not_judged > 0 {
        reasons.push(format!("{} could not be judged", route.not_judged));
    }
    let without = route.requests - route.with_key.min(route.requests);
    let verdict = match () {
        () if is_unjudged => Verdict::LookFirst,
        () if route.with_key == 0 => Verdict::AskForKeys,
        () if is_to_look_at => Verdict::LookFirst,
        () => Verdict::Enforce,
    };
    match verdict {
        Verdict::AskForKeys => {
            reasons.push(
                "no request has a key: let clients generate one per operation and send it with every retry"
                    .to_owned(),
            );
        }
        Verdict::Enforce if without > 0 => {
            reasons
                .push(format!("{without} of {} have no key: `required` would refuse these", route.requests));
        }
        Verdict::Enforce | Verdict::LookFirst => {}
    }
    let config = (verdict == Verdict::Enforce).then(|| config(route, without == 0));
    Advice { verdict, reasons, config }
}

/// What to do about a kind of refusal, and whether it is an intended effect of enforcing.
fn fix(code: &str) -> Option<(&'static str, bool)> {
    let found = Code::ALL.iter().find(|known| known.as_str() == code)?;
    Some(match found {
        Code::Missing => ("keep key = \"optional\" until every client sends one", true),
        Code::Unknown => {
            ("outcomes in doubt, which retries repeated; with protection, somebody has to resolve them", true)
        }
        Code::AttemptsExhausted => ("more attempts than attempts_max allows", true),
        Code::Mismatch => (
            "keys used twice, or bodies that differ between retries; see `semel fingerprint` and fingerprint_exclude",
            false,
        ),
        Code::Invalid => ("change key_min, key_max or weak_keys, or fix the client", false),
        Code::CallerNotIdentified => ("configure [identity]", false),
        Code::Unfingerprintable => ("bodies that do not match their content type", false),
        Code::TooLarge => ("raise request_max", false),
        Code::Expired => ("clients retry for longer than ttl: raise it", false),
        Code::Streaming => ("streams cannot be protected: exclude this path with key = \"off\"", false),
        Code::ClockNotTrusted => ("the clock was not trusted: set it, or confirm it", false),
        Code::StoreUnavailable => ("the store did not answer: fix that first", false),
        _ => return None,
    })
}

fn config(route: &Route, is_required: bool) -> String {
    let mut lines = String::from("[[operation]]\n");
    if let (Some(method), Some(path)) = (&route.method, &route.path) {
        let _ = writeln!(lines, "path = {path:?}\nmethods = [{method:?}]");
    } else {
        let _ = writeln!(lines, "# … as it stands, of {}", route.operation);
    }
    if is_required {
        lines.push_str("key = \"required\"\n");
    }
    lines.push_str("mode = \"enforce\"\n");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(requests: u64, with_key: u64) -> Route {
        let (method, path) = (Some("POST".to_owned()), Some("/accounts/{id}/charges".to_owned()));
        Route { operation: "other".to_owned(), method, path, requests, with_key, ..Route::default() }
    }

    fn refusing(code: Code) -> Route {
        Route { would_refuse: [(code.as_str().to_owned(), 1)].into(), ..route(10, 9) }
    }

    #[test]
    fn rules_that_would_refuse_good_requests_are_not_advised() {
        for code in
            [Code::Mismatch, Code::Invalid, Code::CallerNotIdentified, Code::TooLarge, Code::Streaming]
        {
            let advice = advise(&refusing(code));
            assert_eq!((advice.verdict, advice.config), (Verdict::LookFirst, None), "{code:?}");
            assert!(advice.reasons[0].contains(code.as_str()), "{:?}", advice.reasons);
        }
    }

    #[test]
    fn intended_refusals_do_not_speak_against_enforcing() {
        for code in [Code::Missing, Code::Unknown] {
            assert_eq!(advise(&refusing(code)).verdict, Verdict::Enforce, "{code:?}");
        }
    }

    #[test]
    fn mostly_unjudged_traffic_gets_no_advice() {
        for with_key in [0, 10] {
            let advice = advise(&Route { not_judged: 6, ..route(10, with_key) });
            assert_eq!((advice.verdict, advice.config), (Verdict::LookFirst, None));
            assert!(advice.reasons[0].starts_with("6 of 10 could not be judged"), "{:?}", advice.reasons);
        }
        let half = advise(&Route { not_judged: 5, ..route(10, 10) });
        assert_eq!(half.verdict, Verdict::Enforce);
        assert_eq!(half.reasons, ["5 could not be judged"]);
    }

    #[test]
    fn a_key_is_required_only_where_every_request_has_one() {
        let required = advise(&Route { would_replay: 2, ..route(5, 5) }).config.expect("lines");
        assert_eq!(
            required,
            "[[operation]]\npath = \"/accounts/{id}/charges\"\nmethods = [\"POST\"]\nkey = \"required\"\nmode = \"enforce\"\n"
        );
        let optional = advise(&route(5, 4)).config.expect("lines");
        assert!(!optional.contains("required"), "{optional}");
    }

    #[test]
    fn without_keys_the_advice_is_to_send_them() {
        let advice = advise(&Route { likely_duplicates: 3, ..route(5, 0) });
        assert_eq!((advice.verdict, advice.config), (Verdict::AskForKeys, None));
        assert!(advice.reasons[0].starts_with("3 without a key"), "{:?}", advice.reasons);
    }
}
