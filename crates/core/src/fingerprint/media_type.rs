//! Content types, in one spelling.
//!
//! What lives here: reading a media type with its parameters, and the normal form that is hashed. It also reads
//! `Content-Disposition`, which has the same parameters. What must never: an error. What cannot be read counts by
//! its exact bytes.

use std::borrow::Cow;

use super::sink::Sink;

/// How the bytes of a body are to be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Form,
    Multipart,
    Other,
}

/// A media type taken apart: lower-case type and parameter names, values without their quotation marks.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    essence: Cow<'static, str>,
    parameters: Vec<(String, Vec<u8>)>,
}

impl MediaType {
    /// Reads a `Content-Type` value; `None` where it is not one, or names a parameter twice.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = text.trim_ascii();
        if is_plain_json(text) {
            return Some(Self { essence: Cow::Borrowed("application/json"), parameters: Vec::new() });
        }
        let (kind, rest) = token(text)?;
        let (subkind, rest) = token(rest.strip_prefix(b"/")?)?;
        let mut parameters = parameters(rest)?;
        parameters.sort_unstable();
        if parameters.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return None;
        }
        let mut essence = kind;
        essence.push('/');
        essence.push_str(&subkind);
        let mut this = Self { essence: Cow::Owned(essence), parameters };
        this.normalise();
        Some(this)
    }

    /// Drops what says nothing about the payload.
    fn normalise(&mut self) {
        let kind = self.kind();
        if kind == Kind::Json {
            self.parameters.retain(|(name, _)| name != "charset");
        }
        for (name, value) in &mut self.parameters {
            if name == "charset" {
                value.make_ascii_lowercase();
            }
        }
    }

    pub(super) fn kind(&self) -> Kind {
        match &*self.essence {
            "application/json" => Kind::Json,
            "application/x-www-form-urlencoded" => Kind::Form,
            "multipart/form-data" => Kind::Multipart,
            other if other.ends_with("+json") => Kind::Json,
            _ => Kind::Other,
        }
    }

    pub(super) fn boundary(&self) -> Option<&[u8]> {
        let (_, value) = self.parameters.iter().find(|(name, _)| name == "boundary")?;
        Some(value)
    }

    /// The normal form: `type/subtype`, then `;name=value` for each parameter that counts, sorted by name, the
    /// value in quotation marks where it is not a token.
    pub(super) fn normal(&self) -> Cow<'_, [u8]> {
        if self.parameters.is_empty() {
            return Cow::Borrowed(self.essence.as_bytes());
        }
        let mut text = self.essence.as_bytes().to_vec();
        let multipart = self.essence.starts_with("multipart/");
        for (name, value) in self.parameters.iter().filter(|(name, _)| !(multipart && name == "boundary")) {
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
        Cow::Owned(text)
    }
}

/// The two spellings that nearly every JSON request has; read without a single allocation.
fn is_plain_json(text: &[u8]) -> bool {
    const JSON: &[u8] = b"application/json";
    let Some((essence, rest)) = text.split_at_checked(JSON.len()) else { return false };
    let charset = || rest.strip_prefix(b";").map(<[u8]>::trim_ascii_start);
    essence.eq_ignore_ascii_case(JSON)
        && (rest.is_empty() || charset().is_some_and(|rest| rest.eq_ignore_ascii_case(b"charset=utf-8")))
}

/// Reads the `;name=value` list behind a type or a disposition. `None` where there is anything else.
pub(super) fn parameters(mut rest: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let mut list = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        if rest.is_empty() {
            return Some(list);
        }
        rest = rest.strip_prefix(b";")?.trim_ascii_start();
        if rest.is_empty() || rest.starts_with(b";") {
            continue;
        }
        let (name, after) = token(rest)?;
        let after = after.strip_prefix(b"=")?;
        let (value, after) = if let Some(quoted) = after.strip_prefix(b"\"") {
            quoted_string(quoted)?
        } else {
            let len = after.iter().take_while(|byte| is_token(**byte)).count();
            if len == 0 {
                return None;
            }
            (after[..len].to_vec(), &after[len..])
        };
        list.push((name, value));
        rest = after;
    }
}

/// Reads up to the closing quotation mark. A backslash makes the next quotation mark or backslash plain; before
/// anything else it stands for itself, as in the file names some senders give.
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

/// A token in lower case, and what follows it.
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
        MediaType::parse(text.as_bytes()).map(|media| String::from_utf8(media.normal().into_owned()).unwrap())
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
            ("multipart/form-data; boundary=----x", "multipart/form-data"),
            ("Multipart/Mixed; boundary=\"a b\"; type=x", "multipart/mixed;type=x"),
        ] {
            assert_eq!(normal(text).as_deref(), Some(expected), "{text}");
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
}
