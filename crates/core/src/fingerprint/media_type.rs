//! Content types in canonical form.
//!
//! Reads a media type with its parameters into the normal form that is hashed, and `Content-Disposition`, which has the
//! same parameters. Reading never fails: a content type that cannot be parsed counts by its exact bytes.

use std::borrow::Cow;

use super::sink::Sink;

/// How to interpret the bytes of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Form,
    Multipart,
    Other,
}

/// A parsed media type: lower-case type and parameter names, values without their quotation marks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    essence: Cow<'static, str>,
    /// None if they cannot be parsed. The type itself still decides how the body is interpreted.
    parameters: Option<Vec<(String, Vec<u8>)>>,
}

impl MediaType {
    /// Reads a `Content-Type` value; `None` if it does not start with a type and a subtype.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        if is_plain_json(text) {
            return Some(Self { essence: Cow::Borrowed("application/json"), parameters: Some(Vec::new()) });
        }
        let (kind, rest) = token(text)?;
        let (subkind, rest) = token(rest.strip_prefix(b"/")?)?;
        if !matches!(rest.trim_ascii_start(), [] | [b';', ..]) {
            return None;
        }
        let mut this = Self { essence: Cow::Owned(kind + "/" + &subkind), parameters: None };
        this.parameters = Parameters::new(rest).collect::<Option<Vec<_>>>().and_then(|list| this.tidy(list));
        Some(this)
    }

    /// Sorts parameters and drops irrelevant ones; `None` if one occurs twice.
    fn tidy(&self, mut parameters: Vec<(String, Vec<u8>)>) -> Option<Vec<(String, Vec<u8>)>> {
        parameters.sort_unstable();
        if parameters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        if self.kind() == Kind::Json {
            parameters.retain(|(name, _)| name != "charset");
        }
        for (_, value) in parameters.iter_mut().filter(|(name, _)| name == "charset") {
            value.make_ascii_lowercase();
        }
        Some(parameters)
    }

    pub(super) fn kind(&self) -> Kind {
        match &*self.essence {
            "application/json" => Kind::Json,
            "application/x-www-form-urlencoded" => Kind::Form,
            "multipart/form-data" => Kind::Multipart,
            // Each message follows a flag and a length, also if it is JSON.
            other if other.starts_with("application/grpc") => Kind::Other,
            other if other.ends_with("+json") => Kind::Json,
            _ => Kind::Other,
        }
    }

    pub(super) fn boundary(&self) -> Option<&[u8]> {
        let (_, value) = self.parameters.as_ref()?.iter().find(|(name, _)| name == "boundary")?;
        Some(value)
    }

    /// The normal form: `type/subtype`, then `;name=value` for each parameter, sorted by name, the value in quotation
    /// marks if it is not a token. `None` if the parameters cannot be read.
    pub(super) fn normal(&self) -> Option<Cow<'_, [u8]>> {
        self.normal_without("")
    }

    /// The normal form without the boundary, for a body that is hashed without it as well.
    pub(super) fn normal_without_boundary(&self) -> Option<Cow<'_, [u8]>> {
        self.normal_without("boundary")
    }

    fn normal_without(&self, left_out: &str) -> Option<Cow<'_, [u8]>> {
        let parameters = self.parameters.as_ref()?;
        if parameters.is_empty() {
            return Some(Cow::Borrowed(self.essence.as_bytes()));
        }
        let mut text = self.essence.as_bytes().to_vec();
        for (name, value) in parameters.iter().filter(|(name, _)| name != left_out) {
            text.write(b";");
            text.write(name.as_bytes());
            text.write(b"=");
            if !value.is_empty() && value.iter().all(|byte| is_token(*byte)) {
                text.write(value);
            } else {
                text.write(b"\"");
                for byte in value {
                    if matches!(byte, b'"' | b'\\') {
                        text.write(b"\\");
                    }
                    text.write(&[*byte]);
                }
                text.write(b"\"");
            }
        }
        Some(Cow::Owned(text))
    }
}

/// The two forms in nearly every JSON request; parsed without allocation.
fn is_plain_json(text: &[u8]) -> bool {
    const JSON: &[u8] = b"application/json";
    let Some((essence, rest)) = text.split_at_checked(JSON.len()) else { return false };
    let charset = || rest.strip_prefix(b";").map(<[u8]>::trim_ascii_start);
    essence.eq_ignore_ascii_case(JSON)
        && (rest.is_empty() || charset().is_some_and(|rest| rest.eq_ignore_ascii_case(b"charset=utf-8")))
}

/// An iterator over the `;name=value` list after a type or a disposition. A long list needs no memory. Yields a final
/// `None` at a syntax error.
pub(super) struct Parameters<'a> {
    rest: &'a [u8],
}

impl<'a> Parameters<'a> {
    pub(super) fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    /// Reads one parameter that starts right here.
    fn read(&mut self) -> Option<(String, Vec<u8>)> {
        let (name, after) = token(self.rest)?;
        let after = after.strip_prefix(b"=")?;
        let (value, after) = match after.strip_prefix(b"\"") {
            Some(quoted) => quoted_string(quoted)?,
            None => match after.iter().take_while(|byte| is_token(**byte)).count() {
                0 => return None,
                len => (after[..len].to_vec(), &after[len..]),
            },
        };
        self.rest = after;
        Some((name, value))
    }
}

impl Iterator for Parameters<'_> {
    type Item = Option<(String, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut separated = false;
        loop {
            self.rest = self.rest.trim_ascii_start();
            match self.rest {
                [] => return None,
                [b';', after @ ..] => {
                    self.rest = after;
                    separated = true;
                }
                _ => break,
            }
        }
        let found = if separated { self.read() } else { None };
        if found.is_none() {
            self.rest = &[];
        }
        Some(found)
    }
}

/// Reads up to the closing quotation mark. A backslash escapes a quotation mark or a backslash; otherwise it is an
/// ordinary character, as in the file names of some senders.
fn quoted_string(mut rest: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let mut value = Vec::new();
    loop {
        match rest {
            [b'"', after @ ..] => return Some((value, after)),
            [b'\\', byte @ (b'"' | b'\\'), after @ ..] | [byte, after @ ..] => {
                value.push(*byte);
                rest = after;
            }
            [] => return None,
        }
    }
}

/// A token in lower case, and the rest of the text.
pub(super) fn token(text: &[u8]) -> Option<(String, &[u8])> {
    let len = text.iter().take_while(|byte| is_token(**byte)).count();
    if len == 0 {
        return None;
    }
    let token = text[..len].iter().map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    Some((token, &text[len..]))
}

pub(super) fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normal(text: &str) -> Option<String> {
        let media = MediaType::parse(text.as_bytes())?;
        media.normal().map(|normal| String::from_utf8(normal.into_owned()).unwrap())
    }

    #[test]
    fn spellings_of_one_type_have_one_normal_form() {
        for (text, expected) in [
            ("Application/JSON", "application/json"),
            ("application/json; charset=UTF-8", "application/json"),
            ("application/json;", "application/json"),
            ("application/vnd.a+json ; Profile=\"x\" ;charset=utf-8", "application/vnd.a+json;profile=x"),
            ("text/plain; Charset=\"UTF-8\"", "text/plain;charset=utf-8"),
            ("text/plain;b=2;a=1", "text/plain;a=1;b=2"),
            ("text/plain;a=\"1 \\\" 2\"", "text/plain;a=\"1 \\\" 2\""),
            ("multipart/form-data; boundary=----x", "multipart/form-data;boundary=----x"),
            ("a/b;; c=1 ; ;d=2;", "a/b;c=1;d=2"),
            ("Multipart/Mixed; boundary=\"a b\"; type=x", "multipart/mixed;boundary=\"a b\";type=x"),
        ] {
            assert_eq!(normal(text).as_deref(), Some(expected), "{text}");
        }
    }

    #[test]
    fn common_json_spellings_are_equal_and_allocate_nothing() {
        let long_way = MediaType::parse(b"application/json;charset=\"utf-8\"").unwrap();
        assert!(matches!(long_way.essence, Cow::Owned(_)));
        for text in
            ["application/json", "Application/JSON; charset=utf-8", " application/json;charset=UTF-8 "]
        {
            let media = MediaType::parse(text.as_bytes()).unwrap();
            assert!(matches!(media.essence, Cow::Borrowed(_)), "{text}");
            assert_eq!(media, long_way, "{text}");
        }
    }

    #[test]
    fn what_is_not_a_media_type_is_left_alone() {
        for text in
            ["", "json", "a/", "/b", "a/b; c", "a/b; c=", "a/b; c=\"x", "a/b c", "a/b;x=1;X=2", "a/b,c/d"]
        {
            assert_eq!(normal(text), None, "{text}");
        }
    }

    #[test]
    fn a_multipart_type_has_a_form_without_its_boundary() {
        let media = MediaType::parse(b"multipart/form-data; boundary=x; a=b").unwrap();
        assert_eq!(media.normal().unwrap(), &b"multipart/form-data;a=b;boundary=x"[..]);
        assert_eq!(media.normal_without_boundary().unwrap(), &b"multipart/form-data;a=b"[..]);
    }

    #[test]
    fn the_type_decides_the_kind_despite_sloppy_parameters() {
        let kind = |text: &str| MediaType::parse(text.as_bytes()).map(|media| media.kind());
        for rest in [
            "",
            " ",
            ";",
            "; charset",
            ";charset=",
            "; charset = utf-8",
            ";charset=a;charset=b",
            ";\"",
            "; =",
        ] {
            assert_eq!(kind(&format!("Application/JSON{rest}")), Some(Kind::Json), "{rest}");
            assert_eq!(kind(&format!("a/b+json{rest}")), Some(Kind::Json), "{rest}");
            assert_eq!(kind(&format!("multipart/form-data{rest}")), Some(Kind::Multipart), "{rest}");
        }
        for rest in [" charset=utf-8", ", text/plain", "/x", "\"", "\0"] {
            assert_eq!(kind(&format!("application/json{rest}")), None, "{rest}");
        }
    }

    #[test]
    fn grpc_is_never_json() {
        for text in [
            "application/grpc",
            "application/grpc+json",
            "Application/GRPC-Web+JSON",
            "application/grpc+proto",
        ] {
            assert_eq!(MediaType::parse(text.as_bytes()).unwrap().kind(), Kind::Other, "{text}");
        }
    }
}
