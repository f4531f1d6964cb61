//! Steps from one state to the next.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::{PatternConnection, close, savepoint};
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::value::{Value, placed};

/// A step from some states to another.
#[derive(Debug, Clone)]
pub struct Transition {
    column: String,
    from: Vec<String>,
    to: String,
}

impl Transition {
    /// The column with the state, the states that the step may be taken from, and the one that it leads to.
    pub fn new(column: &str, from: &[&str], to: &str) -> Self {
        let from = from.iter().map(|state| (*state).to_owned()).collect();
        Self { column: quoted(column), from, to: to.to_owned() }
    }
}

/// What came of [`NaturalTable::transition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransitionResult {
    /// The step was taken.
    Taken,
    /// The row is in that state already: a retry, or somebody else was faster. Nothing was changed.
    AlreadyThere,
    /// The step may not be taken from the state that the row is in. Nothing was changed.
    Invalid {
        /// That state.
        state: String,
    },
    /// There is no such row.
    Missing,
}

impl NaturalTable {
    /// Takes a step of the row under `key`, with other changes, if it is in a state that allows it.
    ///
    /// States are texts. Of several that take the same step at once, one takes it, and the others find it taken.
    ///
    /// ```no_run
    /// # #[cfg(feature = "sqlite")]
    /// # async fn example(tx: &mut sqlx::SqliteConnection) -> Result<(), Box<dyn std::error::Error>> {
    /// use semel_tx::patterns::{NaturalTable, Transition, TransitionResult};
    ///
    /// let orders = NaturalTable::new("orders", &["id"]);
    /// let ship = Transition::new("state", &["paid", "packed"], "shipped");
    /// match orders.transition(tx, &[("id", 42.into())], &ship, &[("carrier", "post".into())]).await? {
    ///     TransitionResult::Taken => println!("print the label"),
    ///     TransitionResult::AlreadyThere => println!("nothing to do"),
    ///     TransitionResult::Invalid { state } => println!("an order that is {state} cannot be shipped"),
    ///     TransitionResult::Missing => println!("no such order"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An error leaves the transaction as it was.
    pub async fn transition<C: PatternConnection>(
        &self,
        connection: &mut C,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> Result<TransitionResult, PatternError> {
        let mut savepoint = savepoint(connection).await?;
        let taken = self.transition_in(&mut *savepoint, key, transition, changes).await;
        close::<C, _>(savepoint, taken).await
    }

    async fn transition_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> Result<TransitionResult, PatternError> {
        let Transition { column, from, to } = transition;
        let mut binds = Vec::new();
        let mut assigned = vec![format!("{column} = {}", placed::<C>(&mut binds, &to.as_str().into()))];
        assigned.extend(Self::assigned::<C>(&mut binds, changes));
        let at = Self::is_at::<C>(&mut binds, key);
        let allowed: Vec<&String> = from.iter().filter(|state| *state != to).collect();
        let states: Vec<String> =
            allowed.iter().map(|state| placed::<C>(&mut binds, &state.as_str().into())).collect();
        let states = if states.is_empty() { "NULL".to_owned() } else { states.join(", ") };
        let update =
            format!("UPDATE {} SET {} WHERE {at} AND {column} IN ({states})", self.name, assigned.join(", "));
        let mut key_binds = Vec::new();
        let at = Self::is_at::<C>(&mut key_binds, key);
        let find = format!("SELECT CAST({column} AS text) FROM {} WHERE {at}", self.name);
        for _ in 0..TRIES_MAX {
            if connection.run(update.clone(), binds.clone()).await.map_err(failed::<C>)? > 0 {
                return Ok(TransitionResult::Taken);
            }
            let rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { return Ok(TransitionResult::Missing) };
            let state = C::text(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            if state == *to {
                return Ok(TransitionResult::AlreadyThere);
            }
            // Otherwise it has come to an allowed state the moment after.
            if !allowed.contains(&&state) {
                return Ok(TransitionResult::Invalid { state });
            }
        }
        Err(unsettled())
    }
}
