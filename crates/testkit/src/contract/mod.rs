//! The contract suite: the promises of every store, each tested on a fresh store.
//!
//! The promises by subject, their list, and the two ways to run it. Promises never sleep, make no timed assertions, and
//! have no exceptions for one kind of store. Declared capabilities are tested.
//!
//! A promise is an async function that takes a fresh [`Subject`] and panics if the promise is broken.

pub mod claims;
pub mod clock;
pub mod counts;
pub mod due;
pub mod durability;
pub mod expiry;
pub mod finding;
pub mod handles;
pub mod identity;
pub mod leases;
pub mod lost_answers;
pub mod markers;
pub mod paging;
pub mod settings;
pub mod swaps;
pub mod unreadable;
pub mod values;

mod list;

use crate::harness::{HarnessFuture, Subject};
use std::any::Any;
use std::fmt;
use std::time::Duration;

/// A promise that hangs is broken. Much longer than a loaded machine needs.
const HANGS_AFTER: Duration = Duration::from_mins(10);

/// One promise of the contract.
#[derive(Clone, Copy)]
pub struct Promise {
    /// Its subject.
    pub subject: &'static str,
    /// Its name.
    pub name: &'static str,
    show: fn(Subject) -> HarnessFuture<()>,
}

impl fmt::Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}::{}", self.subject, self.name)
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Promise({self})")
    }
}

/// A broken promise.
#[derive(Debug, Clone)]
pub struct Broken {
    /// The promise.
    pub promise: Promise,
    /// How it failed.
    pub how: String,
}

/// All promises.
pub const PROMISES: &[Promise] = list::PROMISES;

/// Tests all promises, each on a fresh store from `open`, and returns the broken ones.
///
/// # Panics
/// If it is called inside an async runtime: it starts its own.
pub fn broken<F: Future<Output = Subject> + Send + 'static>(open: impl Fn() -> F) -> Vec<Broken> {
    let keep = |promise: &Promise| show(*promise, open()).err();
    PROMISES.iter().filter_map(keep).collect()
}

/// Tests all promises, each on a fresh store from `open`, and panics with a list of the broken ones.
///
/// [`contract!`](crate::contract!) makes one test per promise instead, with better names for failures, and in
/// parallel.
///
/// # Panics
/// If a promise is broken, or if it is called inside an async runtime.
pub fn run_all<F: Future<Output = Subject> + Send + 'static>(open: impl Fn() -> F) {
    let broken = broken(open);
    let lines: Vec<String> =
        broken.iter().map(|broken| format!("{}: {}", broken.promise, broken.how)).collect();
    assert!(broken.is_empty(), "{} promises are broken:\n{}", broken.len(), lines.join("\n"));
}

/// Tests one promise on the store from `open`.
pub fn show<F: Future<Output = Subject> + Send + 'static>(promise: Promise, open: F) -> Result<(), Broken> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build()
        .expect("threads are available");
    let shown = async move { (promise.show)(open.await).await };
    let ended = runtime.block_on(async { tokio::time::timeout(HANGS_AFTER, tokio::spawn(shown)).await });
    // A broken promise may leave tasks that hang forever; do not wait for them.
    runtime.shutdown_background();
    let how = match ended {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(failed)) => panic_text(&*failed.into_panic()),
        Err(_) => format!("it did not end within {HANGS_AFTER:?}"),
    };
    Err(Broken { promise, how })
}

/// What a generated test calls.
#[doc(hidden)]
pub fn show_named<F: Future<Output = Subject> + Send + 'static>(name: &str, open: F) {
    let promise = PROMISES.iter().find(|promise| promise.to_string() == name).expect("it is on the list");
    if let Err(broken) = show(*promise, open) {
        panic!("{name} is broken: {}", broken.how);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
}
