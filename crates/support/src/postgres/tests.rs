use super::*;
use crate::ScratchDir;

#[test]
fn commits_survive_a_kill_and_the_port_stays() {
    if !PostgresServer::is_installed() {
        return;
    }
    let dir = ScratchDir::new("postgres-kill");
    let mut server = PostgresServer::start(dir.join("server"));
    let (url, pid) = (server.url(), server.pid().expect("it runs"));
    assert_eq!(server.sql("SHOW fsync"), "on");
    server.sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)");
    // One of its processes is too busy to notice that the server has stopped.
    let busy = server.admin_url();
    let query = std::thread::spawn(move || {
        postgres::ask(&busy, "SELECT count(*) FROM generate_series(1, 1000000000)")
    });
    let running =
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%series%' AND pid <> pg_backend_pid()";
    wait_until("the query runs", || server.sql(running) == "1");
    let workers = children(pid);

    server.kill();
    query.join().expect("a thread").expect_err("the server is gone");
    assert!(server.pid().is_none() && server.try_sql("SELECT 1").is_err());
    let is_alive = |pid: &u32| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok();
    assert!(!workers.iter().any(is_alive), "a process of the killed server still runs");
    server.restart();
    assert_eq!((server.url(), server.sql("SELECT n FROM kept").as_str()), (url, "7"));
    assert_ne!(server.pid(), Some(pid));

    server.restart();
    assert_eq!(server.sql("SELECT n FROM kept"), "7");
    let pid = server.pid().expect("it runs");
    drop(server);
    assert!(!is_alive(&pid), "it outlives its owner");
}

#[test]
fn a_standby_refuses_writes_until_it_is_promoted() {
    if !PostgresServer::is_installed() {
        return;
    }
    let dir = ScratchDir::new("postgres-standby");
    let mut primary = PostgresServer::start(dir.join("primary"));
    primary.sql("CREATE TABLE copied (n int)");
    let mut standby = primary.standby(dir.join("standby"));
    primary.sql("INSERT INTO copied VALUES (7)");
    standby.catch_up(&primary);
    assert_eq!(standby.sql("SELECT n FROM copied"), "7");
    assert!(
        standby.try_sql("INSERT INTO copied VALUES (8)").expect_err("it is a standby").contains("read-only")
    );

    primary.kill();
    standby.promote();
    standby.sql("INSERT INTO copied VALUES (8)");
    assert_eq!(standby.sql("SELECT count(*) FROM copied"), "2");
}
