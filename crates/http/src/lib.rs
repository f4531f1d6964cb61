//! Makes the side effects of HTTP and unary gRPC requests happen once: a tower layer over [`semel`].
//!
//! **Contents**: from a request to an intent, from an outcome to a response. **Never here**: a rule about what a
//! record means (that is [`semel::core::machine`]), a socket, or a configuration file.
//!
//! ```
//! use axum::{Router, routing::post};
//! use semel::{Engine, memory};
//! use semel_http::{Layer, Terms};
//! # use std::sync::Arc;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let engine = Engine::builder(Arc::new(memory::Store::new())).build().await?;
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(Layer::new(engine, Terms::default())?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From now on a `POST /charges` with an `Idempotency-Key` runs the handler once. Anyone who sends it again, with the
//! same key and the same body, gets the same response with `Idempotency-Replayed: true`. (A memory store forgets at
//! the end of the process; take one that keeps.)
//!
//! # Where the layer stands
//!
//! *Inside* authentication, *outside* the handler. In axum the layer that is added last is the outermost:
//!
//! ```text
//! Router::new().route(…).layer(semel).layer(authentication)
//! ```
//!
//! The other way round a stored response would be replayed to somebody whose token was revoked. What authentication
//! found out is the best name for a caller: see [`Callers::by`]. A layer inside of a nested router needs
//! [`Layer::target`].
//!
//! # What the handler gets, and may say
//!
//! The request as it came, with the headers `Operation-Id`, `Idempotency-Attempt` and `Idempotency-Fence`; and a
//! [`Handle`] on its attempt as an extension (the [`Attempt`](semel::Attempt) itself too). What a response means for
//! the record follows from its status ([`classify`](semel::core::classify::classify)): a 5xx says nothing about what
//! happened before it, and is in doubt. A handler that knows better says so by [`Handle::steer`], by a [`Steer`]
//! among the response's extensions, or by the header `Idempotency-Outcome: applied | not-applied | unknown`, which no
//! client ever sees.
//!
//! The handler runs in a task of the engine's own: a client that hangs up cancels nothing.
//!
//! # In the handler's own transaction
//!
//! On a route of class `local` the handler gets a [`Joinable`] instead, and runs the command in a transaction of its
//! own by the crate `semel-tx`. Recorded is what it gives to that transaction, and the client gets what was recorded,
//! whatever the handler returns. Replays, other payloads and duplicates in progress the layer answers itself. If
//! nothing was committed, a response of the handler with a status of 400 or more is passed on, with
//! `Idempotency-Stored: false`. A handler that returns without having joined, or that speaks of success where nothing
//! was committed, gets its client a 500, and the engine's observer an [`Unfinished`](semel::Event::Unfinished) where
//! it has not joined.
//!
//! # What a route can ask for and promise
//!
//! All of it is in its [`Terms`]: whether a key is needed and [where it comes from](KeySource), [how callers are
//! distinguished](Callers) where that differs from the rest of the layer, which guarantee holds and for how long,
//! [how much of a response is kept](Retain), [who is asked before a replay](Authorize) and [about an effect in
//! doubt](Reconciler), what happens [while the store is down](StoreDown), and whether any of this is [enforced](Mode)
//! or only reported to an [`Observer`].
//!
//! # What a client is told
//!
//! Every protected response names its `Operation-Id`, and `Idempotency-Expires` as soon as its outcome is final and
//! stored. What is refused is refused with a [`Problem`]; [`Code`] lists them all.

mod advice;
mod asking;
mod authorize;
mod body;
mod budget;
mod caller;
mod clean;
mod failure;
mod handle;
mod held;
mod kept;
mod layer;
mod local;
mod malformed;
mod method;
pub mod names;
mod observe;
mod once;
mod page;
mod pattern;
mod payload;
mod prefer;
mod problem;
mod published;
mod rebuild;
mod reconciler;
mod replay;
mod request;
mod response;
mod response_room;
mod room;
mod route;
mod service;
mod shadow;
mod source;
mod specification;
mod steer;
mod target;
mod telling;
mod template;
mod terms;
mod unread;
mod unread_responses;
mod watched;

pub use authorize::Authorize;
pub use body::{Body, BoxError};
pub use caller::{Callers, NotIdentified};
pub use failure::Failure;
pub use handle::Handle;
pub use kept::Kept;
pub use layer::Layer;
pub use malformed::Malformed;
pub use method::{check_method, is_registered_method};
pub use observe::{Event, Observer, Seen, What, Would};
pub use pattern::{RoutePattern, RoutePatternError};
pub use problem::{Code, Form, Problem, SPECIFICATION};
pub use rebuild::{Rebuild, Remnant, Retain, is_header};
pub use reconciler::Reconciler;
pub use response::is_endless;
pub use route::Routes;
pub use semel::core::classify::Steer;
pub use semel::local::Joinable;
pub use service::Service;
pub use shadow::is_shadow;
pub use source::KeySource;
pub use terms::{KeyRule, MismatchStatus, Mode, StoreDown, Terms, TermsError};
pub use unread::{TooSlow, Unread};
