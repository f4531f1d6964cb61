//! Tests that a store keeps its promises.
//!
//! **What lives here**: the contract suite for stores, a fake clock, a store and a network that fail on demand, a
//! workload and the checks of its result, storms in which nodes and servers are killed, and records to write. **What
//! must never**: sleeping, unless a plan delays the network or the processes of a storm need the time; a test that can
//! pass without its subject.
//!
//! # Testing your own store
//!
//! All stores have the same promises ([`Store`](semel_core::store::Store)) and the same tests. In a file of
//! integration tests, say how to open a fresh, empty store and what the suite may do to it:
//!
//! ```
//! use semel_testkit::{FakeClock, Subject};
//! use std::sync::Arc;
//! # use semel::memory as your;
//!
//! async fn open() -> Subject {
//!     let clock = FakeClock::default();
//!     let store = Arc::new(your::Store::with_clock(Arc::new(clock.clone())));
//!     let held = Arc::clone(&store);
//!     Subject::new(store, clock)
//!         // How the bytes of an entry are replaced behind the store's back:
//!         .damaged_by(move |id, bytes| {
//!             held.overwrite(id, bytes).expect("there is an entry");
//!             Box::pin(std::future::ready(()))
//!         })
//!         // A durable store also needs `.reopened_by(…)`, a shared one `.joined_by(…)`: declared capabilities
//!         // are tested. Its `damaged_by` writes to the file, and keeps no handle open over a restart.
//!         // `.holding(…)` keeps a temporary directory or a server for as long as the store is used.
//! }
//!
//! // One #[test] for each promise: `your_store::claims::of_many_claims_one_wins_and_every_other_is_shown_it`, …
//! semel_testkit::contract!(your_store, open);
//!
//! # fn main() {
//! // Or all of them, in your own harness:
//! semel_testkit::contract::run_all(open);
//! # }
//! ```
//!
//! A store with its own clock passes its own [`TimeControl`] instead of the [`FakeClock`], for example an offset that its
//! tests can set. The clock may continue to run; no promise depends on minutes.
//!
//! # Above the stores
//!
//! [`faults::Faulty`] wraps any store and loses, delays, repeats and refuses calls, by a script or a seed;
//! [`proxy::FaultProxy`] does that to the bytes between a driver and its server; [`FakeClock`] is also an engine's
//! clock, whose sleeps end when the test advances the time. [`assert_hidden`] looks for a secret in the debug output
//! of a type. [`records`] makes records to write in a store's own tests.
//!
//! # Under load and kills
//!
//! [`workload::Workload`] lets several nodes claim and finish the same keys on one store, and [`workload::audit`]
//! counts the effects afterwards. [`history::Recorder`] records every write and read, and [`linearizability::check`]
//! decides whether a sequential store could have given the same answers:
//!
//! ```
//! use semel_testkit::history::Recorder;
//! use semel_testkit::linearizability::{self, STEPS_MAX};
//! use semel_testkit::workload::{Journal, MemoryJournal, Workload, audit};
//! use std::sync::Arc;
//! # use semel_testkit::Subject;
//! # let store = Subject::memory().store().clone();
//! # tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(async {
//! let workload = Workload { keys: 10, ..Workload::default() };
//! let recorder = Recorder::in_memory("auditor");
//! let node = |name: &str| (name.to_owned(), recorder.node(name).record(store.clone()));
//! let journal = Arc::new(MemoryJournal::default());
//! let shared: Arc<dyn Journal> = journal.clone();
//! let report = workload.run(&[node("a"), node("b")], &shared).await;
//! assert!(report.violations.is_empty());
//!
//! let audit = audit(&workload, &*recorder.record(store), &journal.notes()).await.unwrap();
//! assert!(audit.violations.is_empty());
//! linearizability::check(&recorder.history(), STEPS_MAX).assert_linearizable();
//! # });
//! ```
//!
//! Nodes that are separate processes, and may be killed, use [`Recorder::to_file`](history::Recorder::to_file) and
//! [`FileJournal`](workload::FileJournal). A [`Storm`](storm::Storm) starts and kills them, and judges the result.

mod chance;
mod clock;
pub mod contract;
mod crowd;
pub mod faults;
mod harness;
mod hidden;
pub mod history;
pub mod linearizability;
pub mod proxy;
pub mod records;
mod scene;
pub mod storm;
mod walk;
pub mod workload;

pub use clock::FakeClock;
pub use harness::{HarnessFuture, Subject, TimeControl};
pub use hidden::assert_hidden;
