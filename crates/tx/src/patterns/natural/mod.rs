//! Rows of the caller's own tables, by their natural key, version or state.

#[cfg(feature = "sqlite")]
mod blocking;
mod insert;
mod transition;
mod version;

pub use insert::InsertOrGet;
pub use transition::{Transition, TransitionResult};
pub use version::{CompareAndSet, Version};

use super::dialect::Dialect;
use super::tables::quoted;
use super::value::{Bind, Value, placeholder};

/// How often a call is tried again if the conflicting row has disappeared.
const TRIES_MAX: u32 = 5;

/// A table of the caller with its natural key.
///
/// The key's columns need a unique constraint or index, which decides a race. Without one, two concurrent
/// requests both find nothing, and both insert.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// use semel_tx::patterns::{InsertOrGet, NaturalTable};
/// use sqlx::Row as _;
///
/// let orders = NaturalTable::new("shop.orders", &["customer", "number"]);
/// let mut transaction = pool.begin().await?;
/// let values = [("customer", "c-17".into()), ("number", 42.into()), ("item", "book".into())];
/// let row = match orders.insert_or_get(&mut *transaction, &values).await? {
///     InsertOrGet::Inserted(row) => row,
///     // Another caller was faster, or this is a retry. Compare your values with the row.
///     InsertOrGet::Existing(row) => row,
/// };
/// println!("{}", row.try_get::<String, _>("item")?);
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// The ID of a row that an operation creates can be derived from the operation itself:
/// [`OperationId::resource_id`](semel_core::id::OperationId::resource_id) is the same on every attempt, so a
/// second attempt finds the row of the first.
#[derive(Debug, Clone)]
pub struct NaturalTable {
    name: String,
    key: Vec<String>,
}

impl NaturalTable {
    /// A table, with or without its schema, and the columns of its natural key. Names are used exactly,
    /// including upper and lower case.
    pub fn new(name: &str, key: &[&str]) -> Self {
        let name = name.split('.').map(quoted).collect::<Vec<_>>().join(".");
        Self { name, key: key.iter().map(|column| quoted(column)).collect() }
    }

    /// `column = $n AND …`
    fn is_at<C: Dialect>(binds: &mut Vec<Bind>, key: &[(&str, Value)]) -> String {
        let equals = |(column, value): &(&str, Value)| {
            format!("{} = {}", quoted(column), placeholder::<C>(binds, value))
        };
        key.iter().map(equals).collect::<Vec<_>>().join(" AND ")
    }

    /// `column = $n, …`
    fn assigned<C: Dialect>(binds: &mut Vec<Bind>, changes: &[(&str, Value)]) -> Vec<String> {
        let assign = |(column, value): &(&str, Value)| {
            format!("{} = {}", quoted(column), placeholder::<C>(binds, value))
        };
        changes.iter().map(assign).collect()
    }
}
