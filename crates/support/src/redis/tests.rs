use super::*;
use crate::ScratchDir;

#[test]
fn another_server_on_the_port_is_not_taken_for_the_started_one() {
    if !RedisServer::is_installed() {
        return;
    }
    let dir = ScratchDir::new("redis-port");
    let there = RedisServer::start(dir.join("there"), &[]);
    std::fs::create_dir_all(dir.join("late")).expect("a directory");
    let program = vec!["redis-server".into()];
    let mut late =
        RedisServer { program, dir: dir.join("late"), port: there.port(), more: Vec::new(), process: None };
    assert!(!late.try_start(), "it cannot listen there");
    assert!(there.pong().is_some(), "the other one still does");
}
