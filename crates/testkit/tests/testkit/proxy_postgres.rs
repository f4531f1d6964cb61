//! The proxy in front of a real PostgreSQL.

use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::proxy::{Existing, Fault, FaultProxy, Protocol, Script};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Stdio};

/// A `psql` that stays connected.
struct Session {
    psql: Child,
    answers: BufReader<ChildStdout>,
}

impl Session {
    fn start(server: &PostgresServer, proxy: &FaultProxy) -> Self {
        let mut psql = server.psql(proxy.address().port());
        psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut psql = psql.spawn().expect("psql");
        let answers = BufReader::new(psql.stdout.take().expect("a pipe"));
        Self { psql, answers }
    }

    /// The first line of the answer; empty if the connection is gone.
    fn ask(&mut self, sql: &str) -> String {
        let input = self.psql.stdin.as_mut().expect("a pipe");
        writeln!(input, "{sql};").expect("psql still runs");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("text");
        line.trim().to_owned()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.psql.kill());
        drop(self.psql.wait());
    }
}

fn address(server: &PostgresServer) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_survives_a_swap_and_keeps_its_commit() {
    if !PostgresServer::is_installed() {
        return;
    }
    let dir = ScratchDir::new("proxy-postgres");
    let primary = PostgresServer::start(dir.join("primary"));
    primary.sql("CREATE TABLE applied (n int)");
    let standby = primary.standby(dir.join("standby"));
    let plan = Script::of(*b"INSERT", [Fault::CutAfter, Fault::CutBefore]);
    let proxy = FaultProxy::start(address(&primary), Protocol::Postgres, plan).await.expect("a port");

    for n in [1, 2] {
        let insert = format!("INSERT INTO applied VALUES ({n}) RETURNING n");
        assert_eq!(Session::start(&primary, &proxy).ask(&insert), "", "the connection was cut");
    }
    assert_eq!(primary.sql("SELECT n FROM applied"), "1", "the first was applied, the second never arrived");

    let mut session = Session::start(&primary, &proxy);
    assert_eq!(session.ask("SELECT pg_is_in_recovery()"), "f");
    proxy.swap(address(&standby), Existing::Follow);
    assert_eq!(session.ask("SELECT pg_is_in_recovery()"), "t", "the same session is on the standby");
    assert_eq!(proxy.connections(), 1);
}
