//! Public keys in certificates and PEM files (RFC 5280, `SubjectPublicKeyInfo`).

use super::algorithm::Kind;
use super::key::{Key, KeyError};
use crate::der;

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const NULL: [u8; 2] = [0x05, 0x00];

/// 1.2.840.113549.1.1.1
const RSA: [u8; 11] = [0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
/// 1.2.840.10045.2.1 with 1.2.840.10045.3.1.7
const P256: [u8; 19] = [
    0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03,
    0x01, 0x07,
];
/// 1.2.840.10045.2.1 with 1.3.132.0.34
const P384: [u8; 16] =
    [0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22];
/// 1.3.101.112
const ED25519: [u8; 5] = [0x06, 0x03, 0x2b, 0x65, 0x70];

/// Reads a `SubjectPublicKeyInfo`.
pub(super) fn public_key(der: &[u8]) -> Result<Key, KeyError> {
    let info = only_item(der, SEQUENCE)?;
    let (algorithm, rest) = take(info, SEQUENCE)?;
    // The first byte of a bit string is the number of unused bits in its last byte.
    let [0, bits @ ..] = only_item(rest, BIT_STRING)? else {
        return Err(KeyError::Malformed);
    };
    if algorithm == [&RSA[..], &NULL].concat() {
        let (modulus, exponent) = take(only_item(bits, SEQUENCE)?, INTEGER)?;
        Key::rsa(positive(modulus)?, positive(only_item(exponent, INTEGER)?)?)
    } else if algorithm == P256 {
        Key::point(Kind::P256, bits.to_vec())
    } else if algorithm == P384 {
        Key::point(Kind::P384, bits.to_vec())
    } else if algorithm == ED25519 {
        Key::ed25519(bits)
    } else {
        Err(KeyError::Unsupported)
    }
}

/// An integer's bytes, without the sign byte.
fn positive(bytes: &[u8]) -> Result<&[u8], KeyError> {
    match bytes {
        [first, ..] if *first < 0x80 => Ok(bytes),
        _ => Err(KeyError::Malformed),
    }
}

/// The content of the only item in `input`.
fn only_item(input: &[u8], tag: u8) -> Result<&[u8], KeyError> {
    match take(input, tag)? {
        (content, []) => Ok(content),
        _ => Err(KeyError::Malformed),
    }
}

/// The content of the first item in `input`, and the rest.
fn take(input: &[u8], tag: u8) -> Result<(&[u8], &[u8]), KeyError> {
    der::take(input, tag).ok_or(KeyError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_is_the_shortest_and_nothing_is_left_over() {
        assert_eq!(only_item(&[0x30, 1, 9], SEQUENCE), Ok([9].as_slice()));
        for bad in [
            [0x30, 0x81, 1, 9].as_slice(),
            &[0x30, 0x82, 0, 1, 9],
            &[0x30, 2, 9],
            &[0x30, 1, 9, 9],
            &[0x31, 1, 9],
            &[0x30, 0x80, 9, 0, 0],
            &[0x30],
            &[],
        ] {
            assert_eq!(only_item(bad, SEQUENCE), Err(KeyError::Malformed), "{bad:?}");
        }
        let long = [&[0x30, 0x82, 1, 0][..], &[7; 256]].concat();
        assert_eq!(only_item(&long, SEQUENCE).map(<[u8]>::len), Ok(256));
    }
}
