//! The engine's randomness.
//!
//! The only place in this crate that generates random bits, for tokens, secrets and nonces.

/// The source of tokens, secrets and nonces. Injected, so that a simulation can repeat a run.
pub trait Random: Send + Sync + 'static {
    /// 128 fresh bits. In production they must be unpredictable and never repeat.
    fn bits(&self) -> u128;
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// If the operating system has no random bits: no fallback would be safe.
    fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system has random bits");
        u128::from_le_bytes(bytes)
    }
}
