//! Semel makes side effects happen once.
//!
//! A request times out, and nobody knows whether the card was charged. The client retries, the queue redelivers, the
//! operator runs the job again. An [`Engine`] recognises the same [`Intent`], runs your work once, stores its result
//! and gives every retry the same answer. If nobody can prove what happened, it reports an unknown outcome.
//!
//! ```
//! use semel::{Class, Engine, Failed, Identity, Intent, Key, Operation, Policy, Scope, memory, payload::Json};
//! # use std::{sync::Arc, time::Duration};
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! // In memory for this example; `semel_sql::sqlite::Store` keeps records in a file.
//! let engine = Engine::builder(Arc::new(memory::Store::new())).build().await?;
//!
//! for attempt in 0..2 {
//!     let scope = Scope::new(Identity::api_key("shop"), Operation::named("charge"));
//!     let key = Key::from_source("order-1234")?;
//!     let intent = Intent::new(scope, key, Policy::new(Class::External), Json::of(&500)?);
//!     let done = engine.run(intent, |_| async { Ok::<_, Failed>("receipt 7".to_owned()) }).await?;
//!     assert_eq!((done.value.as_str(), done.replayed), ("receipt 7", attempt > 0));
//! }
//!
//! engine.shutdown(Duration::from_secs(30)).await;      // before the process ends: waits for running attempts
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! ```toml
//! [dependencies]      # not on crates.io yet: from a checkout of the repository
//! semel = { path = "../semel/crates/engine" }
//! semel-sql = { path = "../semel/crates/sql" }         # the store in a file; feature `postgres` for a server
//! tokio = { version = "1", features = ["macros", "rt-multi-thread"] }
//! ```
//!
//! **What lives here**: the engine that runs commands over a store: claim, lease, work, finish, replay, wait, sweep,
//! reconcile. **What must never**: a rule about what a state means (that is [`semel_core::machine`]), or a protocol.
//!
//! # Three ways to use it
//!
//! - [`Engine::run`]: work that returns a value. Every retry gets the same value, also `0`, `""` and `None`.
//! - [`Engine::execute`]: work that ends with a raw [`Outcome`](core::outcome::Outcome): status, headers, bytes.
//! - [`Engine::claim`]: a [`Lease`] for a worker that runs elsewhere: renew, finish, give back.
//!
//! # What your work has to report
//!
//! How your work failed decides what a retry gets:
//!
//! | the work ends with | the record | the next call with the key |
//! |---|---|---|
//! | `Ok(value)` | `SUCCEEDED` | gets the value |
//! | [`Failed::Refused`] | `FAILED_REPLAYABLE` | gets the same refusal |
//! | [`Failed::NotApplied`] | `FAILED_NOT_REPLAYABLE` | is the next attempt |
//! | [`Failed::InDoubt`], or a missed deadline | `UNKNOWN` | gets "unknown" until somebody finds out ([`Reconcile`], [`Engine::resolve`]) |
//! | a panic or a crash | unchanged until its lease expires, then `UNKNOWN` | gets "unknown"; in class `downstream` it is the next attempt |
//!
//! Report `NotApplied` only if you are sure: "connection refused" is a proof, a timeout is not.
//!
//! # What the guarantee depends on
//!
//! The [class](core::policy::Class) of the policy names the guarantee. The store has to keep what it acknowledged
//! ([`hazards`](core::store::Store::hazards) lists risks). The work has to call [`Attempt::check`] right before it
//! sends its effect, if it does anything slow before. One case remains: a process that is frozen between that check
//! and the first byte. Only a system that compares [`Attempt::fence`] can refuse that effect.

// The modules, from the bottom to the top. Each uses those below it, never those above.
//
// - `runtime`, `settings`, `probe_entry`, `archive`, `quota`: they use no other module. `memory`, `sealing`, `secrets`
//   and `time` use these.
// - `observe`: what an engine reports.
// - `node`: the state that all parts of an engine share, and every call to the store.
// - `background`: what no request asked for.
// - `call`: from an intent to its answer.
// - `operator`: what people do to records. `builder`: puts everything together.

pub mod archive;
mod background;
mod builder;
mod call;
pub mod memory;
mod node;
mod observe;
mod operator;
mod probe_entry;
pub mod quota;
mod runtime;
pub mod sealing;
pub mod secrets;
mod settings;
pub mod time;

pub use builder::{BuildError, Builder};
pub use call::answer::{Error, ExecuteResponse, GivenUp, RanAttempt, Replayed, RequestOutcome, Stored};
pub use call::attempt::{Attempt, LeaseError};
pub use call::conduct::WorkResult;
pub use call::engine::{Engine, ShutdownReport};
pub use call::finishing::{Finishing, NotFinished};
pub use call::found_record::FoundRecord;
pub use call::intent::Intent;
pub use call::lease::{Claimed, Lease};
pub use call::refusal::{RecordedOutcome, Refusal, RefusalReason};
pub use call::value::{Done, Failed, RunError, RunErrorReason};
pub use call::{local, payload};
pub use node::reconcilers::{Case, Finding, Reconcile};
pub use node::store_id::StoreId;
pub use node::writable::WriteRefusal;
pub use observe::{Call, Event, Observer, RequestRefusal, Resolver, SweepReport, Unobserved};
pub use operator::actions::{Erased, OperatorError, REASON_BYTES_MAX};
pub use operator::caller_operation::CallerOperation;
pub use operator::copy;
pub use runtime::backoff;
pub use runtime::clock::{Clock, Sleep, SystemClock};
pub use runtime::random::{Random, SystemRandom};
pub use runtime::spans::SPANS;
pub use runtime::spawn::{Spawn, Task};
pub use semel_core as core;
pub use semel_core::id::OperationId;
pub use semel_core::key::Key;
pub use semel_core::policy::{Class, Policy};
pub use semel_core::scope::{Identity, Operation, Scope};
pub use settings::{ClockSettings, Probe, Settings, Sweep};
