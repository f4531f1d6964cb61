//! Finds the session cookie. Two cookies of that name are refused: somebody who controls a sibling domain may have set
//! one of them.

use http::HeaderMap;
use http::header::COOKIE;
use std::fmt;

/// The cookies of one name in a request.
#[derive(PartialEq, Eq)]
pub(super) enum CookieMatch<'a> {
    Nothing,
    /// Its value, not empty.
    One(&'a [u8]),
    /// It came without a value.
    Empty,
    Several,
}

/// Without the value: a session cookie is like a password.
impl fmt::Debug for CookieMatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("Nothing"),
            Self::One(value) => write!(f, "One({} bytes)", value.len()),
            Self::Empty => f.write_str("Empty"),
            Self::Several => f.write_str("Several"),
        }
    }
}

/// Finds the cookie `name`, which is case-sensitive. HTTP/2 may send each cookie on its own line.
pub(super) fn find<'a>(headers: &'a HeaderMap, name: &str) -> CookieMatch<'a> {
    let lines = headers.get_all(COOKIE).iter();
    let pairs = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b';'));
    let mut values = pairs.filter_map(|pair| value_of(pair.trim_ascii(), name.as_bytes()));
    match (values.next(), values.next()) {
        (None, _) => CookieMatch::Nothing,
        (Some(_), Some(_)) => CookieMatch::Several,
        (Some([]), None) => CookieMatch::Empty,
        (Some(value), None) => CookieMatch::One(value),
    }
}

/// Some servers read a pair without `=` as a name without a value, others as a value without a name.
fn value_of<'a>(pair: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
    let (left, right) = pair.split_at(equals);
    (left.trim_ascii_end() == name).then(|| right.get(1..).unwrap_or_default().trim_ascii_start())
}

/// Whether a cookie can have this name.
pub(super) fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn found(lines: &[&'static str]) -> String {
        let headers: HeaderMap = lines.iter().map(|line| (COOKIE, HeaderValue::from_static(line))).collect();
        match find(&headers, "sid") {
            CookieMatch::One(value) => String::from_utf8_lossy(value).into_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn the_one_cookie_of_that_name_is_found_anywhere() {
        assert_eq!(found(&["sid=7"]), "7");
        assert_eq!(found(&["a=b; sid=7; c=sid"]), "7");
        assert_eq!(found(&["a=b;sid=7=7;"]), "7=7");
        assert_eq!(found(&["a=b", "sid=7"]), "7", "HTTP/2 splits the header");
        assert_eq!(found(&["sid=\"7\""]), "\"7\"");
    }

    #[test]
    fn other_names_are_other_cookies() {
        for line in ["SID=7", "xsid=7", "sidx=7", "a=sid=7", "", ";;"] {
            assert_eq!(found(&[line]), "Nothing", "{line}");
        }
    }

    #[test]
    fn two_of_one_name_are_never_chosen_between() {
        assert_eq!(found(&["sid=7; sid=8"]), "Several");
        assert_eq!(found(&["sid=7; sid=7"]), "Several");
        assert_eq!(found(&["sid=7", "sid =8"]), "Several");
        assert_eq!(found(&["sid; sid=8"]), "Several");
    }

    #[test]
    fn an_empty_cookie_names_nobody() {
        for line in ["sid=", "sid", "sid= ; a=b"] {
            assert_eq!(found(&[line]), "Empty", "{line}");
        }
    }

    #[test]
    fn a_name_is_a_token() {
        assert!(is_name("__Host-session") && is_name("sid"));
        assert!(!is_name("") && !is_name("a b") && !is_name("a=b") && !is_name("a;") && !is_name("ä"));
    }
}
