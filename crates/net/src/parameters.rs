//! The parameters of a store's URL: what follows its question mark.

use semel_text::percent;
use std::collections::BTreeSet;
use std::str::Split;
use std::time::Duration;
use thiserror::Error;

/// Reads the parameters in their order. An error says what is wrong with one of them, and repeats no value.
#[derive(Debug, Clone)]
pub struct Parameters<'u> {
    scheme: &'static str,
    pairs: Split<'u, char>,
    given: BTreeSet<&'u str>,
}

/// A parameter as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter<'u> {
    scheme: &'static str,
    /// Its name, and its value unless it has none: `timeout=5`.
    pub pair: &'u str,
    /// Its name.
    pub name: &'u str,
    encoded: &'u str,
}

impl<'u> Parameters<'u> {
    /// The parameters of the query of a URL such as `redis://…?query`.
    pub fn of(scheme: &'static str, query: &'u str) -> Self {
        Self { scheme, pairs: query.split('&'), given: BTreeSet::new() }
    }
}

impl<'u> Iterator for Parameters<'u> {
    type Item = Result<Parameter<'u>, ParameterError>;

    fn next(&mut self) -> Option<Self::Item> {
        let pair = self.pairs.find(|pair| !pair.is_empty())?;
        let (name, encoded) = pair.split_once('=').unwrap_or((pair, ""));
        if !self.given.insert(name) {
            return Some(Err(ParameterError::Repeated { scheme: self.scheme, name: name.to_owned() }));
        }
        Some(Ok(Parameter { scheme: self.scheme, pair, name, encoded }))
    }
}

impl Parameter<'_> {
    /// Its value, decoded.
    pub fn value(&self) -> Result<String, ParameterError> {
        let Self { scheme, name, encoded, .. } = *self;
        percent::decode(encoded).ok_or_else(|| ParameterError::NotUtf8 { scheme, name: name.to_owned() })
    }
}

/// Why a parameter cannot be read. It repeats no value.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// Another parameter of the URL has the same name.
    #[error("the {scheme} URL has `{name}` twice")]
    Repeated {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The parameter's name.
        name: String,
    },
    /// Its decoded value is not text.
    #[error("the value of {name} in the {scheme} URL is not UTF-8")]
    NotUtf8 {
        /// The scheme of the URL.
        scheme: &'static str,
        /// The parameter's name.
        name: String,
    },
}

/// A parameter's value as a number of seconds, with a fraction or without.
pub fn seconds(name: &str, value: &str) -> Result<Duration, SecondsError> {
    let seconds: Option<f64> = value.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    let refusal = || SecondsError { name: name.to_owned(), value: value.to_owned() };
    seconds.map(Duration::from_secs_f64).ok_or_else(refusal)
}

/// A value that is not a number of seconds within the range.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} is a number of seconds from 0.1 to 600, not `{value}`")]
pub struct SecondsError {
    /// The parameter's name.
    pub name: String,
    /// Its value.
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_in_order_and_decoded() {
        let found: Result<Vec<_>, ParameterError> = Parameters::of("redis", "a=1%202&&b&c=x=y")
            .map(|parameter| parameter.and_then(|found| Ok((found.pair, found.name, found.value()?))))
            .collect();
        let expected = [("a=1%202", "a", "1 2"), ("b", "b", ""), ("c=x=y", "c", "x=y")];
        assert_eq!(found, Ok(expected.map(|(pair, name, value)| (pair, name, value.to_owned())).to_vec()));
    }

    #[test]
    fn a_mistake_is_reported_when_it_is_reached() {
        let mut parameters = Parameters::of("postgres", "a=%ff&b=1&a=2");
        let first = parameters.next().expect("a parameter").expect("given once");
        let refusal = first.value().expect_err("not text");
        assert_eq!(refusal, ParameterError::NotUtf8 { scheme: "postgres", name: "a".to_owned() });
        assert_eq!(refusal.to_string(), "the value of a in the postgres URL is not UTF-8");
        assert!(parameters.next().is_some_and(|second| second.is_ok()));
        let refusal = parameters.next().expect("a parameter").expect_err("given twice");
        assert_eq!(refusal, ParameterError::Repeated { scheme: "postgres", name: "a".to_owned() });
        assert_eq!(refusal.to_string(), "the postgres URL has `a` twice");
    }

    #[test]
    fn seconds_are_within_their_range() {
        assert_eq!(seconds("timeout", "1.5"), Ok(Duration::from_millis(1_500)));
        for bad in ["", "0", "601", "5s", "NaN", "-1"] {
            let refusal = seconds("timeout", bad).expect_err(bad).to_string();
            assert_eq!(refusal, format!("timeout is a number of seconds from 0.1 to 600, not `{bad}`"));
        }
    }
}
