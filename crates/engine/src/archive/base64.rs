//! Bytes as base64 text (RFC 4648, with padding).

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// `bytes` as text.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let value = (bits >> (18 - 6 * digit)) & 63;
            let padding = digit > group.len();
            text.push(if padding { '=' } else { char::from(ALPHABET[value as usize]) });
        }
    }
    text
}

/// The bytes of `text`, if it is exactly what [`encode`] writes: padded, without other characters or stray bits.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let groups = text.as_bytes().chunks(4);
    let last = groups.len();
    for (index, group) in groups.enumerate() {
        let [a, b, c, d] = group else { return None };
        let padding = usize::from(*d == b'=') + usize::from((*c, *d) == (b'=', b'='));
        if padding > 0 && index + 1 < last {
            return None;
        }
        let mut bits = 0;
        for digit in &[*a, *b, *c, *d][..4 - padding] {
            bits = bits << 6 | value(*digit)?;
        }
        bits <<= 6 * padding;
        let [_, whole @ ..] = bits.to_be_bytes();
        if whole[3 - padding..].iter().any(|stray| *stray != 0) {
            return None;
        }
        bytes.extend_from_slice(&whole[..3 - padding]);
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    let value = match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_encoding_and_decoding() {
        let all: Vec<u8> = (0..=255).collect();
        for length in 0..=all.len() {
            assert_eq!(decode(&encode(&all[..length])).as_deref(), Some(&all[..length]), "{length}");
        }
    }

    #[test]
    fn non_canonical_text_is_refused() {
        for bad in
            ["Z", "Zg", "Zg=", "Zh==", "Zm9=", "====", "Z===", "Zg==Zg==", "Zm 9", "Zm9v\n", "Zm-_", "Zgé"]
        {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_examples_of_the_rfc_match() {
        let examples = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in examples {
            assert_eq!(encode(bytes.as_bytes()), text);
        }
        assert_eq!(encode(&[0xfb, 0xff, 0xbf, 0, 0, 0]), "+/+/AAAA");
    }
}
