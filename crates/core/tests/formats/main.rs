//! Keys, scopes, fingerprints and stored records as their users see them: what they promise, and the vectors and files
//! that stay valid.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod codec;
mod fingerprint_adversarial;
mod fingerprint_codings;
mod fingerprint_edges;
mod fingerprint_limits;
mod fingerprint_properties;
mod fingerprint_vectors;
mod ids_vectors;
mod key;
mod key_vectors;
mod scope;
mod vectors_in_python;
