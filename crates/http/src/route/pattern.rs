//! Path patterns of routes.
//!
//! Patterns such as `/accounts/{account}/charges`, and errors for texts that only look like patterns. A pattern that no
//! request can match is refused, because its author believes that something is protected.

use semel::core::scope::normal_path_except;
use std::fmt;
use std::fmt::Write as _;

/// A path pattern: fixed segments, `{name}` for any one segment, and `{*name}` at the end for all remaining segments.
///
/// Patterns and requests are compared in the [normal form](semel::core::scope::normal_path) of paths: `/charges` also
/// matches `/%63harges` and `//charges`, and `/über` matches `/%C3%BCber`. Letter case, a trailing slash and `;`
/// parameters count.
///
/// ```
/// use semel_http::RoutePattern;
///
/// let pattern = RoutePattern::parse("/users/{id}")?;
/// assert!(pattern.covers(&RoutePattern::parse("/users/7")?));
/// let error = RoutePattern::parse("/users/:id").unwrap_err();
/// assert_eq!(error.remedy(), "write `/users/{id}`");
/// # Ok::<(), semel_http::RoutePatternError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePattern {
    text: String,
    /// The same, in its normal form.
    normal: String,
    segments: Vec<Segment>,
    is_open: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Fixed(String),
    Any,
}

impl RoutePattern {
    /// Parses a pattern. The error says what is wrong, and what to write.
    pub fn parse(text: &str) -> Result<Self, RoutePatternError> {
        check(text).map_err(|(problem, remedy)| RoutePatternError {
            pattern: text.to_owned(),
            problem,
            remedy,
        })?;
        let normal = normal_path_except(text, |segment| segment.starts_with('{')).into_owned();
        let mut segments = Vec::new();
        let mut is_open = false;
        for segment in normal.split('/').skip(1) {
            if segment.starts_with("{*") {
                is_open = true;
            } else if segment.starts_with('{') {
                segments.push(Segment::Any);
            } else {
                segments.push(Segment::Fixed(segment.to_owned()));
            }
        }
        Ok(Self { text: text.to_owned(), normal, segments, is_open })
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether this pattern matches every path that `other` matches.
    pub fn covers(&self, other: &Self) -> bool {
        let is_long_enough = match (self.is_open, other.is_open) {
            (true, true) => other.segments.len() >= self.segments.len(),
            (true, false) => other.segments.len() > self.segments.len(),
            (false, true) => false,
            (false, false) => other.segments.len() == self.segments.len(),
        };
        let covers = |pair: (&Segment, &Segment)| match pair {
            (Segment::Any, Segment::Any) => true,
            (Segment::Any, Segment::Fixed(text)) => !text.is_empty(),
            (Segment::Fixed(_), Segment::Any) => false,
            (Segment::Fixed(one), Segment::Fixed(other)) => one == other,
        };
        is_long_enough && self.segments.iter().zip(&other.segments).all(covers)
    }

    /// The normal form.
    pub(crate) fn normal(&self) -> &str {
        &self.normal
    }

    pub(crate) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// Whether it matches exactly one path.
    pub(crate) fn is_fixed(&self) -> bool {
        !self.is_open && self.segments.iter().all(|segment| matches!(segment, Segment::Fixed(_)))
    }

    /// Whether a path in normal form matches.
    pub(crate) fn fits(&self, path: &str) -> bool {
        let Some(path) = path.strip_prefix('/') else { return false };
        let mut given = path.split('/');
        let is_fit = self.segments.iter().all(|segment| {
            given.next().is_some_and(|given| match segment {
                Segment::Any => !given.is_empty(),
                Segment::Fixed(text) => text == given,
            })
        });
        is_fit && (self.is_open == given.next().is_some())
    }
}

/// The text as written.
impl fmt::Display for RoutePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why a text is not a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoutePatternError {
    pattern: String,
    problem: String,
    remedy: String,
}

impl RoutePatternError {
    /// What is wrong.
    pub fn problem(&self) -> String {
        format!("`{}` is not a route pattern: {}", self.pattern, self.problem)
    }

    /// What to write instead.
    pub fn remedy(&self) -> &str {
        &self.remedy
    }
}

impl fmt::Display for RoutePatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.problem(), self.remedy)
    }
}

impl std::error::Error for RoutePatternError {}

type Found = (String, String);

/// Finds out why a text is not a pattern, and what to write instead.
fn check(text: &str) -> Result<(), Found> {
    let Some(rest) = text.strip_prefix('/') else {
        return Err(("a path must begin with a slash".into(), format!("write `/{text}`")));
    };
    let outside = |mark: char| {
        // Inside braces it is part of a parameter, which is checked below.
        let mut depth = 0_usize;
        text.find(|letter: char| {
            depth = match letter {
                '{' => depth + 1,
                '}' => depth.saturating_sub(1),
                _ => depth,
            };
            letter == mark && depth == 0
        })
    };
    if let Some(at) = outside('?') {
        let problem = format!("`{}` is a query, and patterns match only the path", &text[at..]);
        return Err((problem, format!("write `{}`; a rule applies to every query", &text[..at])));
    }
    if let Some(at) = outside('#') {
        let problem = format!("`{}` is a fragment, which clients do not send", &text[at..]);
        return Err((problem, format!("write `{}`", &text[..at])));
    }
    let segments: Vec<_> = rest.split('/').collect();
    for (at, segment) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        if let Some((problem, instead)) = misread(segment, is_last) {
            let mut fixed = segments.clone();
            fixed[at] = &instead;
            return Err((problem, format!("write `/{}`", fixed.join("/"))));
        }
    }
    Ok(())
}

/// What is wrong with a segment, and what was probably meant.
fn misread(segment: &str, is_last: bool) -> Option<(String, String)> {
    let foreign = |name: &str| {
        let problem = format!("`{segment}` matches only itself; parameters are written in braces");
        Some((problem, format!("{{{}}}", plain(name))))
    };
    if let Some(name) = segment.strip_prefix(':') {
        return foreign(name);
    }
    if !segment.is_empty() && segment.bytes().all(|byte| byte == b'*') {
        let problem = format!("`{segment}` matches only itself");
        let any = if is_last { "{*rest}" } else { "{any}" };
        return Some((problem, any.to_owned()));
    }
    let within = |open: char, close: char| segment.strip_prefix(open)?.strip_suffix(close);
    if let Some(typed) = within('<', '>').or_else(|| within('[', ']')) {
        let (kind, name) = typed.split_once(':').unwrap_or(("", typed));
        return if kind == "path" && is_last { foreign(&format!("*{name}")) } else { foreign(name) };
    }
    if segment.contains(['{', '}']) {
        return parameter(segment, is_last);
    }
    unsendable(segment)
}

/// What is wrong with a segment that has braces.
fn parameter(segment: &str, is_last: bool) -> Option<(String, String)> {
    let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let Some(name) = name.filter(|name| !name.contains(['{', '}'])) else {
        let problem = format!("`{segment}` is not a parameter: `{{name}}` must be a whole segment");
        let (_, inside) = segment.split_once('{').unwrap_or_default();
        let name = inside.split(['{', '}']).next().unwrap_or_default();
        return Some((problem, format!("{{{}}}", plain(name))));
    };
    let bare = name.strip_prefix('*').unwrap_or(name);
    let is_rest = bare.len() < name.len();
    if is_rest && !is_last {
        let problem = format!("`{segment}` matches all remaining segments, but is not the last one");
        return Some((problem, format!("{{{}}}", plain(bare))));
    }
    if name != "*" && plain(name) != name {
        let problem = format!("`{segment}` is not a parameter: names have letters, digits, `_`, `-` and `.`");
        return Some((problem, format!("{{{}}}", plain(name))));
    }
    None
}

/// A valid parameter name, as close as possible to the text.
fn plain(name: &str) -> String {
    let (star, name) = if let Some(name) = name.strip_prefix('*') { ("*", name) } else { ("", name) };
    let is_plain = |letter: &char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let name: String = name.chars().take_while(is_plain).collect();
    match (star, name.is_empty()) {
        ("", true) => "name".to_owned(),
        ("*", true) => "*rest".to_owned(),
        _ => format!("{star}{name}"),
    }
}

/// Finds characters that clients send only escaped, and escapes them. Non-ASCII letters are allowed: they are
/// compared in escaped form.
fn unsendable(segment: &str) -> Option<(String, String)> {
    let mut found = None;
    let mut escaped = String::new();
    for (at, letter) in segment.char_indices() {
        let what = match letter {
            '%' if !begins_escape(&segment[at..]) => "a `%` without two hexadecimal digits".to_owned(),
            letter if letter.is_whitespace() => "white space".to_owned(),
            letter if letter.is_control() => "a control character".to_owned(),
            '"' | '<' | '>' | '[' | ']' | '\\' | '^' | '`' | '|' => format!("`{letter}`"),
            letter => {
                escaped.push(letter);
                continue;
            }
        };
        found.get_or_insert(what);
        for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Some((format!("`{segment}` has {}, which clients send escaped", found?), escaped))
}

fn begins_escape(text: &str) -> bool {
    let digits = text.bytes().skip(1).take(2).filter(u8::is_ascii_hexdigit);
    digits.count() == 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::core::scope::normal_path;

    fn pattern(text: &str) -> RoutePattern {
        RoutePattern::parse(text).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn patterns_fit_whole_segments_and_nothing_else() {
        let fits = |text: &str, path: &str| pattern(text).fits(&normal_path(path));
        for (text, path) in [
            ("/charges", "/charges"),
            ("/charges", "/%63harges"),
            ("/charges", "//charges"),
            ("/charges", "/x/%2e%2E/charges"),
            ("/%63harges", "/charges"),
            ("//v1/./charges", "/v1/charges"),
            ("/über/{id}", "/%c3%bcber/7"),
            ("/über/{id}", "/über/7"),
            ("/x%20y", "/x%20y"),
            ("/a%2fb", "/a%2Fb"),
            ("/a/{id}/b", "/a/7/b"),
            ("/a/{id}", "/a/%2F"),
            ("/a/{*rest}", "/a/7/b"),
            ("/a/{*}", "/a/7/b"),
            ("/", "/"),
        ] {
            assert!(fits(text, path), "{text} {path}");
        }
        for (text, path) in [
            ("/charges", "/charges/"),
            ("/charges", "/Charges"),
            ("/charges", "/charges;v=1"),
            ("/charges", "/%2563harges"),
            ("/a/b", "/a%2Fb"),
            ("/a/{id}", "/a/"),
            ("/a/{id}", "/a/7/b"),
            ("/a/{*rest}", "/a"),
            ("/charges", "*"),
        ] {
            assert!(!fits(text, path), "{text} {path}");
        }
    }

    #[test]
    fn an_unmatchable_pattern_is_refused_with_a_suggestion() {
        for (text, found, remedy) in [
            ("", "begin with a slash", "write `/`"),
            ("charges", "begin with a slash", "write `/charges`"),
            ("/users/:id", "`:id` matches only itself", "write `/users/{id}`"),
            ("/users/:id/x", "`:id`", "write `/users/{id}/x`"),
            ("/users/:", "`:`", "write `/users/{name}`"),
            ("/users/*", "`*` matches only itself", "write `/users/{*rest}`"),
            ("/users/**", "`**`", "write `/users/{*rest}`"),
            ("/*/x", "`*`", "write `/{any}/x`"),
            ("/users/<id>", "`<id>` matches only itself", "write `/users/{id}`"),
            ("/users/<int:id>", "`<int:id>`", "write `/users/{id}`"),
            ("/files/<path:rest>", "`<path:rest>`", "write `/files/{*rest}`"),
            ("/users/[id]", "`[id]`", "write `/users/{id}`"),
            ("/pay?now", "`?now` is a query", "write `/pay`; a rule applies to every query"),
            ("/pay?", "`?` is a query", "write `/pay`"),
            ("/c#d", "`#d` is a fragment", "write `/c`"),
            ("/x y", "white space", "write `/x%20y`"),
            ("/x\ty ", "white space", "write `/x%09y%20`"),
            ("/x\u{1}", "a control character", "write `/x%01`"),
            ("/100%", "a `%` without two hexadecimal digits", "write `/100%25`"),
            ("/a%2", "a `%`", "write `/a%252`"),
            ("/a|b", "`|`, which clients send escaped", "write `/a%7Cb`"),
            ("/a<b", "`<`", "write `/a%3Cb`"),
            ("/x/{a}{b}", "`{a}{b}` is not a parameter", "write `/x/{a}`"),
            ("/a{b}", "`a{b}` is not a parameter", "write `/{b}`"),
            ("/{a", "not a parameter", "write `/{a}`"),
            ("/a}", "not a parameter", "write `/{name}`"),
            ("/{}", "`{}` is not a parameter", "write `/{name}`"),
            ("/{id:int}", "`{id:int}` is not a parameter", "write `/{id}`"),
            ("/users/{id?}", "`{id?}` is not a parameter", "write `/users/{id}`"),
            ("/{*all}/b", "is not the last one", "write `/{all}/b`"),
            ("/a/{*rest}/", "is not the last one", "write `/a/{rest}/`"),
        ] {
            let error = RoutePattern::parse(text).expect_err(text);
            let text_of_error = error.to_string();
            assert!(
                text_of_error.starts_with(&format!("`{text}` is not a route pattern: ")),
                "{text_of_error}"
            );
            assert!(text_of_error.contains(found) && error.remedy().starts_with(remedy), "{text_of_error}");
        }
    }

    #[test]
    fn every_suggestion_is_a_pattern() {
        for text in [
            "users/:id",
            "/:a/:b",
            "/a b/*",
            "/<x y>",
            "/{}/{",
            "/{a b}",
            "/\\d+",
            "/a?b#c",
            "/%/%",
            "/\u{a0}",
        ] {
            let mut text = text.to_owned();
            while let Err(error) = RoutePattern::parse(&text) {
                let (_, remedy) = error.remedy().split_once('`').expect("what to write");
                let (remedy, _) = remedy.split_once('`').expect("its end");
                assert_ne!(text, remedy);
                text = remedy.to_owned();
            }
        }
    }

    #[test]
    fn a_pattern_covers_what_fits_no_other_way() {
        let covers = |one: &str, other: &str| pattern(one).covers(&pattern(other));
        for (one, other) in [
            ("/a", "/a"),
            ("/a", "/%61"),
            ("/%C3%BC", "/ü"),
            ("/a/{id}", "/a/{name}"),
            ("/a/{id}", "/a/7"),
            ("/{*all}", "/a"),
            ("/{*all}", "/a/{*rest}"),
            ("/a/{*rest}", "/a/b/c"),
        ] {
            assert!(covers(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("/a", "/b"),
            ("/a/7", "/a/{id}"),
            ("/a/{id}", "/a/"),
            ("/a/{id}", "/a/{*rest}"),
            ("/a/{*rest}", "/a"),
            ("/a/b/{*rest}", "/a/{*rest}"),
        ] {
            assert!(!covers(one, other), "{one} {other}");
        }
    }
}
