//! One database, with the application's own table beside the store's.

pub(crate) use crate::events::{Answered, Events, body, failed, ran, refused};
use futures_util::future::BoxFuture;
use semel::core::outcome::Outcome;
use semel::core::policy::PolicySettings;
use semel::core::record::Record;
use semel::{
    Builder, Class, Engine, Identity, Intent, Key, Operation, Policy, RecordedOutcome, Scope, payload,
};
use semel_sql::postgres::{Options, Store};
use semel_testkit::proxy::{Fault, FaultProxy, Protocol, Request};
use semel_tx::postgres::{Database, transact};
use semel_tx::{BoxError, Error, Local, LocalEnding};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, Row as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

static SCHEMAS: AtomicU64 = AtomicU64::new(0);

/// The server's URL.
pub(crate) fn url() -> String {
    std::env::var("SEMEL_TEST_POSTGRES_URL").expect(
        "SEMEL_TEST_POSTGRES_URL names the server to test against: run `cargo xtask test`, or `cargo xtask services up` and \
         set what it prints",
    )
}

/// A schema with the store's tables and the application's `orders`, removed when this is dropped.
pub(crate) struct World {
    is_mine: bool,
    pub(crate) schema: String,
    pub(crate) admin: PgPool,
}

impl World {
    pub(crate) async fn new() -> Self {
        let number = SCHEMAS.fetch_add(1, Ordering::Relaxed);
        let schema = format!("tx_{}_{number}", std::process::id());
        let admin =
            PgPoolOptions::new().max_connections(4).connect(&url()).await.expect("the server answers");
        let world = Self { is_mine: true, schema, admin };
        world.store_at(&url()).await.close().await;
        world.sql("CREATE TABLE {s}.orders (id text, item text, attempt integer)").await;
        world.sql("CREATE TABLE {s}.counters (name text PRIMARY KEY, value bigint NOT NULL)").await;
        world
    }

    /// One that another process created, and removes.
    pub(crate) async fn existing(schema: String) -> Self {
        let admin =
            PgPoolOptions::new().max_connections(1).connect(&url()).await.expect("the server answers");
        Self { is_mine: false, schema, admin }
    }

    /// Runs statements; `{s}` is the schema.
    pub(crate) async fn sql(&self, sql: &str) {
        let sql = sql.replace("{s}", &self.schema);
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&self.admin).await.expect("the statement is right");
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = sql.replace("{s}", &self.schema);
        sqlx::query(AssertSqlSafe(sql)).fetch_one(&self.admin).await.expect("an answer").get(0)
    }

    pub(crate) async fn orders(&self) -> i64 {
        self.number("SELECT count(*) FROM {s}.orders").await
    }

    pub(crate) async fn records(&self) -> i64 {
        self.number("SELECT count(*) FROM {s}.records WHERE version IS NOT NULL").await
    }

    pub(crate) async fn store_at(&self, url: &str) -> Store {
        let joint = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{joint}schema={}&connections=2", self.schema);
        Store::open(&url, Options::default()).await.expect("the store opens")
    }

    /// A separate node on the store.
    pub(crate) async fn engine(&self) -> Engine {
        self.builder().await.build().await.expect("an engine")
    }

    pub(crate) async fn builder(&self) -> Builder {
        Engine::builder(Arc::new(self.store_at(&url()).await))
    }

    /// The application's pool.
    pub(crate) async fn database(&self, connections: u32) -> Database {
        self.database_at(&url(), connections).await
    }

    /// A pool whose connections go through a proxy. Those of engines do not.
    pub(crate) async fn proxied(&self, connections: u32) -> (Database, FaultProxy) {
        let server = address_in(&url());
        let proxy = FaultProxy::start(server, Protocol::Postgres, |_: &Request<'_>| Fault::Pass);
        let proxy = proxy.await.expect("a port");
        let proxy_url = url().replace(&server.to_string(), &proxy.address().to_string());
        (self.database_at(&proxy_url, connections).await, proxy)
    }

    pub(crate) async fn database_at(&self, url: &str, connections: u32) -> Database {
        let options: PgConnectOptions = url.parse().expect("a URL");
        let options = options.application_name(&self.schema);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(Duration::from_secs(20))
            .connect_with(options)
            .await
            .expect("the server answers");
        Database::new(pool).schema(self.schema.clone())
    }

    /// An order under `key`, written into the transaction.
    pub(crate) async fn order(
        &self,
        engine: &Engine,
        database: &Database,
        key: &str,
    ) -> Result<RecordedOutcome, Error> {
        transact(engine, database, intent(key), self.ordering()).await
    }

    /// The work that creates an order.
    pub(crate) fn ordering(
        &self,
    ) -> impl for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
    + Clone
    + Send
    + Sync
    + 'static {
        let schema = self.schema.clone();
        work(move |tx, local| {
            let schema = schema.clone();
            Box::pin(async move {
                insert_order(tx, &schema, local).await?;
                Ok(created(local))
            })
        })
    }

    /// The only record.
    pub(crate) async fn record(&self, engine: &Engine, answer: &impl Answered) -> Record {
        assert_eq!(self.records().await, 1);
        engine.look_up(answer.operation_id()).await.expect("it is stored").record
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if !self.is_mine {
            return;
        }
        let sql = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema);
        // Blocking is not allowed in a runtime, but in a separate thread.
        let dropping = std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let pool = PgPoolOptions::new().max_connections(1).connect(&url()).await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&pool).await.map(drop)
            })
        });
        drop(dropping.join());
    }
}

/// A closure as the work of a local command, so that the compiler infers its lifetimes.
pub(crate) fn work<W>(work: W) -> W
where
    W: for<'c> Fn(&'c mut PgConnection, Local) -> BoxFuture<'c, Result<LocalEnding, BoxError>>
        + Clone
        + Send
        + Sync
        + 'static,
{
    work
}

pub(crate) async fn insert_order(tx: &mut PgConnection, schema: &str, local: Local) -> Result<(), BoxError> {
    let sql = format!("INSERT INTO {schema}.orders (id, item, attempt) VALUES ($1, 'book', $2)");
    let attempt = i32::try_from(local.attempt)?;
    sqlx::query(AssertSqlSafe(sql)).bind(local.operation_id.to_string()).bind(attempt).execute(tx).await?;
    Ok(())
}

pub(crate) fn created(local: Local) -> LocalEnding {
    LocalEnding::Succeeded(Outcome::http(
        201,
        [("location", format!("/orders/{}", local.operation_id))],
        "created",
    ))
}

pub(crate) fn intent(key: &str) -> Intent {
    intent_with(key, "5", |_| {})
}

pub(crate) fn intent_with(key: &str, body: &str, change: impl FnOnce(&mut PolicySettings)) -> Intent {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::named("order"));
    let policy = Policy::new(Class::Local).with(change).expect("a fit policy");
    Intent::new(scope, Key::from_source(key).expect("a key"), policy, payload::Raw::from(body.to_owned()))
}

/// The address of a URL's server.
pub(crate) fn address_in(url: &str) -> SocketAddr {
    let host = url.rsplit_once('@').expect("a user").1;
    host.split('/').next().and_then(|host| host.parse().ok()).expect("an address and a port")
}
