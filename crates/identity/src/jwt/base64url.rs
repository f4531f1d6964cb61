//! Decodes base64url without padding (RFC 7515, section 2). White space, padding and stray bits are refused, so that
//! bytes have only one spelling.

/// The bytes, or `None` for anything that an encoder would not write.
pub(super) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for group in text.chunks(4) {
        let mut bits = 0_u32;
        for character in group {
            bits = bits << 6 | sextet(*character)?;
        }
        // Four characters are three bytes; three are two and two stray bits; two are one and four stray bits.
        let (byte_count, stray) = match group.len() {
            4 => (3, 0),
            3 => (2, 2),
            2 => (1, 4),
            _ => return None,
        };
        if bits & ((1 << stray) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&(bits >> stray).to_be_bytes()[4 - byte_count..]);
    }
    Some(bytes)
}

fn sextet(character: u8) -> Option<u32> {
    let value = match character {
        b'A'..=b'Z' => character - b'A',
        b'a'..=b'z' => character - b'a' + 26,
        b'0'..=b'9' => character - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(value.into())
}

/// The reverse of [`decode`], for tests that make tokens.
#[cfg(test)]
pub(super) fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let bits =
            group.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for index in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_example_of_the_rfc_is_read() {
        assert_eq!(decode(b"A-z_4ME").as_deref(), Some([3, 236, 255, 224, 193].as_slice()));
        assert_eq!(decode(b"").as_deref(), Some([].as_slice()));
    }

    #[test]
    fn padding_other_alphabets_white_space_and_stray_bits_are_refused() {
        for text in ["A-z_4ME=", "QQ==", "A+z/", "A-z_ 4ME", "A-z_\n", "A", "AAAAA", "QR", "QUF", "ä", "A.AA"]
        {
            assert_eq!(decode(text.as_bytes()), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_have_one_text(bytes: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
        }

        #[test]
        fn only_canonical_text_is_read(text in "[A-Za-z0-9_=+-]{0,12}") {
            if let Some(bytes) = decode(text.as_bytes()) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
