//! Transitions between states.

use super::{NaturalTable, TRIES_MAX};
use crate::patterns::connection::PatternConnection;
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::quoted;
use crate::patterns::transaction::Savepoint;
use crate::patterns::value::{Bind, Value, placeholder};

/// A transition from some states to another.
#[derive(Debug, Clone)]
pub struct Transition {
    column: String,
    from: Vec<String>,
    to: String,
}

impl Transition {
    /// The column with the state, the states from which the transition is allowed, and its target state.
    pub fn new(column: &str, from: &[&str], to: &str) -> Self {
        let from = from.iter().map(|state| (*state).to_owned()).collect();
        Self { column: quoted(column), from, to: to.to_owned() }
    }

    /// A transition is not repeated from its own target state.
    fn allowed(&self) -> impl Iterator<Item = &str> {
        self.from.iter().filter(|state| **state != self.to).map(String::as_str)
    }

    /// Why a row in that state did not change; `None` if it has reached an allowed state since.
    pub(super) fn objection(&self, state: String) -> Option<TransitionResult> {
        if state == self.to {
            return Some(TransitionResult::AlreadyThere);
        }
        let is_allowed = self.allowed().any(|allowed| allowed == state);
        (!is_allowed).then_some(TransitionResult::Invalid { state })
    }
}

/// The statements that take a step or find why not, and their binds.
pub(super) struct StepStatements {
    pub(super) update: String,
    pub(super) find: String,
    /// For `update`: the changes, the key and the allowed states.
    pub(super) changed: Vec<Bind>,
    /// For `find`: the key.
    pub(super) key_binds: Vec<Bind>,
}

/// The result of [`NaturalTable::transition`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "the step may not have been taken"]
pub enum TransitionResult {
    /// The step was taken.
    Taken,
    /// The row is already in that state: a retry, or another caller was faster. Nothing was changed.
    AlreadyThere,
    /// The transition is not allowed from the row's state. Nothing was changed.
    Invalid {
        /// The row's state.
        state: String,
    },
    /// There is no such row.
    Missing,
}

impl NaturalTable {
    /// Changes the state of the row under `key`, with other changes, if its state allows it.
    ///
    /// States are texts. If several callers try the same transition at once, one succeeds, and the others
    /// find it done.
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
        let mut savepoint = Savepoint::begin(connection).await?;
        let taken = self.transition_in(&mut *savepoint, key, transition, changes).await;
        savepoint.close(taken).await
    }

    async fn transition_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> Result<TransitionResult, PatternError> {
        let StepStatements { update, find, changed, key_binds } =
            self.stepping::<C>(key, transition, changes);
        for _ in 0..TRIES_MAX {
            if connection.run(update.clone(), changed.clone()).await.map_err(failed::<C>)? > 0 {
                return Ok(TransitionResult::Taken);
            }
            let rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { return Ok(TransitionResult::Missing) };
            let state = C::text(row, 0).map_err(failed::<C>)?.unwrap_or_default();
            if let Some(result) = transition.objection(state) {
                return Ok(result);
            }
        }
        Err(unsettled())
    }

    /// The statements that take a step, and find the state of a row that did not.
    pub(super) fn stepping<C: Dialect>(
        &self,
        key: &[(&str, Value)],
        transition: &Transition,
        changes: &[(&str, Value)],
    ) -> StepStatements {
        let Transition { column, to, .. } = transition;
        let (mut changed, mut key_binds) = (Vec::new(), Vec::new());
        let mut assigned =
            vec![format!("{column} = {}", placeholder::<C>(&mut changed, &to.as_str().into()))];
        assigned.extend(Self::assigned::<C>(&mut changed, changes));
        let at = Self::is_at::<C>(&mut changed, key);
        let states: Vec<String> =
            transition.allowed().map(|state| placeholder::<C>(&mut changed, &state.into())).collect();
        let states = if states.is_empty() { "NULL".to_owned() } else { states.join(", ") };
        let update =
            format!("UPDATE {} SET {} WHERE {at} AND {column} IN ({states})", self.name, assigned.join(", "));
        let at = Self::is_at::<C>(&mut key_binds, key);
        let find = format!("SELECT CAST({column} AS text) FROM {} WHERE {at}", self.name);
        StepStatements { update, find, changed, key_binds }
    }
}
