//! What shows that a store keeps its promises.
//!
//! **What lives here**: the contract suite for stores, a clock that tests turn, and a store that fails on demand.
//! **What must never**: sleeping; a test that can pass without its subject.
