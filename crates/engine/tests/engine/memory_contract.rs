//! The memory store keeps the contract of every store.

use semel_testkit::Subject;
use std::future::{Ready, ready};

fn open() -> Ready<Subject> {
    ready(Subject::memory())
}

semel_testkit::contract!(memory, open);
