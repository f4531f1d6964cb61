//! JSON pointers (RFC 6901), taken apart.
//!
//! What lives here: the text form and its rules. What must never: looking anything up; see `json::find`.

/// The unescaped steps of one pointer. Ordered step by step, so that pointers below one place sort together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    /// Takes `text` apart, or says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Ok(Self { steps: Vec::new() });
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err("a JSON pointer is empty or starts with a slash");
        };
        rest.split('/').map(unescape).collect::<Result<_, _>>().map(|steps| Self { steps })
    }

    pub(super) fn steps(&self) -> &[String] {
        &self.steps
    }
}

fn unescape(step: &str) -> Result<String, &'static str> {
    let mut text = String::with_capacity(step.len());
    let mut chars = step.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => match chars.next() {
                Some('0') => text.push('~'),
                Some('1') => text.push('/'),
                _ => return Err("in a JSON pointer, ~ is followed by 0 or 1"),
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
}
