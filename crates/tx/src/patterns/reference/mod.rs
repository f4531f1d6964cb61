//! A second key that stays binding after the first one has expired, or if it changes with every retry.

#[cfg(feature = "sqlite")]
mod blocking;

use crate::patterns::connection::{PatternConnection, remove_chunk};
use crate::patterns::dialect::Dialect;
use crate::patterns::error::{PatternError, failed, unsettled};
use crate::patterns::tables::{Tables, text_of};
use crate::patterns::transaction::Savepoint;
use crate::patterns::value::Bind;
use semel_core::id::OperationId;
use std::sync::Arc;
use std::time::Duration;

const TABLE: &str = "business_references";
/// How long a command waits for another one with the same reference.
const WAIT: Duration = Duration::from_secs(2);
/// How often a reference is tried again while its row changes.
const TRIES_MAX: u32 = 5;
/// Tenant, operation and reference are parts of one index.
const BYTES_MAX: usize = 500;

/// The result of binding a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a taken reference must be refused"]
pub enum Binding {
    /// It belongs to this operation from the commit on.
    Bound,
    /// An operation has succeeded with it. Refuse the command, and name that operation.
    Taken {
        /// The public name of the operation that succeeded. It can be the command itself, if its record has
        /// expired and the client has sent its key again.
        operation_id: OperationId,
    },
}

impl Binding {
    fn taken_by(first: &str) -> Result<Self, PatternError> {
        let operation_id =
            first.parse().map_err(|_| PatternError::Invalid(format!("`{first}` is not an operation id")))?;
        Ok(Self::Taken { operation_id })
    }
}

/// The statements that bind a reference, and their binds.
struct BindStatements {
    insert: String,
    find: String,
    /// For `find`: tenant, operation and reference.
    key_binds: Vec<Bind>,
    /// For `insert`: the same, the operation ID, and the retention if there is one.
    bound: Vec<Bind>,
}

/// Business references (a payment reference, an order number) of one tenant's operation: each may succeed
/// once, whatever key a client sends.
///
/// Bind the reference in the transaction of a local command, before its changes. It is bound when that
/// commits, and not if the command fails. From then on every command with the same reference is refused with
/// the first one's operation ID: one with another key, and one with the same key whose record has expired.
/// References are kept without limit unless a [retention](Self::retention) is set.
///
/// ```no_run
/// # #[cfg(feature = "postgres")]
/// # async fn example(tx: &mut sqlx::PgConnection, local: semel_tx::Local) -> Result<semel_tx::LocalEnding, semel_tx::BoxError> {
/// use semel::core::outcome::Outcome;
/// use semel_tx::LocalEnding;
/// use semel_tx::patterns::{Binding, BusinessReferences};
///
/// // In the work of postgres::transact:
/// let references = BusinessReferences::new("acme", "create-payment");
/// match references.bind(tx, "invoice-2026-117", local.operation_id).await? {
///     Binding::Bound => {}
///     Binding::Taken { operation_id } => {
///         let body = format!(r#"{{"paidBy":"{operation_id}"}}"#);
///         return Ok(LocalEnding::Refused(Outcome::http(409, [("content-type", "application/json")], body)));
///     }
/// }
/// // … the payment …
/// # Ok(LocalEnding::Succeeded(Outcome::http(201, [("a", "b")], "")))
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct BusinessReferences {
    tenant: Arc<str>,
    operation: Arc<str>,
    tables: Tables,
    wait: Duration,
    retention: Option<Duration>,
}

impl BusinessReferences {
    /// The references of one operation of one tenant. The empty tenant is a tenant too.
    pub fn new(tenant: impl Into<Arc<str>>, operation: impl Into<Arc<str>>) -> Self {
        let (tenant, operation) = (tenant.into(), operation.into());
        Self { tenant, operation, tables: Tables::default(), wait: WAIT, retention: None }
    }

    /// The location of the tables.
    #[must_use]
    pub fn tables(self, tables: Tables) -> Self {
        Self { tables, ..self }
    }

    /// How long a command waits for another one with the same reference, on PostgreSQL. Default: 2 s. On
    /// SQLite the connection's `busy_timeout` applies.
    #[must_use]
    pub fn wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// How long references that are bound from now on are kept. Default: without limit.
    #[must_use]
    pub fn retention(self, retention: Duration) -> Self {
        Self { retention: Some(retention), ..self }
    }

    /// Binds `reference` to an operation in the caller's transaction, unless an operation has succeeded with
    /// it. Call it once per transaction. An error leaves the transaction as it was.
    pub async fn bind<C: PatternConnection>(
        &self,
        connection: &mut C,
        reference: &str,
        operation_id: OperationId,
    ) -> Result<Binding, PatternError> {
        let statements = self.statements::<C>(reference, operation_id)?;
        let mut savepoint = Savepoint::begin(connection).await?;
        let bound = self.bind_in(&mut *savepoint, &statements).await;
        savepoint.close(bound).await
    }

    async fn bind_in<C: PatternConnection>(
        &self,
        connection: &mut C,
        statements: &BindStatements,
    ) -> Result<Binding, PatternError> {
        let BindStatements { insert, find, key_binds, bound } = statements;
        for _ in 0..TRIES_MAX {
            let inserted = connection.insert_waiting(insert.clone(), bound.clone(), self.wait).await;
            if inserted.map_err(failed::<C>)? == 1 {
                return Ok(Binding::Bound);
            }
            let rows = connection.rows(find.clone(), key_binds.clone()).await.map_err(failed::<C>)?;
            let Some(row) = rows.first() else { continue };
            return Binding::taken_by(&C::text(row, 0).map_err(failed::<C>)?.unwrap_or_default());
        }
        Err(unsettled())
    }

    /// The statements that bind a reference; refused if it is too long for an index.
    fn statements<C: Dialect>(
        &self,
        reference: &str,
        operation_id: OperationId,
    ) -> Result<BindStatements, PatternError> {
        for (label, text) in
            [("tenant", &*self.tenant), ("operation", &*self.operation), ("reference", reference)]
        {
            if text.len() > BYTES_MAX || text.contains('\0') || (label == "reference" && text.is_empty()) {
                let reason =
                    format!("the {label} has {} bytes; 1 to {BYTES_MAX} without NUL are allowed", text.len());
                return Err(PatternError::Invalid(reason));
            }
        }
        let (held, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let retention = self.retention.map(|span| i64::try_from(span.as_millis()).unwrap_or(i64::MAX / 2));
        let expires_at = retention.map_or("NULL".to_owned(), |_| format!("{now} + $5"));
        let key_binds = vec![Bind::from(&*self.tenant), (&*self.operation).into(), reference.into()];
        let mut bound = key_binds.clone();
        bound.push(text_of(&operation_id).into());
        bound.extend(retention.map(Bind::from));
        Ok(BindStatements {
            insert: format!(
                "INSERT INTO {held} AS held (tenant, operation, reference, operation_id, bound_at, expires_at) \
                 VALUES ($1, $2, $3, $4, {now}, {expires_at}) \
                 ON CONFLICT (tenant, operation, reference) DO UPDATE SET operation_id = excluded.operation_id, \
                 bound_at = excluded.bound_at, expires_at = excluded.expires_at WHERE held.expires_at <= excluded.bound_at"
            ),
            find: format!(
                "SELECT operation_id FROM {held} WHERE tenant = $1 AND operation = $2 AND reference = $3"
            ),
            key_binds,
            bound,
        })
    }

    /// Removes up to `chunk` expired references of all operations, in a separate transaction, and returns
    /// their number.
    pub async fn purge<C: PatternConnection>(
        &self,
        connection: &mut C,
        chunk: u32,
    ) -> Result<u64, PatternError> {
        let (held, now) = (C::table(&self.tables, TABLE), C::now(&self.tables));
        let sql = format!(
            "DELETE FROM {held} WHERE (tenant, operation, reference) IN (SELECT tenant, operation, reference FROM {held} \
             WHERE expires_at IS NOT NULL AND expires_at <= {now} ORDER BY expires_at LIMIT $1 {locked})",
            locked = C::LOCKED
        );
        remove_chunk(connection, sql, vec![Bind::from(i64::from(chunk))]).await
    }
}
