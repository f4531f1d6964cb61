//! One file, with the application's own tables beside the store's.

pub(crate) use crate::events::{Answered, Events, body, failed, ran, refused};
use rusqlite::Connection;
use semel::core::outcome::Outcome;
use semel::core::record::Record;
use semel::{
    Builder, Class, Engine, Identity, Intent, Key, Operation, Policy, RecordedOutcome, Scope, payload,
};
use semel_sql::sqlite::{Options, Store};
use semel_test_support::ScratchDir;
use semel_tx::sqlite::rusqlite::{self, params};
use semel_tx::sqlite::{Database, transact};
use semel_tx::{BoxError, Error, Local, LocalEnding};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The application's tables. The last one refers to the first, which is checked only at the commit.
const TABLES: &str = "CREATE TABLE orders (id TEXT, item TEXT); \
     CREATE TABLE customers (name TEXT PRIMARY KEY); \
     CREATE TABLE addresses (customer TEXT REFERENCES customers (name) DEFERRABLE INITIALLY DEFERRED); \
     INSERT INTO customers VALUES ('ada')";

pub(crate) struct World {
    dir: ScratchDir,
}

/// A process on the file: a store, an engine on it, and a database handle for work.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) store: Arc<Store>,
    pub(crate) engine: Engine,
    pub(crate) database: Database,
}

impl World {
    pub(crate) fn new() -> Self {
        let world = Self { dir: ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "tx-sqlite") };
        drop(Store::open(world.path(), Options::default()).expect("the store opens"));
        world.admin().execute_batch(TABLES).expect("the tables are right");
        world
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.join("shop.db")
    }

    /// A connection for the test itself.
    pub(crate) fn admin(&self) -> Connection {
        let admin = Connection::open(self.path()).expect("the file opens");
        admin.busy_timeout(std::time::Duration::from_secs(10)).expect("it is set");
        admin
    }

    pub(crate) async fn node(&self) -> Node {
        Node::on(&self.path(), |builder| builder).await
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.admin().query_row(sql, [], |row| row.get(0)).expect("an answer")
    }

    pub(crate) fn orders(&self) -> i64 {
        self.number("SELECT count(*) FROM orders")
    }

    pub(crate) fn records(&self) -> i64 {
        self.number("SELECT count(*) FROM semel_records")
    }

    /// The only record.
    pub(crate) async fn record(&self, engine: &Engine, answer: &impl Answered) -> Record {
        assert_eq!(self.records(), 1);
        engine.look_up(answer.operation_id()).await.expect("it is stored").record
    }

    /// The file is intact, and the store's own counts are right.
    pub(crate) async fn assert_sound(&self, node: &Node) {
        assert_eq!(node.store.verify().await.expect("read"), Vec::<String>::new());
    }
}

impl Node {
    pub(crate) async fn on(path: &Path, change: impl FnOnce(Builder) -> Builder) -> Self {
        let store = Arc::new(Store::open(path, Options::default()).expect("the store opens"));
        let engine = change(Engine::builder(Arc::clone(&store) as _)).build().await.expect("an engine");
        Self { database: Database::new(Arc::clone(&store)), store, engine }
    }

    pub(crate) async fn transact(
        &self,
        intent: Intent,
        work: impl Fn(&Connection, Local) -> Result<LocalEnding, BoxError> + Send + Sync + 'static,
    ) -> Result<RecordedOutcome, Error> {
        transact(&self.engine, &self.database, intent, work).await
    }

    pub(crate) async fn order(&self, key: &str) -> Result<RecordedOutcome, Error> {
        self.transact(intent(key), ordering).await
    }
}

/// The work that creates an order.
pub(crate) fn ordering(tx: &Connection, local: Local) -> Result<LocalEnding, BoxError> {
    insert_order(tx, local)?;
    Ok(created(local))
}

pub(crate) fn insert_order(tx: &Connection, local: Local) -> Result<(), BoxError> {
    let sql = "INSERT INTO orders (id, item) VALUES (?1, 'book')";
    tx.prepare_cached(sql)?.execute(params![local.operation_id.to_string()])?;
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
    intent_with(key, "5")
}

pub(crate) fn intent_with(key: &str, body: &str) -> Intent {
    intent_of(Class::Local, key, body)
}

pub(crate) fn intent_of(class: Class, key: &str, body: &str) -> Intent {
    let scope = Scope::new(Identity::api_key("k-17"), Operation::named("order"));
    let key = Key::from_source(key).expect("a key");
    Intent::new(scope, key, Policy::new(class), payload::Raw::from(body.to_owned()))
}
