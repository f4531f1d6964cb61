//! Bytes as hexadecimal digits, for hashes, tokens and cursors.

/// The bytes of exactly this many digits, in either case.
pub(super) fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    any(text)?.try_into().ok()
}

/// The bytes of an even number of digits.
pub(super) fn any(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some(digit(*pair.first()?)? << 4 | digit(*pair.get(1)?)?)).collect()
}

/// Bytes as lower-case digits.
pub(super) fn text(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_stand_for_their_bytes_and_nothing_else_does() {
        assert_eq!(bytes("00ffA1"), Some([0, 255, 161]));
        assert_eq!(text(&[0, 255, 161]), "00ffa1");
        for bad in ["0", "00f", "0g00", "+1", " 1", "é"] {
            assert_eq!(any(bad), None, "{bad}");
        }
        assert_eq!(bytes::<2>("00"), None);
    }
}
