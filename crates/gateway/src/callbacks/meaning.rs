//! What a probe's response says about an effect: by status, and by values in a JSON body. Anything that is not listed
//! says nothing.

use http::StatusCode;
use semel_net::json;
use serde_json::Value;

/// What responses mean.
#[derive(Debug, Clone, PartialEq)]
pub struct Meaning {
    /// Statuses which mean that it happened, if `applied_if` holds too.
    pub applied: Vec<u16>,
    /// Conditions on the body; all must hold.
    pub applied_if: Vec<Condition>,
    /// Statuses which mean that it is not there.
    pub not_applied: Vec<u16>,
    /// Conditions on the body of a response with a status of `applied`, which mean that it is not there; all must
    /// hold.
    pub not_applied_if: Vec<Condition>,
}

/// 200 means that it happened. Nothing means that it did not.
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

/// A condition on a JSON body.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    /// A JSON pointer.
    pub pointer: String,
    /// The accepted values.
    pub values: Vec<Value>,
}

impl Condition {
    fn holds(&self, body: &Value) -> bool {
        body.pointer(&self.pointer).is_some_and(|found| self.values.contains(found))
    }
}

/// What a response means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeReading {
    Applied,
    NotApplied,
    Nothing(&'static str),
}

impl Meaning {
    /// Whether the body must be read.
    pub fn reads_body(&self) -> bool {
        !self.applied_if.is_empty() || !self.not_applied_if.is_empty()
    }

    /// The meaning of a response with this status and body; no body if it was too long.
    pub(super) fn of(&self, status: StatusCode, body: Option<&[u8]>) -> ProbeReading {
        let status = status.as_u16();
        if self.not_applied.contains(&status) {
            return ProbeReading::NotApplied;
        }
        if !self.applied.contains(&status) {
            return ProbeReading::Nothing("its status is not one that was configured");
        }
        if !self.reads_body() {
            return ProbeReading::Applied;
        }
        let Some(body) = body else { return ProbeReading::Nothing("its body is too long") };
        let Ok(body) = json::value(body) else {
            return ProbeReading::Nothing("its body is not JSON, or has a member twice in one object");
        };
        let all = |conditions: &[Condition]| conditions.iter().all(|condition| condition.holds(&body));
        let was_applied = all(&self.applied_if);
        let is_not_applied = !self.not_applied_if.is_empty() && all(&self.not_applied_if);
        match (was_applied, is_not_applied) {
            (true, false) => ProbeReading::Applied,
            // Without its own condition, "it happened" is the rest.
            (true, true) if self.applied_if.is_empty() => ProbeReading::NotApplied,
            (false, true) => ProbeReading::NotApplied,
            (true, true) => ProbeReading::Nothing("its body says both that it happened and that it did not"),
            (false, false) => {
                ProbeReading::Nothing("its body says neither that it happened nor that it did not")
            }
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

    fn reading(meaning: &Meaning, status: u16, body: &str) -> ProbeReading {
        meaning.of(StatusCode::from_u16(status).expect("a status"), Some(body.as_bytes()))
    }

    #[test]
    fn an_unlisted_status_says_nothing() {
        let usual = Meaning::default();
        assert_eq!(reading(&usual, 200, ""), ProbeReading::Applied);
        for status in [201, 204, 302, 401, 403, 404, 410, 429, 500, 503] {
            assert!(matches!(reading(&usual, status, ""), ProbeReading::Nothing(_)), "{status}");
        }
        let listed = Meaning { applied: vec![204], not_applied: vec![404, 410], ..usual };
        assert_eq!(reading(&listed, 204, ""), ProbeReading::Applied);
        assert_eq!([404, 410].map(|status| reading(&listed, status, "")), [ProbeReading::NotApplied; 2]);
        assert!(matches!(reading(&listed, 200, ""), ProbeReading::Nothing(_)));
    }

    #[test]
    fn a_body_decides_only_with_a_listed_status() {
        let meaning = Meaning {
            applied_if: vec![
                condition("/status", &[json!("done"), json!("paid")]),
                condition("/n", &[json!(1)]),
            ],
            not_applied_if: vec![condition("/status", &[json!("unknown")])],
            ..Meaning::default()
        };
        for (body, expected) in [
            (r#"{"status":"done","n":1}"#, Some(ProbeReading::Applied)),
            (r#"{"n":1,"status":"paid"}"#, Some(ProbeReading::Applied)),
            (r#"{"status":"unknown"}"#, Some(ProbeReading::NotApplied)),
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
                Some(expected) => assert_eq!(reading(&meaning, 200, body), expected, "{body}"),
                None => assert!(matches!(reading(&meaning, 200, body), ProbeReading::Nothing(_)), "{body}"),
            }
        }
        assert!(matches!(reading(&meaning, 500, r#"{"status":"done","n":1}"#), ProbeReading::Nothing(_)));
        assert!(matches!(reading(&meaning, 500, r#"{"status":"unknown"}"#), ProbeReading::Nothing(_)));
        assert!(matches!(meaning.of(StatusCode::OK, None), ProbeReading::Nothing(_)), "too long to be read");
    }

    #[test]
    fn a_contradictory_body_says_nothing() {
        let both = Meaning {
            applied_if: vec![condition("/a", &[json!(true)])],
            not_applied_if: vec![condition("/b", &[json!(true)])],
            ..Meaning::default()
        };
        assert!(matches!(reading(&both, 200, r#"{"a":true,"b":true}"#), ProbeReading::Nothing(_)));
        let one = Meaning { applied_if: Vec::new(), ..both };
        assert_eq!(reading(&one, 200, r#"{"a":true,"b":true}"#), ProbeReading::NotApplied);
        assert_eq!(
            reading(&one, 200, r#"{"b":false}"#),
            ProbeReading::Applied,
            "no condition matches, so the status decides"
        );
    }
}
