//! XXH64 with seed zero, whose low 32 bits are the checksum of a zstd frame.
//!
//! Only detects damage; fingerprints do not depend on it.

const P1: u64 = 0x9e37_79b1_85eb_ca87;
const P2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const P3: u64 = 0x1656_67b1_9e37_79f9;
const P4: u64 = 0x85eb_ca77_c2b2_ae63;
const P5: u64 = 0x27d4_eb2f_1656_67c5;

fn round(lane: u64, word: u64) -> u64 {
    lane.wrapping_add(word.wrapping_mul(P2)).rotate_left(31).wrapping_mul(P1)
}

const STRIPE_BYTES: usize = 32;

/// The hash of the input so far.
pub(super) struct Xxh64 {
    lanes: [u64; 4],
    /// The input since the last complete stripe.
    rest: [u8; STRIPE_BYTES],
    rest_len: usize,
    total: u64,
}

impl Default for Xxh64 {
    fn default() -> Self {
        let lanes = [P1.wrapping_add(P2), P2, 0, 0_u64.wrapping_sub(P1)];
        Self { lanes, rest: [0; STRIPE_BYTES], rest_len: 0, total: 0 }
    }
}

impl Xxh64 {
    pub(super) fn update(&mut self, mut data: &[u8]) {
        self.total += data.len() as u64;
        if self.rest_len > 0 {
            let (fill, after) = data.split_at(data.len().min(STRIPE_BYTES - self.rest_len));
            self.rest[self.rest_len..self.rest_len + fill.len()].copy_from_slice(fill);
            self.rest_len += fill.len();
            data = after;
            if self.rest_len < STRIPE_BYTES {
                return;
            }
            let stripe = self.rest;
            self.stripe(&stripe);
            self.rest_len = 0;
        }
        let (stripes, rest) = data.as_chunks::<STRIPE_BYTES>();
        for stripe in stripes {
            self.stripe(stripe);
        }
        self.rest[..rest.len()].copy_from_slice(rest);
        self.rest_len = rest.len();
    }

    fn stripe(&mut self, stripe: &[u8; STRIPE_BYTES]) {
        let (words, _) = stripe.as_chunks::<8>();
        for (lane, word) in self.lanes.iter_mut().zip(words) {
            *lane = round(*lane, u64::from_le_bytes(*word));
        }
    }

    pub(super) fn finish(&self) -> u64 {
        let mut rest = &self.rest[..self.rest_len];
        let mut hash = if self.total < STRIPE_BYTES as u64 {
            P5
        } else {
            let [a, b, c, d] = self.lanes;
            let sum = a
                .rotate_left(1)
                .wrapping_add(b.rotate_left(7))
                .wrapping_add(c.rotate_left(12))
                .wrapping_add(d.rotate_left(18));
            self.lanes.iter().fold(sum, |sum, lane| (sum ^ round(0, *lane)).wrapping_mul(P1).wrapping_add(P4))
        };
        hash = hash.wrapping_add(self.total);
        while let Some((word, after)) = rest.split_first_chunk::<8>() {
            hash = (hash ^ round(0, u64::from_le_bytes(*word)))
                .rotate_left(27)
                .wrapping_mul(P1)
                .wrapping_add(P4);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xxh64(data: &[u8]) -> u64 {
        cut_sum(data, data.len().max(1))
    }

    /// The sum of `data`, fed in pieces of `cut` bytes.
    fn cut_sum(data: &[u8], cut: usize) -> u64 {
        let mut sum = Xxh64::default();
        data.chunks(cut).for_each(|piece| sum.update(piece));
        sum.finish()
    }

    #[test]
    fn the_sum_does_not_depend_on_how_the_bytes_were_cut() {
        let data = noise(1000);
        for cut in [1, 7, 31, 32, 33, 64, 999] {
            assert_eq!(cut_sum(&data, cut), xxh64(&data), "{cut}");
        }
    }

    #[test]
    fn published_values_match() {
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        let long = b"Nobody inspects the spammish repetition";
        assert_eq!(xxh64(long), 0xfbce_a83c_8a37_8bf1);
        assert_eq!(xxh64(&noise(222)), 0xb641_ae8c_b691_c174);
    }

    /// The bytes of the reference implementation's self-test.
    fn noise(len: usize) -> Vec<u8> {
        let next = |state: &u64| Some(state.wrapping_mul(11_400_714_785_074_694_797));
        let states = std::iter::successors(Some(2_654_435_761_u64), next);
        states.take(len).map(|state| state.to_be_bytes()[0]).collect()
    }

    /// Indexed by input length. The low halves are what `zstd --check` appends to a frame of that input.
    #[rustfmt::skip]
    const BY_LENGTH: [u64; 65] = [
        0xef46_db37_51d8_e999, 0xe934_a84a_db05_2768, 0x5d48_cd60_a77e_23ff, 0xff7e_1959_cb50_794a,
        0x9136_a0dc_a574_57ee, 0x9b04_6fb1_397f_09a5, 0xc725_65b7_1542_68a8, 0x6c83_909a_9f01_ed25,
        0xcdbc_f538_e71d_1348, 0x554b_1ae9_91ed_a6b6, 0x5d00_e735_1392_ea84, 0x6345_d574_6f35_da70,
        0x0723_bf50_086e_ad9a, 0xc2e5_013e_3c40_bcf7, 0x8282_dcc4_994e_35c8, 0x1807_1931_6d62_2d84,
        0x98c9_0b57_fdfc_b55c, 0x0d39_a2d0_51a3_0c2c, 0x33e8_4a43_33b2_b2eb, 0xe91c_6ef3_1fc0_8f82,
        0x5f8c_6835_5769_439e, 0x42b0_b8ee_353a_c461, 0x65c9_35c6_9780_98b1, 0xd246_0ecc_840b_74dd,
        0xf75a_6dea_42dc_5bf4, 0x52fa_a43c_3f20_b994, 0x8db7_831e_c345_f9a3, 0x8894_5aa0_8051_fc2d,
        0x64cd_9e8c_96a9_e2dd, 0x8c8f_345b_634a_c2b9, 0xe267_7241_d4c4_6caf, 0x299b_39a2_90e6_d783,
        0x18b2_1649_2bb4_4b70, 0x55c8_dc3e_578f_5b59, 0xd0ce_7cba_e371_beb2, 0xcb0a_a8e2_a7a2_9707,
        0x0ae6_7584_084d_c6a4, 0x292f_5332_c92b_73ce, 0x5f39_8e2a_8478_bed3, 0xb888_caf0_7592_b1b3,
        0x23b3_810d_7d8b_1731, 0x5342_c966_c7f3_d5f4, 0x7745_4b74_f1db_bf63, 0x9904_c935_0f59_7190,
        0x24ec_2b3d_0e44_2641, 0x4ec3_07eb_e0a6_50a4, 0x7dd1_c551_4b22_40ef, 0x84a4_2e16_7cbd_1fef,
        0xfd0f_eeac_7a93_9933, 0xa91b_ff78_a718_5b66, 0xdffe_9f29_3ddd_101d, 0x2332_585c_18d7_483a,
        0x5a00_5651_1f9d_d653, 0x4426_a2f5_c8d5_9469, 0x39ea_f889_3520_636a, 0xafea_98cc_4e92_f7e1,
        0xb7a6_414b_8d3e_2597, 0xf33d_6456_9cd4_b1c0, 0x93fa_072f_0e8f_e7ca, 0x4f28_9057_6949_d6ed,
        0x3378_c44f_459c_290b, 0x40d4_86fd_ddad_5cb7, 0x2166_4c60_c551_cc87, 0xa9ef_be0f_a0f3_f4e7,
        0xef55_8f8a_cac2_b5cd,
    ];

    #[test]
    fn every_length_up_to_two_stripes_matches_the_reference() {
        for (len, expected) in BY_LENGTH.into_iter().enumerate() {
            assert_eq!(xxh64(&noise(len)), expected, "{len} bytes");
        }
    }
}
