//! A database of either kind, with the application's own tables beside the store's.

use semel_test_support::ScratchDir;
use semel_tx::BoxError;
use semel_tx::patterns::{
    Inbox, InboxResult, Message, MessageId, PatternConnection, PatternError, Tables, WorkFuture,
};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{
    AssertSqlSafe, Connection, PgConnection, PgPool, Pool, Row as _, SqliteConnection, SqlitePool,
    Transaction,
};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How many tasks take part in a race.
pub(crate) const RACERS: u64 = 64;

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// The database of a connection.
pub(crate) type Of<W> = <<W as World>::Connection as Connection>::Database;

/// A database with the store's tables.
pub(crate) trait World: Sized + Send + Sync + 'static {
    type Connection: PatternConnection + Connection;
    const IS_SQLITE: bool;

    fn new() -> impl Future<Output = Self> + Send;
    fn pool(&self) -> &Pool<Of<Self>>;
    fn tables(&self) -> Tables;
    /// The name of one of the application's tables.
    fn table(&self, name: &str) -> String;
    /// The name of one of the store's tables.
    fn ours(&self, name: &str) -> String;
    fn try_begin(&self) -> impl Future<Output = Result<Transaction<'static, Of<Self>>, sqlx::Error>> + Send;

    fn begin(&self) -> impl Future<Output = Transaction<'static, Of<Self>>> + Send {
        async { self.try_begin().await.expect("a transaction") }
    }

    /// Waits until nothing of killed processes runs any more. A commit that they have sent may come late.
    fn settle(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    fn commit(
        transaction: Transaction<'static, Of<Self>>,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;
    /// Runs a statement.
    fn run(connection: &mut Self::Connection, sql: String) -> WorkFuture<'_, Result<u64, BoxError>>;
    /// The number that a statement returns.
    fn number(connection: &mut Self::Connection, sql: String) -> WorkFuture<'_, Result<i64, BoxError>>;

    /// A statement on a separate connection; `{t:NAME}` is one of the application's tables and `{o:NAME}` one
    /// of the store's.
    fn sql(&self, sql: &str) -> impl Future<Output = u64> + Send {
        let sql = self.named(sql);
        async move {
            let mut connection = self.pool().acquire().await.expect("a connection");
            Self::run(&mut connection, sql).await.expect("the statement is right")
        }
    }

    fn ask(&self, sql: &str) -> impl Future<Output = i64> + Send {
        let sql = self.named(sql);
        async move {
            let mut connection = self.pool().acquire().await.expect("a connection");
            Self::number(&mut connection, sql).await.expect("the statement is right")
        }
    }

    fn named(&self, sql: &str) -> String {
        let mut text = sql.to_owned();
        for (open, is_ours) in [("{t:", false), ("{o:", true)] {
            while let Some(start) = text.find(open) {
                let end = start + text[start..].find('}').expect("it is closed");
                let name = &text[start + 3..end];
                let name = if is_ours { self.ours(name) } else { self.table(name) };
                text.replace_range(start..=end, &name);
            }
        }
        text
    }
}

/// PostgreSQL, in a separate schema, which is dropped with this.
pub(crate) struct Pg {
    is_mine: bool,
    pub(crate) schema: String,
    pool: PgPool,
}

pub(crate) fn url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL").expect(
        "SEMEL_TEST_POSTGRES_URL names the server to test against: run `cargo xtask test`, or `cargo xtask services up` and \
         set what it prints",
    )
}

/// The server's address.
pub(crate) fn address() -> SocketAddr {
    let url = url();
    let host = url.rsplit_once('@').expect("a user").1;
    host.split('/').next().and_then(|host| host.parse().ok()).expect("an address and a port")
}

impl Pg {
    /// One that another process created, and removes.
    pub(crate) async fn existing(url: &str, schema: String) -> Self {
        let options: PgConnectOptions = url.parse().expect("an address");
        let options = options.application_name(&schema);
        let pool =
            PgPoolOptions::new().max_connections(6).connect_with(options).await.expect("the server answers");
        Self { is_mine: false, schema, pool }
    }

    pub(crate) fn store_url(&self) -> String {
        format!("{}?schema={}&connections=2", url(), self.schema)
    }
}

impl World for Pg {
    type Connection = PgConnection;
    const IS_SQLITE: bool = false;

    async fn new() -> Self {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let schema = format!("patterns_{}_{number}", std::process::id());
        let pool = PgPoolOptions::new().max_connections(12).acquire_timeout(Duration::from_mins(1));
        let pool = pool.connect(&url()).await.expect("the server answers");
        let world = Self { is_mine: true, schema, pool };
        let store =
            semel_sql::postgres::Store::open(&world.store_url(), semel_sql::postgres::Options::default())
                .await;
        semel_core::store::Store::close(&store.expect("the store opens")).await;
        world
    }

    fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn tables(&self) -> Tables {
        Tables::in_schema(self.schema.as_str())
    }

    fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.schema)
    }

    fn ours(&self, name: &str) -> String {
        format!("{}.{name}", self.schema)
    }

    async fn try_begin(&self) -> Result<Transaction<'static, sqlx::Postgres>, sqlx::Error> {
        self.pool.begin().await
    }

    async fn settle(&self) {
        let sessions =
            format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{}'", self.schema);
        for _ in 0..6_000 {
            if self.ask(&sessions).await == 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("a session of a killed process does not end");
    }

    async fn commit(transaction: Transaction<'static, sqlx::Postgres>) -> Result<(), sqlx::Error> {
        transaction.commit().await
    }

    fn run(connection: &mut PgConnection, sql: String) -> WorkFuture<'_, Result<u64, BoxError>> {
        Box::pin(
            async move { Ok(sqlx::query(AssertSqlSafe(sql)).execute(connection).await?.rows_affected()) },
        )
    }

    fn number(connection: &mut PgConnection, sql: String) -> WorkFuture<'_, Result<i64, BoxError>> {
        Box::pin(async move { Ok(sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?.try_get(0)?) })
    }
}

impl Drop for Pg {
    fn drop(&mut self) {
        if !self.is_mine {
            return;
        }
        // A failed test may have left a transaction open.
        let sql = format!("SET lock_timeout = '20s'; DROP SCHEMA IF EXISTS {} CASCADE", self.schema);
        // Blocking is not allowed in a runtime, but in a separate thread.
        let dropping = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url()).await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map(drop)
            })
        });
        drop(dropping.join());
    }
}

/// One SQLite file.
pub(crate) struct Lite {
    dir: Option<ScratchDir>,
    pool: SqlitePool,
}

impl Lite {
    pub(crate) async fn at(path: &Path) -> Self {
        let options = SqliteConnectOptions::new().filename(path).busy_timeout(Duration::from_mins(1));
        let pool = SqlitePoolOptions::new().max_connections(12).acquire_timeout(Duration::from_mins(1));
        Self { dir: None, pool: pool.connect_with(options).await.expect("the file opens") }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.dir.as_ref().expect("of its own").join("shop.db")
    }
}

impl World for Lite {
    type Connection = SqliteConnection;
    const IS_SQLITE: bool = true;

    async fn new() -> Self {
        let dir = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "patterns-sqlite");
        let path = dir.join("shop.db");
        drop(
            semel_sql::sqlite::Store::open(&path, semel_sql::sqlite::Options::default())
                .expect("the store opens"),
        );
        Self { dir: Some(dir), ..Self::at(&path).await }
    }

    fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    fn tables(&self) -> Tables {
        Tables::default()
    }

    fn table(&self, name: &str) -> String {
        name.to_owned()
    }

    fn ours(&self, name: &str) -> String {
        format!("semel_{name}")
    }

    async fn try_begin(&self) -> Result<Transaction<'static, sqlx::Sqlite>, sqlx::Error> {
        self.pool.begin_with("BEGIN IMMEDIATE").await
    }

    async fn commit(transaction: Transaction<'static, sqlx::Sqlite>) -> Result<(), sqlx::Error> {
        transaction.commit().await
    }

    fn run(connection: &mut SqliteConnection, sql: String) -> WorkFuture<'_, Result<u64, BoxError>> {
        Box::pin(
            async move { Ok(sqlx::query(AssertSqlSafe(sql)).execute(connection).await?.rows_affected()) },
        )
    }

    fn number(connection: &mut SqliteConnection, sql: String) -> WorkFuture<'_, Result<i64, BoxError>> {
        Box::pin(async move { Ok(sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?.try_get(0)?) })
    }
}

/// A world with the table `effects`: what happened, by name. Nothing in it is unique, so that repetitions
/// show.
pub(crate) async fn with_effects<W: World>() -> W {
    let world = W::new().await;
    world.sql("CREATE TABLE {t:effects} (name text)").await;
    world
}

/// The statement of an effect.
pub(crate) fn effect<W: World>(world: &W, name: &str) -> String {
    world.named(&format!("INSERT INTO {{t:effects}} (name) VALUES ('{name}')"))
}

pub(crate) async fn effects<W: World>(world: &W) -> i64 {
    world.ask("SELECT count(*) FROM {t:effects}").await
}

/// Runs one task per racer, and returns their results.
pub(crate) async fn race<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    racer: impl Fn(u64) -> F,
) -> Vec<T> {
    let start = Arc::new(tokio::sync::Barrier::new(usize::try_from(RACERS).expect("few")));
    let mut tasks = JoinSet::new();
    for number in 0..RACERS {
        let (running, start) = (racer(number), Arc::clone(&start));
        tasks.spawn(async move {
            start.wait().await;
            running.await
        });
    }
    tasks.join_all().await
}

pub(crate) fn message(id: &str, body: &str) -> Message {
    Message::raw("payments", MessageId::new(id).expect("an id"), body.as_bytes().to_vec()).expect("a message")
}

/// Processes a message in a separate transaction.
pub(crate) async fn process<W: World>(
    world: &W,
    inbox: &Inbox,
    message: &Message,
) -> Result<InboxResult<()>, PatternError> {
    let mut transaction = world.begin().await;
    let sql = effect(world, message.id().as_str());
    let result = inbox
        .once(&mut *transaction, message, |tx, _| {
            Box::pin(async move {
                W::run(tx, sql).await?;
                Ok(())
            })
        })
        .await;
    W::commit(transaction).await.expect("committed");
    result
}

/// Runs each of the named tests on both databases.
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name::<crate::world::Pg>().await;
            })+
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name::<crate::world::Lite>().await;
            })+
        }
    };
}
