//! Roles and servers with other settings.

use crate::server::{Schema, connect};
use semel_core::store::{Change, Kind, Severity, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{claim_at, claimed, id, is_done};

/// A separate server, with a role that is not its owner.
struct Server {
    server: PostgresServer,
    _folder: ScratchDir,
}

impl Server {
    fn start(name: &str) -> Self {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), name);
        let server = PostgresServer::start(folder.join("data"));
        server.sql("CREATE ROLE guest LOGIN");
        Self { server, _folder: folder }
    }

    fn url(&self) -> String {
        self.server.admin_url()
    }

    fn guest_url(&self) -> String {
        let url = self.url();
        let host = url.rsplit_once('@').expect("a user in the URL").1;
        format!("postgres://guest@{host}")
    }

    async fn owners(&self) -> Store {
        Store::open(&self.url(), Options::default()).await.expect("the owner opens the store")
    }

    async fn guests(&self) -> Store {
        Store::open(&self.guest_url(), Options::default()).await.expect("the guest opens the store")
    }

    fn grant(&self) {
        self.server.sql(
            "GRANT USAGE ON SCHEMA semel TO guest; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA semel TO guest",
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_create_rights_works_on_existing_tables() {
    let server = Server::start("role-without-ddl");
    let refused =
        Store::open(&server.guest_url(), Options::default()).await.expect_err("it may not create tables");
    assert_eq!(refused.kind(), Kind::Unfit, "{refused}");
    assert!(refused.to_string().contains("semel schema apply"), "{refused}");
    server.owners().await.close().await;
    server.grant();
    let store = server.guests().await;
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    assert!(store.get(id(1)).await.expect("an answer").record().is_some());
}

/// Durability is raised for each write, whatever the role's setting, and never lowered.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_waits_for_the_disk_despite_the_roles_settings() {
    let server = Server::start("role-durability");
    server.owners().await.close().await;
    server.server.sql(
        "CREATE TABLE semel.seen (value text); \
         CREATE FUNCTION semel.see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN \
         INSERT INTO semel.seen VALUES (current_setting(''synchronous_commit'')); RETURN NULL; END'; \
         CREATE TRIGGER see AFTER INSERT ON semel.records FOR EACH ROW EXECUTE FUNCTION semel.see(); \
         CREATE TRIGGER see AFTER INSERT ON semel.settings FOR EACH ROW EXECUTE FUNCTION semel.see()",
    );
    server.grant();
    let cases = [("off", "on"), ("local", "on"), ("remote_write", "on"), ("remote_apply", "remote_apply")];
    for (number, (setting, expected)) in (1..).zip(cases) {
        server
            .server
            .sql(&format!("ALTER ROLE guest SET synchronous_commit = {setting}; TRUNCATE semel.seen"));
        let store = server.guests().await;
        assert!(is_done(
            &store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")
        ));
        drop(store.set(setting, None, Some(b"value")).await.expect("an answer"));
        let seen = server.server.sql("SELECT string_agg(value, ' ') FROM semel.seen");
        assert_eq!(seen.trim(), format!("{expected} {expected}"), "with {setting}");
        if setting == "off" {
            let hazards = store.hazards().await.expect("looked at");
            assert!(hazards.iter().any(|found| found.code == "postgres-synchronous-commit"), "{hazards:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_refused_with_the_reason() {
    let server = Server::start("role-read-only");
    server.server.sql("ALTER ROLE guest SET default_transaction_read_only = on");
    let refused = Store::open(&server.guest_url(), Options::default()).await.expect_err("it takes no writes");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
}

/// Under a stricter default than READ COMMITTED, conflicting writes are retried, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_contract_holds_at_every_isolation_level() {
    let server = Server::start("role-isolation");
    server.owners().await.close().await;
    server.grant();
    for (level, first) in [("repeatable read", 0), ("serializable", 1000)] {
        server.server.sql(&format!("ALTER ROLE guest SET default_transaction_isolation = '{level}'"));
        let (one, two) = (server.guests().await, server.guests().await);
        for number in first..first + 200 {
            let (record, other) = (claimed(number), claim_at(number, 9_000 + u128::from(number), 1));
            let (first, second) = tokio::join!(
                one.write(id(number), Change::Insert(&record)),
                two.write(id(number), Change::Insert(&other))
            );
            let done =
                [first, second].into_iter().filter(|written| written.as_ref().is_ok_and(is_done)).count();
            assert_eq!(done, 1, "{level}: exactly one of two claims wins");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn url_errors_name_the_setting() {
    let schema = Schema::new();
    let address = schema.address();
    let unreachable = Store::open("postgres://semel@127.0.0.1:1/semel", Options::default()).await;
    let error = unreachable.expect_err("nobody listens there");
    assert_eq!(error.kind(), Kind::Unavailable, "{error}");
    assert!(error.to_string().contains("check the host and the port"), "{error}");
    let unknown = address.replace("/semel?", "/no_such_database?");
    let error =
        Store::open(&format!("postgres:{unknown}"), Options::default()).await.expect_err("no such database");
    assert!(error.to_string().contains("check the database"), "{error}");
    let tls = format!("postgres:{address}&sslmode=require");
    let error = Store::open(&tls, Options::default()).await.expect_err("the server has no TLS");
    assert!(error.to_string().contains("sslmode=disable"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unlogged_table_is_a_hazard() {
    let schema = Schema::new();
    let store = Store::open(&schema.url_with(""), Options::default()).await.expect("the store opens");
    let codes = |hazards: Vec<semel_core::store::Hazard>| -> Vec<_> {
        let dangers = hazards.into_iter().filter(|found| found.severity == Severity::Danger);
        dangers.map(|found| found.code).filter(|code| *code != "postgres-asynchronous-standby").collect()
    };
    assert_eq!(codes(store.hazards().await.expect("looked at")), Vec::<&str>::new());
    connect()
        .await
        .batch_execute(&format!("ALTER TABLE {}.records SET UNLOGGED", schema.name))
        .await
        .expect("changed");
    assert_eq!(codes(store.hazards().await.expect("looked at")), ["postgres-unlogged"]);
}
