//! What is being asked for.
//!
//! What lives here: an operation's name, given or taken from the route. What must never: matching of routes.

use std::fmt;

use super::encoding::Sink;

/// The operation that a key is good for.
///
/// A name from the configuration, or method and raw path where there is none. `Display` writes either; the two kinds
/// never make the same scope, even where they read the same.
///
/// ```
/// use semel_core::scope::Operation;
///
/// assert_eq!(Operation::route("POST", "/charges").to_string(), "POST /charges");
/// assert_eq!(Operation::named("charge").to_string(), "charge");
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Operation(Kind);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Kind {
    Named(String),
    Route { method: String, path: String },
}

impl Operation {
    /// An operation by the name it was given. Every route of that name shares its keys.
    pub fn named(name: impl Into<String>) -> Self {
        Self(Kind::Named(name.into()))
    }

    /// An operation by method and path, both exactly as they were received: methods are case-sensitive, and paths are
    /// not decoded or normalised, since only the application knows which spellings mean the same.
    pub fn route(method: impl Into<String>, path: impl Into<String>) -> Self {
        Self(Kind::Route { method: method.into(), path: path.into() })
    }

    pub(super) fn encode(&self, out: &mut impl Sink) {
        match &self.0 {
            Kind::Named(name) => {
                out.tag(1);
                out.field(name.as_bytes());
            }
            Kind::Route { method, path } => {
                out.tag(2);
                out.field(method.as_bytes());
                out.field(path.as_bytes());
            }
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Named(name) => f.write_str(name),
            Kind::Route { method, path } => write!(f, "{method} {path}"),
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Named(name) => write!(f, "Named({name:?})"),
            Kind::Route { method, path } => write!(f, "Route({method:?}, {path:?})"),
        }
    }
}
