//! A separate database on the measured server.

use semel_bench::lifecycle::{claim, finish, id};
use semel_core::store::{Change, Store, Written};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio_postgres::{NoTls, Row};

/// The server's URL; `cargo xtask bench` starts one and sets it.
const VARIABLE: &str = "SEMEL_TEST_POSTGRES_URL";
const NAME: &str = "semel_bench";
/// The number of the command whose record is copied; no run reaches it.
const TEMPLATE: u64 = (1 << 62) - 1;

/// The usual manual table: a key, the request's fingerprint and the response.
const BY_HAND: &str = "CREATE TABLE by_hand (
    key text PRIMARY KEY,
    fingerprint bytea NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    status integer,
    body bytea
)";

pub(crate) struct Database {
    url: String,
    server_url: String,
}

impl Database {
    /// Replaces the database of an earlier run.
    pub(crate) fn create(runtime: &Runtime) -> Result<Self, Box<dyn Error>> {
        let server_url = std::env::var(VARIABLE).map_err(|_| format!("{VARIABLE} names no server"))?;
        let (before, _) = server_url.rsplit_once('/').ok_or("the server's URL names no database")?;
        let database = Self { url: format!("{before}/{NAME}"), server_url };
        database.on_server(runtime, &format!("DROP DATABASE IF EXISTS {NAME} WITH (FORCE)"))?;
        database.on_server(runtime, &format!("CREATE DATABASE {NAME}"))?;
        database.execute(runtime, BY_HAND)?;
        Ok(database)
    }

    /// A role that is not a superuser cannot stop autovacuum on the tables, so wait for it.
    pub(crate) fn drop(self, runtime: &Runtime) -> Result<(), Box<dyn Error>> {
        let mut tries = 0;
        loop {
            match self.on_server(runtime, &format!("DROP DATABASE {NAME} WITH (FORCE)")) {
                Err(_) if tries < 60 => tries += 1,
                ended => return ended,
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The URL without its scheme, as the store expects it.
    pub(crate) fn address(&self) -> &str {
        self.url.strip_prefix("postgres:").unwrap_or(&self.url)
    }

    pub(crate) fn version(&self, runtime: &Runtime) -> Result<String, Box<dyn Error>> {
        let settings = "SELECT current_setting('server_version') || ', fsync ' || current_setting('fsync')
            || ', synchronous_commit ' || current_setting('synchronous_commit')";
        Ok(self.ask(runtime, settings)?.try_get(0)?)
    }

    pub(crate) fn ask(&self, runtime: &Runtime, question: &str) -> Result<Row, Box<dyn Error>> {
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await?;
            tokio::spawn(connection);
            Ok(client.query_one(question, &[]).await?)
        })
    }

    /// Fills both tables to this many rows, and reports their size. The store writes one record; the others
    /// are copies of it with random IDs, due at random times of a day.
    pub(crate) fn fill(
        &self,
        runtime: &Runtime,
        store: &Arc<dyn Store>,
        records: u64,
    ) -> Result<String, Box<dyn Error>> {
        if records == 0 {
            return Ok(String::new());
        }
        let started = Instant::now();
        let template = finish(&claim(TEMPLATE));
        match runtime.block_on(store.write(id(TEMPLATE), Change::Insert(&template.next)))? {
            Written::Done { .. } => {}
            other @ Written::Refused(_) => return Err(format!("{other:?}").into()),
        }
        self.execute(
            runtime,
            &format!(
                "INSERT INTO semel.records (version, due_at, updated_at, caller, key, operation_id, token, state, command_id,
                    digest, operation, entry)
                SELECT version, due_at + (random() * 86400000)::bigint, updated_at, caller, (random() * 9e18)::bigint,
                    gen_random_uuid(), gen_random_uuid(), state, sha256(n::text::bytea), digest, operation, entry
                FROM generate_series(1, {records}) AS n, (SELECT * FROM semel.records ORDER BY seq DESC LIMIT 1) AS template"
            ),
        )?;
        self.execute(
            runtime,
            &format!(
                "INSERT INTO by_hand (key, fingerprint, status, body)
                SELECT 'order-' || n || '-' || (random() * 1e9)::bigint, sha256(n::text::bytea), 201, repeat('x', 256)::bytea
                FROM generate_series(1, {records}) AS n"
            ),
        )?;
        for table in ["semel.records", "by_hand"] {
            self.execute(runtime, &format!("VACUUM ANALYZE {table}"))?;
        }
        let size =
            "SELECT pg_total_relation_size('semel.records') >> 20, pg_total_relation_size('by_hand') >> 20";
        let row = self.ask(runtime, size)?;
        let (store, by_hand): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let seconds = started.elapsed().as_secs_f64();
        Ok(format!(" ({store} MiB; by hand {by_hand} MiB; filled in {seconds:.0} s)"))
    }

    fn execute(&self, runtime: &Runtime, statement: &str) -> Result<(), Box<dyn Error>> {
        execute(runtime, &self.url, statement)
    }

    fn on_server(&self, runtime: &Runtime, statement: &str) -> Result<(), Box<dyn Error>> {
        execute(runtime, &self.server_url, statement)
    }
}

fn execute(runtime: &Runtime, url: &str, statement: &str) -> Result<(), Box<dyn Error>> {
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(connection);
        Ok(client.batch_execute(statement).await?)
    })
}
