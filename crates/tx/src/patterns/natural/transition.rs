//! Steps from one state to the next.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::{PatternConnection, close, savepoint};
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::value::{Bind, Value, placed};

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

    /// From its own end, a step is not taken again.
    fn allowed(&self) -> impl Iterator<Item = &str> {
        self.from.iter().filter(|state| **state != self.to).map(String::as_str)
    }

    /// Why a row in that state did not take the step; `None` where it has come to an allowed state the moment after.
    pub(super) fn objection(&self, state: String) -> Option<TransitionResult> {
        if state == self.to {
            return Some(TransitionResult::AlreadyThere);
        }
        let is_allowed = self.allowed().any(|allowed| allowed == state);
        (!is_allowed).then_some(TransitionResult::Invalid { state })
    }
}

/// The statements that take a step or find why not, and what is bound to them.
pub(super) struct StepStatements {
    pub(super) update: String,
    pub(super) find: String,
    /// For `update`: the changes, the key and the allowed states.
    pub(super) changed: Vec<Bind>,
    /// For `find`: the key.
    pub(super) place: Vec<Bind>,
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
        let StepStatements { update, find, changed, place } = self.stepping::<C>(key, transition, changes);
        for _ in 0..TRIES_MAX {
            if connection.run(update.clone(), changed.clone()).await.map_err(failed::<C>)? > 0 {
                return Ok(TransitionResult::Taken);
            }
            let rows = connection.rows(find.clone(), place.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { return Ok(TransitionResult::Missing) };
            let state = C::text(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            if let Some(result) = transition.objection(state) {
                return Ok(result);
            }
        }
        Err(unsettled())
    }

    /// What takes a step, and what finds the state of a row that did not take it.
    pub(super) fn stepping<C: Dialect>(
        &self,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> StepStatements {
        let Transition { column, to, .. } = transition;
        let (mut changed, mut place) = (Vec::new(), Vec::new());
        let mut assigned = vec![format!("{column} = {}", placed::<C>(&mut changed, &to.as_str().into()))];
        assigned.extend(Self::assigned::<C>(&mut changed, changes));
        let at = Self::is_at::<C>(&mut changed, key);
        let states: Vec<String> =
            transition.allowed().map(|state| placed::<C>(&mut changed, &state.into())).collect();
        let states = if states.is_empty() { "NULL".to_owned() } else { states.join(", ") };
        let update =
            format!("UPDATE {} SET {} WHERE {at} AND {column} IN ({states})", self.name, assigned.join(", "));
        let at = Self::is_at::<C>(&mut place, key);
        let find = format!("SELECT CAST({column} AS text) FROM {} WHERE {at}", self.name);
        StepStatements { update, find, changed, place }
    }
}
