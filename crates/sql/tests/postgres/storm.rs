//! A storm of duplicates, faults and kills on PostgreSQL.

use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::proxy::Protocol;
use semel_testkit::storm::{self, NODES, ServerFault, Storm};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

const END_SOME: &str = "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE usename = 'semel' \
                        AND pid <> pg_backend_pid() AND query LIKE '%.write(%' LIMIT 2) AS some_of_them";

/// Runs as a node. Does nothing without the variables of a storm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node() {
    let options = || Options::default().request_timeout(Duration::from_millis(300));
    storm::run_node(async |url| Some(Arc::new(Store::open(url, options()).await.ok()?) as _)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_has_one_effect_despite_kills_and_losses() {
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "storm");
    let mut server = PostgresServer::start(folder.join("server"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, server.port()));
    let direct = server.url();
    Store::open(&direct, Options::default()).await.expect("the store opens").close().await;
    let (mut proxies, mut urls) = (Vec::new(), Vec::new());
    for number in 0..NODES as u64 {
        let proxy = storm::proxy(address, Protocol::Postgres, number).await;
        urls.push(format!("postgres://semel@{}/semel?timeout=1&connect_timeout=2", proxy.address()));
        proxies.push(proxy);
    }
    let mut storm = Storm::start(folder.path(), urls);
    let mut ends = 0;
    storm
        .run_to_end(|fault| match fault {
            ServerFault::RestartServer => {
                server.kill();
                server.restart();
            }
            ServerFault::EndConnections => {
                ends += 1;
                match ends % 4 {
                    // Half-open: what was sent to these is carried out when they continue, long after it was
                    // given up.
                    1 => drop(server.halt_connections()),
                    2 => server.resume(),
                    // A hung host: it accepts connections and answers nothing.
                    3 => {
                        server.halt();
                        std::thread::sleep(Duration::from_millis(1_200));
                        server.resume();
                    }
                    _ => drop(server.try_sql(END_SOME)),
                }
            }
        })
        .await;
    server.resume();
    let store = Store::open(&direct, Options::default()).await.expect("the store opens");
    storm.judge(&store).await;
    store.close().await;
}
