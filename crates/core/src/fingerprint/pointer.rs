//! Parsed JSON pointers (RFC 6901).
//!
//! Parsing and display only; for lookups, see `json::find`.

use std::fmt;

/// A parsed JSON pointer to one place in a JSON body.
///
/// Parse pointers when you read the configuration; lookups then cannot fail. There are no wildcards: `*` is an
/// ordinary member name, and an array element is named by its index.
///
/// ```
/// use semel_core::fingerprint::Pointer;
///
/// let pointer = Pointer::parse("/orders/0/a~1b")?;
/// assert_eq!(pointer.to_string(), "/orders/0/a~1b");
/// assert!(Pointer::parse("orders").is_err());
/// # Ok::<(), semel_core::fingerprint::PointerError>(())
/// ```
// Ordered step by step, so that pointers below one place sort together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    /// Parses `text`. The empty text names the whole body.
    pub fn parse(text: &str) -> Result<Self, PointerError> {
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PointerError("a JSON pointer must be empty or start with a slash"));
        };
        rest.split('/').map(unescape).collect::<Result<_, _>>().map(|steps| Self { steps })
    }

    pub(super) fn steps(&self) -> &[String] {
        &self.steps
    }
}

/// The text it was parsed from.
impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| write!(f, "/{}", step.replace('~', "~0").replace('/', "~1")))
    }
}

/// Why a text is not a JSON pointer. A fixed sentence, without the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerError(&'static str);

impl fmt::Display for PointerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for PointerError {}

fn unescape(step: &str) -> Result<String, PointerError> {
    let mut text = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => match chars.next() {
                Some('0') => text.push('~'),
                Some('1') => text.push('/'),
                _ => return Err(PointerError("in a JSON pointer, ~ must be followed by 0 or 1")),
            },
            c => text.push(c),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_unescaped_and_nothing_else_passes() {
        let steps = |text| Pointer::parse(text).map(|pointer| pointer.steps().to_vec());
        assert_eq!(steps(""), Ok(vec![]));
        assert_eq!(steps("/"), Ok(vec![String::new()]));
        assert_eq!(steps("/a~1b/~01/0"), Ok(vec!["a/b".into(), "~1".into(), "0".into()]));
        for bad in ["a", "#/a", "/~", "/~2", "/a~"] {
            assert!(steps(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_pointer_is_shown_as_it_was_written() {
        for text in ["", "/", "//", "/a/0", "/a~1b/~01/~0", "/*"] {
            assert_eq!(Pointer::parse(text).unwrap().to_string(), text);
        }
    }
}
