//! Bytes as hexadecimal digits, for hashes, tokens, secrets and cursors.

/// The bytes of exactly this many digits, in either case.
pub fn parse_exact<const N: usize>(text: &str) -> Option<[u8; N]> {
    parse(text)?.try_into().ok()
}

/// The bytes of an even number of digits, in either case.
///
/// ```
/// use semel_text::hex;
///
/// assert_eq!(hex::parse("00ffA1"), Some(vec![0, 255, 161]));
/// assert_eq!(hex::parse("0x00"), None);
/// ```
pub fn parse(text: impl AsRef<[u8]>) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = text.as_ref().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Bytes as lower-case digits.
pub fn text(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_for_their_bytes_and_nothing_else_does() {
        assert_eq!(parse_exact("00ffA1"), Some([0, 255, 161]));
        assert_eq!(text(&[0, 255, 161]), "00ffa1");
        assert_eq!(parse(b"00fFa5"), Some(vec![0, 255, 165]));
        for bad in ["0", "00f", "0g00", "+1", " 1", "é", "abc", "zz"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse_exact::<2>("00"), None);
    }
}
