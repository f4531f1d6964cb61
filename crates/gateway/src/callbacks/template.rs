//! Path templates. A value that is filled in cannot leave its path segment.

use crate::invalid_value::InvalidValue;
use http::uri::PathAndQuery;
use semel::core::id::OperationId;
use semel_text::percent;
use std::fmt;
use std::fmt::Write as _;

/// A placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// `{operation_id}`: the operation ID, which the service got as `Operation-Id`.
    OperationId,
    /// `{operation}`: the operation's name, or method and path if it has none.
    Operation,
}

impl Placeholder {
    const fn name(self) -> &'static str {
        match self {
            Self::OperationId => "operation_id",
            Self::Operation => "operation",
        }
    }
}

/// A path, with an optional query, with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Filled(Placeholder),
}

impl Template {
    /// Reads a path with `known` placeholders.
    pub fn parse(text: &str, known: &[Placeholder]) -> Result<Self, InvalidValue> {
        let refused =
            |why: &str, fix: &str| InvalidValue::new(format!("`{text}` {why}"), format!("write {fix}"));
        if !text.starts_with('/') || text.starts_with("//") {
            return Err(refused("is not a path", "one that begins with one slash"));
        }
        if text.contains('#') {
            return Err(refused("has a fragment, which is never sent", "it without `#`"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((name, after)) = after.split_once('}') else {
                return Err(refused("has a brace that is not closed", &listed(known)));
            };
            let Some(found) = known.iter().find(|placeholder| placeholder.name() == name) else {
                let problem = format!("unknown placeholder {{{name}}}");
                return Err(InvalidValue::new(problem, format!("write {}", listed(known))));
            };
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Filled(*found));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        let template = Self { text: text.to_owned(), parts };
        let is_bare = |part: &Part| matches!(part, Part::Text(text) if text.contains('}'));
        if template.parts.iter().any(is_bare) {
            return Err(refused("has a closing brace without an opening one", &listed(known)));
        }
        let sample = template.fill(OperationId::from_bytes([0; 16]), "x");
        if sample.is_none() || text.contains(char::is_whitespace) {
            return Err(refused("is not a path", "it as it is sent, with %20 for a space"));
        }
        Ok(template)
    }

    /// Whether it contains `placeholder`.
    pub fn has(&self, placeholder: Placeholder) -> bool {
        self.parts.contains(&Part::Filled(placeholder))
    }

    /// The path for one operation. None if it would be too long.
    pub fn fill(&self, operation_id: OperationId, operation: &str) -> Option<PathAndQuery> {
        let mut path = String::with_capacity(self.text.len() + 32);
        for part in &self.parts {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Filled(Placeholder::OperationId) => drop(write!(path, "{operation_id}")),
                Part::Filled(Placeholder::Operation) => path.push_str(&percent::encode(operation)),
            }
        }
        path.parse().ok()
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn listed(known: &[Placeholder]) -> String {
    let names: Vec<_> = known.iter().map(|placeholder| format!("{{{}}}", placeholder.name())).collect();
    if names.is_empty() { "a path without braces".to_owned() } else { names.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &[Placeholder] = &[Placeholder::OperationId, Placeholder::Operation];

    #[test]
    fn filled_in_values_stay_in_their_segment() {
        let id = OperationId::from_bytes([0xab; 16]);
        let filled = |text: &str, operation: &str| {
            let template = Template::parse(text, BOTH).expect("a template");
            template.fill(id, operation).expect("a path").to_string()
        };
        assert_eq!(filled("/a/{operation_id}?x=1", ""), format!("/a/{id}?x=1"));
        assert_eq!(
            filled("/{operation}/y?of={operation}", "POST /a/../b?c#d&é"),
            "/POST%20%2Fa%2F..%2Fb%3Fc%23d%26%C3%A9/y?of=POST%20%2Fa%2F..%2Fb%3Fc%23d%26%C3%A9"
        );
        assert_eq!(filled("/{operation_id}{operation}", "pay"), format!("/{id}pay"));
        let long = Template::parse("/{operation}", BOTH).expect("a template");
        assert_eq!(long.fill(id, &"é".repeat(20_000)), None);
    }

    #[test]
    fn an_invalid_template_is_reported_with_a_correct_form() {
        for (text, expected) in [
            ("", "slash"),
            ("charges", "slash"),
            ("//host/x", "slash"),
            ("/a#b", "fragment"),
            ("/{operation_id", "not closed"),
            ("/operation_id}", "without an opening one"),
            ("/{key}", "{operation_id} or {operation}"),
            ("/{}", "{operation_id} or {operation}"),
            ("/a b", "%20"),
        ] {
            let refusal = Template::parse(text, BOTH).expect_err(text).to_string();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
        let refusal = Template::parse("/{operation_id}", &[]).expect_err("none is known").to_string();
        assert!(refusal.contains("without braces"), "{refusal}");
    }
}
