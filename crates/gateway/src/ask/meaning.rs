//! What a probe's answer says about an effect.
//!
//! What lives here: statuses, and places of a JSON body. What must never: a meaning that nobody wrote down; whatever is not
//! listed says nothing.

use crate::json;
use http::StatusCode;
use serde_json::Value;

/// What answers mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    /// Statuses that say that it happened, where `applied_if` holds as well.
    pub applied: Vec<u16>,
    /// What the body has to say besides; every one of these.
    pub applied_if: Vec<Condition>,
    /// Statuses that say that it is not there.
    pub not_applied: Vec<u16>,
    /// What the body of an answer with a status of `applied` says where it is not there; every one of these.
    pub not_applied_if: Vec<Condition>,
}

/// It happened where the answer is a 200. Nothing means that it did not.
impl Default for Meaning {
    fn default() -> Self {
        Self {
            applied: vec![200],
            applied_if: Vec::new(),
            not_applied: Vec::new(),
            not_applied_if: Vec::new(),
        }
    }
}

/// What stands at one place of a JSON body.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// The place, as a JSON pointer.
    pub pointer: String,
    /// One of these stands there.
    pub values: Vec<Value>,
}

impl Condition {
    fn holds(&self, body: &Value) -> bool {
        body.pointer(&self.pointer).is_some_and(|found| self.values.contains(found))
    }
}

/// What an answer says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Applied,
    NotApplied,
    Nothing(&'static str),
}

impl Meaning {
    /// Whether the body has to be looked into.
    pub fn reads_body(&self) -> bool {
        !self.applied_if.is_empty() || !self.not_applied_if.is_empty()
    }

    /// What an answer of this status says, with this body as far as it was read to its end.
    pub(super) fn of(&self, status: StatusCode, body: Option<&[u8]>) -> Said {
        let status = status.as_u16();
        if self.not_applied.contains(&status) {
            return Said::NotApplied;
        }
        if !self.applied.contains(&status) {
            return Said::Nothing("its status is not one that was configured");
        }
        if !self.reads_body() {
            return Said::Applied;
        }
        let Some(body) = body else { return Said::Nothing("its body is too long to be looked into") };
        let Ok(body) = json::value(body) else {
            return Said::Nothing("its body is not JSON, or has a member twice in one object");
        };
        let all = |conditions: &[Condition]| conditions.iter().all(|condition| condition.holds(&body));
        let is_applied = all(&self.applied_if);
        let is_not_applied = !self.not_applied_if.is_empty() && all(&self.not_applied_if);
        match (is_applied, is_not_applied) {
            (true, false) => Said::Applied,
            // Without a condition of its own, "it happened" is what is left over.
            (true, true) if self.applied_if.is_empty() => Said::NotApplied,
            (false, true) => Said::NotApplied,
            (true, true) => Said::Nothing("its body says both that it happened and that it did not"),
            (false, false) => Said::Nothing("its body says neither that it happened nor that it did not"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn condition(pointer: &str, values: &[Value]) -> Condition {
        Condition { pointer: pointer.to_owned(), values: values.to_vec() }
    }

    fn said(meaning: &Meaning, status: u16, body: &str) -> Said {
        meaning.of(StatusCode::from_u16(status).expect("a status"), Some(body.as_bytes()))
    }

    #[test]
    fn what_is_not_listed_says_nothing() {
        let usual = Meaning::default();
        assert_eq!(said(&usual, 200, ""), Said::Applied);
        for status in [201, 204, 302, 401, 403, 404, 410, 429, 500, 503] {
            assert!(matches!(said(&usual, status, ""), Said::Nothing(_)), "{status}");
        }
        let listed = Meaning { applied: vec![204], not_applied: vec![404, 410], ..usual };
        assert_eq!(said(&listed, 204, ""), Said::Applied);
        assert_eq!([404, 410].map(|status| said(&listed, status, "")), [Said::NotApplied; 2]);
        assert!(matches!(said(&listed, 200, ""), Said::Nothing(_)));
    }

    #[test]
    fn a_body_says_it_where_that_was_asked_for_and_only_with_a_status_that_is_an_answer() {
        let meaning = Meaning {
            applied_if: vec![
                condition("/status", &[json!("done"), json!("paid")]),
                condition("/n", &[json!(1)]),
            ],
            not_applied_if: vec![condition("/status", &[json!("unknown")])],
            ..Meaning::default()
        };
        for (body, expected) in [
            (r#"{"status":"done","n":1}"#, Some(Said::Applied)),
            (r#"{"n":1,"status":"paid"}"#, Some(Said::Applied)),
            (r#"{"status":"unknown"}"#, Some(Said::NotApplied)),
            (r#"{"status":"done"}"#, None),
            (r#"{"status":"done","n":"1"}"#, None),
            (r#"{"status":"pending","n":1}"#, None),
            (r#"{"status":"unknown","status":"done","n":1}"#, None),
            (r#"{"status":"done","n":1,"status":"unknown"}"#, None),
            (r#"{"status":"done","n":1,"log":[{"a":1,"\u0061":2}]}"#, None),
            ("", None),
            ("<html>", None),
            ("[]", None),
        ] {
            match expected {
                Some(expected) => assert_eq!(said(&meaning, 200, body), expected, "{body}"),
                None => assert!(matches!(said(&meaning, 200, body), Said::Nothing(_)), "{body}"),
            }
        }
        assert!(matches!(said(&meaning, 500, r#"{"status":"done","n":1}"#), Said::Nothing(_)));
        assert!(matches!(said(&meaning, 500, r#"{"status":"unknown"}"#), Said::Nothing(_)));
        assert!(matches!(meaning.of(StatusCode::OK, None), Said::Nothing(_)), "too long to be read");
    }

    #[test]
    fn a_body_that_contradicts_itself_says_nothing() {
        let both = Meaning {
            applied_if: vec![condition("/a", &[json!(true)])],
            not_applied_if: vec![condition("/b", &[json!(true)])],
            ..Meaning::default()
        };
        assert!(matches!(said(&both, 200, r#"{"a":true,"b":true}"#), Said::Nothing(_)));
        let one = Meaning { applied_if: Vec::new(), ..both };
        assert_eq!(said(&one, 200, r#"{"a":true,"b":true}"#), Said::NotApplied);
        assert_eq!(said(&one, 200, r#"{"b":false}"#), Said::Applied, "what is left over");
    }
}
