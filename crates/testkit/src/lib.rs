//! What shows that a store keeps its promises.
//!
//! **Contents**: the contract suite for stores, a clock that tests turn, a store and a network that fail on demand, a
//! workload and the checks of its result. **Never here**: sleeping, unless a plan asks a network for it; a test that
//! can pass without its subject.
//!
//! # Your own store under the contract
//!
//! The promises of [`Store`](semel_core::store::Store) are the same for everybody, and so are their tests. An author
//! says how a fresh, empty store is opened and what may be done to it, in a file of integration tests:
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
//!             held.overwrite(id, bytes).expect("something stands there");
//!             Box::pin(std::future::ready(()))
//!         })
//!         // A durable store is also `.reopened_by(…)`, a shared one `.joined_by(…)`: what it says that it can do has
//!         // to be shown. Its `damaged_by` goes to the file, and holds no handle that would keep it open over a restart.
//!         // `.holding(…)` keeps a temporary directory or a server for as long as the store is used.
//! }
//!
//! // One #[test] for each promise: `your_store::claims::of_many_claims_one_wins_and_every_other_is_shown_it`, …
//! semel_testkit::contract!(your_store, open);
//!
//! # fn main() {
//! // Or all at once, for a harness of your own:
//! semel_testkit::contract::run_all(open);
//! # }
//! ```
//!
//! A store with a clock of its own hands in its own [`Turn`] instead of the [`FakeClock`]: an offset that its tests can
//! set, for one. It may run on from where it was turned to; no promise depends on minutes.
//!
//! # Above the stores
//!
//! [`faults::Faulty`] wraps any store and loses, delays, repeats and refuses what is asked of it, by a script or a
//! seed; [`proxy::FaultProxy`] does that to the bytes between a driver and its server; [`FakeClock`] is an engine's
//! clock too, whose naps end when the test lets time pass. [`assert_hidden`] looks for a secret in the debug output
//! of a type.
//!
//! # Under load and kills
//!
//! [`workload::Workload`] lets several nodes claim and finish the same keys on one store, and [`workload::audit`]
//! counts the effects afterwards. [`history::Recorder`] writes down every write and reading meanwhile, and
//! [`linearizability::check`] says whether one store that does one thing at a time could have answered so:
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
//! Nodes that are processes of their own, and may be killed, use [`Recorder::to_file`](history::Recorder::to_file) and
//! [`FileJournal`](workload::FileJournal).

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
mod scene;
mod walk;
pub mod workload;

pub use clock::FakeClock;
pub use harness::{Doing, Subject, Turn};
pub use hidden::assert_hidden;
