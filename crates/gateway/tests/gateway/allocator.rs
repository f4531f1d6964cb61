//! The allocator's settings, which a process can only get at its start.

use super::world::{Scratch, Starting};
use std::process::Command;

const SET: [&str; 2] = ["MALLOC_ARENA_MAX=", "MALLOC_MMAP_THRESHOLD_="];

/// The environment of a gateway that was started with this additional variable.
fn environment_of(more: Option<(&str, &str)>) -> Vec<String> {
    let scratch = Scratch::new();
    let mut program = Command::new(env!("CARGO_BIN_EXE_semel"));
    program.env_remove("LD_PRELOAD").envs(more);
    let flags = ["--store", "memory:", "--upstream", "http://127.0.0.1:9"];
    let gateway = Starting::begin_as(program, &scratch, &flags).listens();
    let environment = std::fs::read(format!("/proc/{}/environ", gateway.id)).expect("it runs");
    environment.split(|byte| *byte == 0).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

#[test]
fn the_allocator_keeps_little_unless_somebody_has_chosen_otherwise() {
    let has = |environment: &[String], name: &str| environment.iter().any(|text| text.starts_with(name));
    let environment = environment_of(None);
    assert!(SET.iter().all(|name| has(&environment, name)), "{environment:?}");
    for chosen in [("MALLOC_ARENA_MAX", "64"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=64")] {
        let environment = environment_of(Some(chosen));
        assert!(!has(&environment, "MALLOC_MMAP_THRESHOLD_="), "{environment:?}");
        assert!(has(&environment, chosen.0), "{environment:?}");
    }
}
