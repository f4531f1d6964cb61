//! In which of a cluster's slots a key is.

const SLOTS: u16 = 16_384;

/// The slot of a key's hash tag.
pub(crate) fn slot_of(tag: &str) -> u16 {
    let mut crc: u16 = 0;
    for byte in tag.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc % SLOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_match_those_of_the_servers() {
        assert_eq!([slot_of("123456789"), slot_of("foo"), slot_of("")], [12_739, 12_182, 0]);
    }
}
