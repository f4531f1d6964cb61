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
use super::value::{Bind, Value, placed};

/// How often something is tried that was in the way and is gone the moment after.
const TRIES_MAX: u32 = 5;

/// A table of the caller's with its natural key.
///
/// The key's columns need a unique constraint or index: it is what decides a race. Without one, two requests that look at the same time both find
/// nothing, and both insert.
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
///     // Somebody was faster, or this is a retry. Compare what you asked for with what is there.
///     InsertOrGet::Existing(row) => row,
/// };
/// println!("{}", row.try_get::<String, _>("item")?);
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// The id of a row that an operation creates can be derived from the operation itself:
/// [`OperationId::resource_id`](semel_core::id::OperationId::resource_id) is the same on every attempt, so that a second one meets the first one's row.
#[derive(Debug, Clone)]
pub struct NaturalTable {
    name: String,
    key: Vec<String>,
}

impl NaturalTable {
    /// A table, with its schema or without, and the columns of its natural key. Names are taken exactly, upper and lower case included.
    pub fn new(name: &str, key: &[&str]) -> Self {
        let name = name.split('.').map(quoted).collect::<Vec<_>>().join(".");
        Self { name, key: key.iter().map(|column| quoted(column)).collect() }
    }

    /// `column = $n AND …`
    fn is_at<C: Dialect>(binds: &mut Vec<Bind>, key: &[(&str, Value)]) -> String {
        let equals =
            |(column, value): &(&str, Value)| format!("{} = {}", quoted(column), placed::<C>(binds, value));
        key.iter().map(equals).collect::<Vec<_>>().join(" AND ")
    }

    /// `column = $n, …`
    fn assigned<C: Dialect>(binds: &mut Vec<Bind>, changes: &[(&str, Value)]) -> Vec<String> {
        let assign =
            |(column, value): &(&str, Value)| format!("{} = {}", quoted(column), placed::<C>(binds, value));
        changes.iter().map(assign).collect()
    }
}
