//! Where canonical bytes go: into a hash, or into memory for people to read.

use sha2::{Digest, Sha256};

use super::Fingerprint;

/// Takes canonical bytes in order.
pub(super) trait Sink: Clone {
    fn write(&mut self, bytes: &[u8]);

    /// One byte; the common case of punctuation.
    fn push(&mut self, byte: u8);

    /// Bytes after their length, so that different lists of fields never give the same bytes.
    fn field(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.write(bytes);
    }

    /// A length or a number of things: eight bytes, big-endian.
    fn count(&mut self, count: usize) {
        self.write(&(count as u64).to_be_bytes());
    }
}

impl Sink for Vec<u8> {
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn push(&mut self, byte: u8) {
        self.push(byte);
    }
}

/// Discards all bytes.
#[derive(Clone, Copy)]
pub(super) struct Discard;

impl Sink for Discard {
    fn write(&mut self, _: &[u8]) {}

    fn push(&mut self, _: u8) {}
}

/// Large enough that the hash works on many blocks at a time, small enough for any stack.
const BUFFER_BYTES: usize = 2048;

/// Hashes bytes through a small buffer, because most writes are only a few bytes long.
#[derive(Clone)]
pub(super) struct Hasher {
    hash: Sha256,
    buffer: [u8; BUFFER_BYTES],
    used: usize,
}

impl Hasher {
    pub(super) fn new() -> Self {
        Self { hash: Sha256::new(), buffer: [0; BUFFER_BYTES], used: 0 }
    }

    pub(super) fn finish(mut self) -> Fingerprint {
        self.flush();
        Fingerprint::from_bytes(self.hash.finalize().into())
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer[..self.used]);
        self.used = 0;
    }

    #[cold]
    #[inline(never)]
    fn write_past_the_buffer(&mut self, bytes: &[u8]) {
        self.flush();
        if bytes.len() >= BUFFER_BYTES {
            self.hash.update(bytes);
        } else {
            self.buffer[..bytes.len()].copy_from_slice(bytes);
            self.used = bytes.len();
        }
    }
}

impl Sink for Hasher {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        match self.buffer.get_mut(self.used..self.used + bytes.len()) {
            Some(free) => {
                free.copy_from_slice(bytes);
                self.used += bytes.len();
            }
            None => self.write_past_the_buffer(bytes),
        }
    }

    #[inline]
    fn push(&mut self, byte: u8) {
        if self.used == BUFFER_BYTES {
            self.flush();
        }
        self.buffer[self.used] = byte;
        self.used += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_does_not_depend_on_how_the_bytes_were_cut() {
        let data: Vec<u8> = (0..10_000u32).map(|n| n.to_be_bytes()[3]).collect();
        let whole: [u8; 32] = Sha256::digest(&data).into();
        for cut in [1, 7, 2047, 2048, 2049, 10_000] {
            let mut hasher = Hasher::new();
            data.chunks(cut).for_each(|chunk| hasher.write(chunk));
            assert_eq!(hasher.finish().as_bytes(), &whole, "{cut}");
        }
        let mut hasher = Hasher::new();
        for byte in &data {
            hasher.push(*byte);
        }
        assert_eq!(hasher.finish().as_bytes(), &whole);
    }

    #[test]
    fn a_byte_at_the_end_of_the_buffer_is_hashed() {
        for before in BUFFER_BYTES - 1..=BUFFER_BYTES + 1 {
            let data = vec![7; before + 1];
            let mut hasher = Hasher::new();
            hasher.write(&data[1..]);
            hasher.push(7);
            assert_eq!(hasher.finish().as_bytes(), &<[u8; 32]>::from(Sha256::digest(&data)), "{before}");
        }
    }
}
