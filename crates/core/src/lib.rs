//! The pure core of Semel: the rules by which a side effect happens once, without I/O.
//!
//! A request that timed out may or may not have charged the card. The client retries, the queue redelivers, the
//! operator runs the job again. Semel recognises the same command, runs it once, stores its result and replays it. If
//! nobody can prove what happened, it reports `UNKNOWN`.
//!
//! **What lives here**: data and pure functions. How a command is recognised ([`key`], [`scope`],
//! [`fingerprint`](mod@fingerprint)), what is stored for it ([`record`], [`policy`], [`outcome`], [`codec`],
//! [`store`]), and how it may change ([`machine`], [`classify`](mod@classify)). **What must never**: I/O, an async
//! runtime, HTTP, SQL, a clock, randomness. Time and tokens are arguments, so a model checker can explore every order
//! of events with the production code.
//!
//! # Three guarantees
//!
//! What can be promised depends on where the effect happens. Every record carries its [`Class`](policy::Class):
//!
//! | class | the effect happens | what is promised |
//! |---|---|---|
//! | `local` | in the same database transaction as the record | exactly once, always |
//! | `downstream` | in a system that deduplicates by the ID we pass on | exactly once, as long as that system deduplicates; an attempt in doubt is repeated |
//! | `external` | anywhere else | at most once per key within its retention; an attempt in doubt becomes `UNKNOWN` and waits for a verdict |
//!
//! # The states
//!
//! ```text
//!      decide: a key never seen
//!      ┌──────────┴──────────┐
//!      ▼                     ▼
//!   CLAIMED ────start───► PROCESSING
//!      │                     │
//!      │ nothing    ┌────────┼────────────────┬──────────────────┐
//!      │ was sent   │ no     │ finish         │ finish           │ in doubt, or
//!      │            │ effect │                │                  │ the lease dies
//!      ▼            ▼        ▼                ▼                  ▼
//!   FAILED_NOT_REPLAYABLE  SUCCEEDED  FAILED_REPLAYABLE       UNKNOWN
//!      │                     │                │                  │
//!   decide: next attempt     └─────expire─────┤     reconcile, resolve, late
//!   (past its time: purge)                    ▼     owner: one of the three on
//!                                          EXPIRED  the left; downstream also
//!                                             │     decide: next attempt
//!                                             └─purge─► (nothing)
//! ```
//!
//! - `SUCCEEDED` and `FAILED_REPLAYABLE` are final until they expire. Every retry gets a replay.
//! - `FAILED_NOT_REPLAYABLE` means that *no* attempt took effect: the next request is the next attempt.
//! - `UNKNOWN` means that nobody can prove what happened. It never expires by itself and is never purged.
//!
//! # From a request to a decision
//!
//! ```
//! use semel_core::classify::{Answer, Ending, Rules};
//! use semel_core::fingerprint::{Limits, Request};
//! use semel_core::key::{Key, Rules as KeyRules};
//! use semel_core::machine::{self, Begin, Command, Decision, Found, Reply, Stamp, NewAttempt};
//! use semel_core::outcome::{Outcome, Status};
//! use semel_core::policy::{Class, Policy};
//! use semel_core::record::Token;
//! use semel_core::scope::{Identity, Operation, Scope, Secret};
//! use semel_core::time::Time;
//! use std::time::Duration;
//!
//! // Who asks for what, and with which key?
//! let secret = Secret::from_bytes(b"an example; take 32 random bytes")?;
//! let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
//! let header = b"8e03978e-40d5-43dd-bc93-6894a57f9324".as_slice();
//! let key = Key::from_header([header], &KeyRules::default())?.key;
//! let policy = std::sync::Arc::new(Policy::new(Class::External));
//! let body = br#"{"amount": 5, "currency": "EUR"}"#;
//! let plain = |body| Request::new("POST", "POST /charges", "/charges", body);
//! let request = Request { content_type: &[b"application/json"], ..plain(body) };
//! let payload = (request, Limits::default());
//! let command = Command::new(&secret, &scope, &key, policy.clone(), &payload)?;
//!
//! // The key is new: this request runs the command.
//! // A store would now insert `claim.next` under `command.id`.
//! let token = Token::from_random(0x5eed); // in production: 128 fresh random bits
//! let new_attempt = NewAttempt { token, begin: Begin::Processing };
//! let stamp = Stamp::new(Time::from_millis(1_000), "worker-1", "");
//! let decision = machine::decide(Found::Nothing, &command, new_attempt, stamp);
//! let Decision::Run(claim) = decision else { unreachable!() };
//!
//! // The effect is sent and answered.
//! // A store would now swap the record for `done.next`, if it is unchanged.
//! assert!(machine::may_send(&claim.next, token, stamp.now, Duration::ZERO));
//! let answer = Answer::new(Status::Http(201));
//! let outcome = Outcome::http(201, [("location", "/charges/7")], "{\"id\":7}");
//! let ending = Ending::of(Class::External, &answer, &Rules::default(), outcome.clone());
//! let done = machine::finish(&claim.next, token, ending, stamp)?;
//!
//! // The retry, written differently, gets the same answer.
//! let body = br#"{"currency":"EUR","amount":5.0}"#;
//! let request = Request { content_type: &[b"application/json"], ..plain(body) };
//! let payload = (request, Limits::default());
//! let retry = Command::new(&secret, &scope, &key, policy, &payload)?;
//! let decision = machine::decide(Found::Record(&done.next), &retry, new_attempt, stamp);
//! assert_eq!(decision, Decision::Answer(Reply::Replay(&outcome)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where to read on
//!
//! Start with [`machine`]: it is the centre, and short. Then read [`record`] for what is stored, [`policy`] for what
//! is promised, and [`fingerprint`](mod@fingerprint) for what makes two payloads the same.

pub mod classify;
pub mod codec;
mod encoding;
pub mod fingerprint;
pub mod history;
pub mod id;
pub mod key;
pub mod labels;
pub mod machine;
pub mod outcome;
pub mod policy;
pub mod record;
pub mod scope;
mod state_name;
pub mod store;
pub mod time;
mod varint;
