//! The operation that a request asks for.
//!
//! An operation's name, configured or from the route. Routes are matched elsewhere.

use std::fmt;
use std::sync::Arc;

use crate::encoding::Sink;

/// The operation that a key applies to.
///
/// A name from the configuration, or method and path if there is none. `Display` writes either. A name and a route
/// never share a scope, even if their texts are equal.
///
/// ```
/// use semel_core::scope::Operation;
///
/// assert_eq!(Operation::route("POST", "/charges").to_string(), "POST /charges");
/// assert_eq!(Operation::named("charge").to_string(), "charge");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Operation {
    /// The name; for a route: method, space, path.
    text: Arc<str>,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Named,
    Route { method_bytes: usize },
}

impl Operation {
    /// An operation with a configured name. All routes with that name share their keys.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { text: name.into(), kind: Kind::Named }
    }

    /// An operation by method and path. Both are used as they are. Bring them to their normal form first
    /// ([`normal_method`](super::normal_method), [`normal_path`](super::normal_path)), as the HTTP layer does;
    /// otherwise a retry in another spelling is another operation.
    pub fn route(method: impl AsRef<str>, path: impl AsRef<str>) -> Self {
        let (method, path) = (method.as_ref(), path.as_ref());
        let text = [method, " ", path].concat().into();
        Self { text, kind: Kind::Route { method_bytes: method.len() } }
    }

    /// The text that `Display` writes.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The same text, shared.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    pub(super) fn encode(&self, out: &mut impl Sink) {
        match self.kind {
            Kind::Named => {
                out.tag(1);
                out.field(self.text.as_bytes());
            }
            Kind::Route { method_bytes } => {
                let (method, path) = self.text.as_bytes().split_at(method_bytes);
                out.tag(2);
                out.field(method);
                // The space between them is for readers only.
                out.field(path.get(1..).unwrap_or_default());
            }
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Named => write!(f, "Named({:?})", self.text),
            Kind::Route { method_bytes } => {
                let (method, path) = self.text.split_at(method_bytes);
                write!(f, "Route({method:?}, {:?})", path.get(1..).unwrap_or_default())
            }
        }
    }
}
