//! What the tests of several crates share.
//!
//! **What lives here**: the surroundings of a test that are the same in three test programs or more. **What must never**: an
//! assertion about what Semel promises, a crate of ours as a dependency, or an option that only one test program needs.

mod scratch;

pub use scratch::ScratchDir;
