//! The memory store keeps the contract of every store.

use semel_testkit::Subject;

async fn open() -> Subject {
    Subject::memory()
}

semel_testkit::contract!(memory, open);
