//! Percent-encoding in URLs.

/// Text as part of a path or of a query: everything except letters, digits and `-._~` is encoded.
///
/// ```
/// use semel_text::percent;
///
/// assert_eq!(percent::encode("POST /a?b=c&d#é"), "POST%20%2Fa%3Fb%3Dc%26d%23%C3%A9");
/// ```
pub fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble)]);
            encoded.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
        encoded
    })
}

/// The text that was encoded. A percent sign that no number of two digits follows stands for itself; `None` if the bytes are not UTF-8.
pub fn decode(encoded: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(encoded.len());
    let mut rest = encoded.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let escaped =
            (byte == b'%').then(|| after.split_at_checked(2)).flatten().and_then(|(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, after))
            });
        let (byte, after) = escaped.unwrap_or((byte, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_text_is_decoded_unchanged() {
        for text in ["", "a-b_c.d~9", "POST /a?b=c&d#é", "100%", "%2F", "+1 😀\n"] {
            assert_eq!(decode(&encode(text)).as_deref(), Some(text));
        }
    }

    #[test]
    fn a_value_cannot_leave_its_place_in_a_query() {
        assert_eq!(encode("POST /a?b=c&d#é"), "POST%20%2Fa%3Fb%3Dc%26d%23%C3%A9");
        assert_eq!(encode("a-b_c.d~9"), "a-b_c.d~9");
    }

    #[test]
    fn escapes_are_decoded_and_everything_else_stands_for_itself() {
        assert_eq!(decode("a%2Fb%20c"), Some("a/b c".to_owned()));
        assert_eq!(decode("100%"), Some("100%".to_owned()));
        assert_eq!(decode("%ff"), None);
    }
}
