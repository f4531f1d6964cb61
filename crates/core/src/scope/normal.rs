//! The form in which methods and paths are compared.
//!
//! Which spellings of a method or a path mean the same. The normal form is never sent on: services get the client's own
//! spelling. Letter case, a trailing slash and `;` parameters count: services differ there, so operators decide.

use std::borrow::Cow;
use std::fmt::Write as _;

/// A method for comparison: in upper case. Many services accept `post` for `POST`.
///
/// ```
/// use semel_core::scope::normal_method;
///
/// assert_eq!(normal_method("patch"), "PATCH");
/// ```
pub fn normal_method(method: &str) -> Cow<'_, str> {
    if method.bytes().any(|byte| byte.is_ascii_lowercase()) {
        Cow::Owned(method.to_ascii_uppercase())
    } else {
        Cow::Borrowed(method)
    }
}

/// A path for comparison: the normal form of RFC 3986 (6.2.2), with repeated slashes merged.
///
/// Escapes of letters, digits, `-`, `.`, `_` and `~` are decoded, and other escapes are in upper case. Characters
/// that are not allowed in a path, and a `%` without two digits, are escaped. Repeated slashes are merged, and then
/// `.` and `..` segments are removed. A text that does not begin with a slash (`*`) is not a path, and is unchanged.
///
/// An ordinary path is its own normal form, and so is every normal form.
///
/// ```
/// use semel_core::scope::normal_path;
///
/// assert_eq!(normal_path("//v1/%63harges/./7%2fa"), "/v1/charges/7%2Fa");
/// assert_eq!(normal_path("/a/%2e%2e/charges"), "/charges");
/// assert_eq!(normal_path("/Charges/;v=1"), "/Charges/;v=1");
/// ```
pub fn normal_path(path: &str) -> Cow<'_, str> {
    normal_path_except(path, |_| false)
}

/// The same for a route pattern: segments for which `is_kept` holds are unchanged.
pub fn normal_path_except(path: &str, is_kept: impl Fn(&str) -> bool) -> Cow<'_, str> {
    let Some(rest) = path.strip_prefix('/').filter(|_| !is_ordinary(path)) else {
        return Cow::Borrowed(path);
    };
    let mut normal = String::with_capacity(path.len());
    let mut has_slash_at_end = false;
    for segment in rest.split('/') {
        let before = normal.len();
        normal.push('/');
        if is_kept(segment) {
            normal.push_str(segment);
        } else {
            push_segment(&mut normal, segment);
        }
        // Judged after decoding: an escaped dot segment is a dot segment.
        let levels_up = match &normal[before..] {
            "/" | "/." => 0,
            "/.." => 1,
            _ => {
                has_slash_at_end = false;
                continue;
            }
        };
        has_slash_at_end = true;
        normal.truncate(before);
        if levels_up == 1 {
            normal.truncate(normal.rfind('/').unwrap_or(0));
        }
    }
    if has_slash_at_end {
        normal.push('/');
    }
    Cow::Owned(normal)
}

/// A fast check that a path is its own normal form, as most are.
fn is_ordinary(path: &str) -> bool {
    let is_ordinary = |byte: u8| byte == b'/' || is_plain(byte);
    path.bytes().all(is_ordinary) && !path.contains("//") && !path.contains("/.")
}

fn push_segment(normal: &mut String, segment: &str) {
    let mut rest = segment.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        let byte = match (*byte, escaped(after)) {
            (b'%', Some(byte)) => {
                rest = &after[2..];
                if !is_unreserved(byte) {
                    push_escape(normal, byte);
                    continue;
                }
                byte
            }
            (byte, _) => byte,
        };
        if is_plain(byte) {
            normal.push(char::from(byte));
        } else {
            push_escape(normal, byte);
        }
    }
}

fn push_escape(normal: &mut String, byte: u8) {
    // Writing to a string cannot fail.
    let _ = write!(normal, "%{byte:02X}");
}

/// The byte of the two hexadecimal digits at the start of a text.
fn escaped(text: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*text.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

/// `unreserved` of RFC 3986: escaping these never changes the meaning.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// `pchar` of RFC 3986, without escapes: allowed in a segment.
fn is_plain(byte: u8) -> bool {
    is_unreserved(byte) || b"!$&'()*+,;=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_rule_of_the_normal_form_holds() {
        for (path, normal) in [
            ("/", "/"),
            ("/charges", "/charges"),
            ("/.well-known/a..b/...", "/.well-known/a..b/..."),
            ("/%63harges", "/charges"),
            ("/%7euser/%2D%2e%5F", "/~user/-._"),
            ("/a%2fb%3a%c3%bc", "/a%2Fb%3A%C3%BC"),
            ("//charges", "/charges"),
            ("/a///b//", "/a/b/"),
            ("//", "/"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e/b/%2E%2e/c", "/a/c"),
            ("/a/.%2e/b", "/b"),
            ("/a//../b", "/b"),
            ("/../../charges", "/charges"),
            ("/a/b/..", "/a/"),
            ("/a/b/.", "/a/b/"),
            ("/..", "/"),
            ("/über/a b\"|[x]", "/%C3%BCber/a%20b%22%7C%5Bx%5D"),
            ("/100%/%zz/%4/%", "/100%25/%25zz/%254/%25"),
            ("/%%363", "/%2563"),
            ("/%2563harges", "/%2563harges"),
            ("*", "*"),
            ("", ""),
            ("charges//x", "charges//x"),
        ] {
            assert_eq!(normal_path(path), normal, "{path}");
        }
    }

    #[test]
    fn letter_case_trailing_slashes_and_parameters_stay() {
        for path in ["/Charges", "/charges/", "/charges;v=1", "/..;/charges", "/a/b;c=d/e,f"] {
            assert_eq!(normal_path(path), path);
        }
    }

    #[test]
    fn segments_that_are_kept_stay_whatever_is_around_them() {
        let kept = |path| normal_path_except(path, |segment| segment.starts_with('{')).into_owned();
        assert_eq!(kept("/%61/{id}//ü/{*rest}"), "/a/{id}/%C3%BC/{*rest}");
        assert_eq!(kept("/a/{id}/../b"), "/a/b");
    }

    #[test]
    fn a_method_is_folded_and_an_ordinary_one_untouched() {
        for method in ["post", "Post", "POST"] {
            assert_eq!(normal_method(method), "POST");
        }
        assert!(matches!(normal_method("M-SEARCH"), Cow::Borrowed("M-SEARCH")));
    }

    /// A segment of characters that need no escape, and not a dot segment.
    fn segment() -> impl Strategy<Value = String> {
        "[a-zA-Z0-9._~!$&'()*+,;=:@-]{1,6}"
            .prop_filter("a dot segment", |segment| segment != "." && segment != "..")
    }

    fn segments() -> impl Strategy<Value = (Vec<String>, bool)> {
        (proptest::collection::vec(segment(), 0..5), any::<bool>())
    }

    fn joined(segments: &[String], has_slash_at_end: bool) -> String {
        let mut path: String = segments.iter().flat_map(|segment| ["/", segment]).collect();
        if has_slash_at_end || path.is_empty() {
            path.push('/');
        }
        path
    }

    /// Text with many special characters.
    fn hostile() -> impl Strategy<Value = String> {
        prop_oneof!["[/.%2eEfF5~aZ;é{ ]{0,24}", "/[/.%2eE3]{0,16}", any::<String>()]
    }

    /// Another spelling of a segment: each character escaped or not, in either case.
    fn spelt(segment: &str, dice: &mut impl Iterator<Item = u8>) -> String {
        let mut text = String::new();
        for byte in segment.bytes() {
            match dice.next().unwrap_or(2) % 3 {
                0 if is_unreserved(byte) => drop(write!(text, "%{byte:02x}")),
                1 if is_unreserved(byte) => drop(write!(text, "%{byte:02X}")),
                _ => text.push(char::from(byte)),
            }
        }
        text
    }

    proptest! {
        #[test]
        fn normalising_twice_changes_nothing(path in hostile()) {
            let once = normal_path(&path).into_owned();
            prop_assert_eq!(normal_path(&once), once.as_str());
        }

        #[test]
        fn a_normal_path_has_no_second_spelling_left(path in hostile()) {
            let path = format!("/{path}");
            let normal = normal_path(&path);
            let rest = normal.strip_prefix('/').expect("a normal path starts with a slash");
            let mut segments: Vec<_> = rest.split('/').collect();
            // Empty only at the end: a trailing slash is the operator's choice.
            if segments.last() == Some(&"") {
                segments.pop();
            }
            for segment in segments {
                prop_assert!(!["", ".", ".."].contains(&segment), "{normal}");
                prop_assert!(segment.bytes().all(|byte| byte == b'%' || is_plain(byte)), "{normal}");
                for escape in segment.split('%').skip(1) {
                    let byte = escaped(escape.as_bytes()).expect("a % begins an escape");
                    prop_assert!(!is_unreserved(byte), "{normal}");
                    prop_assert!(!escape[..2].contains(|c: char| c.is_ascii_lowercase()), "{normal}");
                }
            }
        }

        #[test]
        fn an_ordinary_path_is_unchanged((segments, has_slash) in segments()) {
            let path = joined(&segments, has_slash);
            prop_assert_eq!(normal_path(&path), path.as_str());
        }

        #[test]
        fn every_spelling_of_a_path_has_the_same_normal_form(
            (segments, has_slash) in segments(),
            dice in proptest::collection::vec(any::<u8>(), 96),
        ) {
            let path = joined(&segments, has_slash);
            let mut dice = dice.into_iter();
            let mut other = String::new();
            for segment in &segments {
                other.push_str(match dice.next().unwrap_or(0) % 6 {
                    0 => "//",
                    1 => "/./",
                    2 => "/%2e//",
                    3 => "/gone/../",
                    4 => "/%67one/.%2E/",
                    _ => "/",
                });
                other.push_str(&spelt(segment, &mut dice));
            }
            if path.ends_with('/') {
                other.push_str(["/", "//", "/.", "/x/.."][usize::from(dice.next().unwrap_or(0) % 4)]);
            }
            prop_assert_eq!(normal_path(&other), path.as_str());
        }
    }
}
