//! Values that are bound to statements.

use super::dialect::Dialect;

/// The value of a column.
///
/// PostgreSQL accepts a text only for a `text` column. For `uuid`, `jsonb`, `numeric` or `timestamptz` write
/// `Value::cast("…", "uuid")`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// `NULL`.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A text that the database casts to another type.
    Cast {
        /// The text.
        text: String,
        /// The name of the type.
        to: String,
    },
}

impl Value {
    /// A text that the database casts to the type `to`.
    pub fn cast(text: impl Into<String>, to: impl Into<String>) -> Self {
        Self::Cast { text: text.into(), to: to.into() }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<i32> for Value {
    fn from(number: i32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A value that a driver binds.
#[derive(Debug, Clone)]
pub enum Bind {
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Real(f64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
    /// An array of texts.
    #[cfg(feature = "postgres")]
    Texts(Vec<String>),
    /// An array of bytes.
    #[cfg(feature = "postgres")]
    Blobs(Vec<Vec<u8>>),
}

impl From<&str> for Bind {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Bind {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<i64> for Bind {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[u8]> for Bind {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.to_vec())
    }
}

/// The values of one column of several rows.
#[derive(Debug, Clone)]
pub enum Column {
    /// Texts.
    Texts(Vec<String>),
    /// Bytes.
    Blobs(Vec<Vec<u8>>),
}

/// Adds a value to the binds, and returns its placeholder in the statement.
pub(super) fn placeholder<C: Dialect>(binds: &mut Vec<Bind>, value: &Value) -> String {
    let (bind, cast) = match value {
        Value::Null => return "NULL".to_owned(),
        Value::Boolean(value) => (Bind::Boolean(*value), None),
        Value::Integer(number) => (Bind::Integer(*number), None),
        Value::Real(number) => (Bind::Real(*number), None),
        Value::Text(text) => (Bind::Text(text.clone()), None),
        Value::Bytes(bytes) => (Bind::Bytes(bytes.clone()), None),
        Value::Cast { text, to } => (Bind::Text(text.clone()), Some(super::tables::quoted(to))),
    };
    binds.push(bind);
    match cast {
        // SQLite would turn it into a number.
        Some(to) if C::HAS_TYPES => format!("CAST(${} AS {to})", binds.len()),
        _ => format!("${}", binds.len()),
    }
}
