//! XXH64 with seed zero, whose low 32 bits are the check sum of a zstd frame.
//!
//! Here only to notice damage; nothing of a fingerprint rests on it.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

pub(super) fn xxh64(data: &[u8]) -> u64 {
    let (stripes, _) = data.as_chunks::<32>();
    let mut rest = &data[stripes.len() * 32..];
    let mut hash = if stripes.is_empty() {
        P5
    } else {
        let mut lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = round(*lane, u64::from_le_bytes(*word));
            }
        }
        let [a, b, c, d] = lanes;
        let sum = a
            .rotate_left(1)
            .wrapping_add(b.rotate_left(7))
            .wrapping_add(c.rotate_left(12))
            .wrapping_add(d.rotate_left(18));
        lanes.iter().fold(sum, |sum, lane| (sum ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
    };
    hash = hash.wrapping_add(data.len() as u64);
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        hash = (hash ^ round(0, u64::from_le_bytes(*word))).rotate_left(27).wrapping_mul(P1).wrapping_add(P4);
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk::<4>() {
        let word = u64::from(u32::from_le_bytes(*word));
        hash = (hash ^ word.wrapping_mul(P1)).rotate_left(23).wrapping_mul(P2).wrapping_add(P3);
        rest = after;
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(P5)).rotate_left(11).wrapping_mul(P1);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(P2);
    hash = (hash ^ (hash >> 29)).wrapping_mul(P3);
    hash ^ (hash >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_values_come_out() {
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        let long = b"Nobody inspects the spammish repetition";
        assert_eq!(xxh64(long), 0xfbce_a83c_8a37_8bf1);
    }
}
