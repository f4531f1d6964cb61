//! Scopes: the tenant, caller and operation of a key, and the IDs derived from them.
//!
//! The [`Scope`] (tenant, [`Caller`], [`Operation`]), the [`Secret`] that hashes it, the IDs derived from the result
//! (operation IDs, [`EventId`]s, resource IDs), and the normal form of methods and paths. The hashed bytes are
//! specified in `vectors/ids/README.md`, for implementations in other languages. No two scopes have the same encoding,
//! no raw caller or tenant appears in debug output, and an existing encoding never changes: a new one gets a new label.

mod caller;
mod derived;
mod normal;
mod operation;
mod secret;
#[cfg(test)]
mod tests;

pub use caller::{Caller, Identity, Lifetime, Source};
pub use derived::{EventId, NameError};
pub use normal::{normal_method, normal_path, normal_path_except};
pub use operation::Operation;
pub use secret::{Secret, SecretTooShort};

use std::fmt;

use crate::encoding::Sink;

/// Who is asking for what. The same key in two scopes names two unrelated commands.
///
/// No tenant differs from an empty tenant, and an anonymous caller differs from every identified one.
///
/// ```
/// use semel_core::key::Key;
/// use semel_core::scope::{Identity, Operation, Scope, Secret};
///
/// let secret = Secret::from_bytes(b"an example; take 32 random bytes")?;
/// let key = Key::from_source("evt_1").unwrap();
/// let charge = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
/// let other = Scope::new(Identity::api_key("k-18"), Operation::route("POST", "/charges"));
///
/// assert_eq!(secret.command_id(&charge, &key), secret.command_id(&charge.clone(), &key));
/// assert_ne!(secret.command_id(&charge, &key), secret.command_id(&other, &key));
/// assert_ne!(secret.command_id(&charge, &key), secret.command_id(&charge.in_tenant("acme"), &key));
/// # Ok::<(), semel_core::scope::SecretTooShort>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    tenant: Option<Vec<u8>>,
    caller: Caller,
    operation: Operation,
}

impl Scope {
    /// A scope without a tenant.
    pub fn new(caller: impl Into<Caller>, operation: Operation) -> Self {
        Self { tenant: None, caller: caller.into(), operation }
    }

    /// The same caller and operation within a tenant.
    #[must_use]
    pub fn in_tenant(self, tenant: impl Into<Vec<u8>>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// The tenant, if there is one.
    pub fn tenant(&self) -> Option<&[u8]> {
        self.tenant.as_deref()
    }

    /// The caller.
    pub const fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The operation.
    pub const fn operation(&self) -> &Operation {
        &self.operation
    }

    /// Tenant and caller: what a caller's own records are found by.
    fn encode_caller(&self, out: &mut impl Sink) {
        out.option(self.tenant.as_deref());
        self.caller.encode(out);
    }

    fn encode(&self, out: &mut impl Sink) {
        self.encode_caller(out);
        self.operation.encode(out);
    }
}

/// Shows whether there is a tenant, the caller's source, and the operation; never the tenant or the caller.
impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope")
            .field("tenant", &self.tenant.as_ref().map(|_| format_args!("…")))
            .field("caller", &self.caller)
            .field("operation", &self.operation)
            .finish()
    }
}
