//! The engine's randomness.
//!
//! Contents: the one place of this crate that draws random bits. Never here: anything predictable; tokens, secrets
//! and nonces are made of these bits.

/// Where tokens, secrets and nonces come from. Handed in, so that a simulation can repeat a run.
pub trait Random: Send + Sync + 'static {
    /// 128 fresh bits. In production nobody may be able to predict them, and none may come twice.
    fn bits(&self) -> u128;
}

/// The operating system's generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    /// # Panics
    /// Where the operating system has no randomness to give: nothing that could be done instead would be safe.
    fn bits(&self) -> u128 {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).expect("the operating system gives random bits");
        u128::from_le_bytes(bytes)
    }
}
