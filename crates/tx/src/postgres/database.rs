//! The application's pool, after it is known to use the engine's store.

use super::borrowed::BorrowedConnection;
use crate::error::Error;
use semel::{Engine, StoreId};
use semel_core::store::{self, Kind};
use semel_sql::postgres::transaction::TransactionStatements;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _};
use std::fmt;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Which changes of other transactions a transaction sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// Each statement sees what was committed before it.
    #[default]
    ReadCommitted,
    /// All statements see what was committed before the first.
    RepeatableRead,
    /// As if transactions ran one after another. Transactions for which that is impossible are run again.
    Serializable,
}

impl Isolation {
    pub(super) const fn begin(self) -> &'static str {
        match self {
            Self::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
            Self::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
            Self::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
        }
    }
}

/// The application's own pool, for transactions that contain a local command's record. Cheap to clone: create
/// one for each pool, at start.
#[derive(Clone)]
pub struct Database {
    pub(super) pool: PgPool,
    pub(super) isolation: Isolation,
    schema: Arc<str>,
    checked: Arc<OnceCell<Checked>>,
}

/// What is known after the pool was asked.
pub(super) struct Checked {
    store: StoreId,
    pub(super) statements: Statements,
    /// The server's system identifier, if its role may see it.
    pub(super) server: Option<String>,
}

/// The statements in the form that sqlx shares without copying.
pub(super) struct Statements {
    pub(super) look: Arc<str>,
    pub(super) insert: Arc<str>,
    pub(super) replace: Arc<str>,
    pub(super) remove: Arc<str>,
}

impl Database {
    /// Transactions at `READ COMMITTED`, on the tables in the schema `semel`. The first use checks that the
    /// server has the engine's store.
    pub fn new(pool: PgPool) -> Self {
        let schema = TransactionStatements::DEFAULT_SCHEMA.into();
        Self { pool, isolation: Isolation::default(), schema, checked: Arc::default() }
    }

    /// The schema of the store's tables, as set with `schema=` in its URL.
    #[must_use]
    pub fn schema(self, schema: impl Into<Arc<str>>) -> Self {
        Self { schema: schema.into(), checked: Arc::default(), ..self }
    }

    /// The isolation level of the transactions that [`transact`](super::transact) begins.
    #[must_use]
    pub fn isolation(self, isolation: Isolation) -> Self {
        Self { isolation, ..self }
    }

    /// The pool.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Refuses a pool that uses another database than the engine's store. The server is asked once.
    pub(super) async fn check(&self, engine: &Engine) -> Result<&Checked, Error> {
        let engines = engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
        let asking = || async {
            let mut connection = BorrowedConnection::from(&self.pool).await?;
            let checked = self.ask(connection.get(), engines).await?;
            connection.keep();
            Ok::<_, Error>(checked)
        };
        self.checked.get_or_try_init(asking).await?.of(engines)
    }

    /// The same for a caller that holds a connection of the pool, possibly the only one: asks on a separate
    /// connection.
    pub(super) async fn check_beside(&self, engine: &Engine) -> Result<&Checked, Error> {
        let engines = engine.store_id().await.map_err(|error| Error::Engine(error.into()))?;
        let asking = || async {
            let options = self.pool.connect_options();
            let mut connection = PgConnection::connect_with(&options).await.map_err(Error::Database)?;
            let checked = self.ask(&mut connection, engines).await?;
            drop(connection.close().await);
            Ok::<_, Error>(checked)
        };
        self.checked.get_or_try_init(asking).await?.of(engines)
    }

    /// The result of the check.
    pub(super) fn checked(&self) -> Result<&Checked, Error> {
        let unfit = || store::Error::new(Kind::Unfit, "using a pool that was not checked");
        self.checked.get().ok_or_else(|| Error::Store(unfit()))
    }

    async fn ask(&self, connection: &mut PgConnection, engine: StoreId) -> Result<Checked, Error> {
        let statements = TransactionStatements::in_schema(&self.schema).map_err(|cause| {
            Error::Store(store::Error::new(Kind::Unfit, "naming the schema of the store").because(cause))
        })?;
        let setting = sqlx::query(AssertSqlSafe(statements.setting)).bind(StoreId::SETTING);
        let pool = match setting.fetch_optional(&mut *connection).await {
            Ok(row) => row.and_then(|row| StoreId::from_setting(row.try_get(0).ok()?)),
            Err(sqlx::Error::Database(error)) if is_missing(&error.code().unwrap_or_default()) => None,
            Err(error) => return Err(Error::Database(error)),
        };
        let store = pool.filter(|pool| *pool == engine).ok_or(Error::OtherStore { engine, pool })?;
        // Without the right to see it, a server cannot be distinguished from its promoted standby by this;
        // the timeline is compared as well.
        let server =
            sqlx::query(TransactionStatements::SERVER).fetch_optional(connection).await.ok().flatten();
        let server = server.and_then(|row| row.try_get(0).ok());
        let statements = Statements {
            look: statements.look.into(),
            insert: statements.insert.into(),
            replace: statements.replace.into(),
            remove: statements.remove.into(),
        };
        Ok(Checked { store, statements, server })
    }
}

impl Checked {
    /// Refuses another store than the engine's.
    fn of(&self, engine: StoreId) -> Result<&Self, Error> {
        let other = || Error::OtherStore { engine, pool: Some(self.store) };
        (self.store == engine).then_some(self).ok_or_else(other)
    }
}

/// The table or the schema does not exist.
fn is_missing(code: &str) -> bool {
    matches!(code, "42P01" | "3F000")
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database")
            .field("schema", &self.schema)
            .field("isolation", &self.isolation)
            .finish_non_exhaustive()
    }
}
