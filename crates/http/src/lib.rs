//! Makes the side effects of HTTP and unary gRPC requests happen once: a tower layer over [`semel`].
//!
//! **What lives here**: from a request to an intent, and from an outcome to a response. **What must never**: a rule
//! about what a record means (that is [`semel::core::machine`]), a socket, or a configuration file.
//!
//! ```
//! use axum::{Router, routing::post};
//! use semel::{Engine, memory};
//! use semel_http::{Layer, RouteSettings};
//! # use std::sync::Arc;
//!
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let engine = Engine::builder(Arc::new(memory::Store::new())).build().await?;
//! let app: Router = Router::new()
//!     .route("/charges", post(|| async { "charged" }))
//!     .layer(Layer::new(engine, RouteSettings::default())?);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! From now on, a `POST /charges` with an `Idempotency-Key` runs the handler once. A retry with the same key and the
//! same body gets the same response with `Idempotency-Replayed: true`. (Use a durable store in production: a memory
//! store forgets everything at the end of the process.)
//!
//! # Where to put the layer
//!
//! *Inside* authentication, *outside* the handler. In axum, the layer that is added last is the outermost:
//!
//! ```text
//! Router::new().route(…).layer(semel).layer(authentication)
//! ```
//!
//! The other way round, a client with a revoked token could still get a stored response. The authenticated identity
//! is the best name for a caller: see [`Callers::by`]. A layer inside a nested router needs [`Layer::target`].
//!
//! # What the handler gets, and can report
//!
//! The handler gets the request unchanged, with the headers `Operation-Id`, `Idempotency-Attempt` and
//! `Idempotency-Fence`, and with a [`Handle`] and the [`Attempt`](semel::Attempt) as extensions. The status of the
//! response decides what it means for the record ([`classify`](semel::core::classify::classify)): a 5xx does not say
//! what happened before it, so the outcome is in doubt. A handler that knows more reports it with
//! [`Handle::set_outcome_hint`], with an [`OutcomeHint`] in the response's extensions, or with the header
//! `Idempotency-Outcome: applied | not-applied | unknown`, which is removed before the client sees it.
//!
//! The handler runs in a task of the engine: a client that disconnects cancels nothing.
//!
//! # In the handler's own transaction
//!
//! On a route of class `local`, the handler gets a [`Joinable`] instead, and runs the command in its own transaction
//! with the crate `semel-tx`. The client gets the response that was recorded in that transaction, whatever the
//! handler returns. The layer itself answers replays, mismatches and running duplicates. If nothing was committed, a
//! response of the handler with a status of 400 or more is passed on with `Idempotency-Stored: false`, also one of an
//! extractor that refused the request before it could be joined. If a handler reports a success although nothing was
//! committed, the client gets a 500 ([`Code::NotRecorded`]); if it never joined, the engine's observer gets an
//! [`Unfinished`](semel::Event::Unfinished). If the transaction still runs, or its commit is in doubt, the client gets
//! a 409 ([`Code::Unknown`]), whatever the handler returns: a retry with the same key finds out.
//!
//! # Without the layer
//!
//! A service that runs commands by itself answers like the layer with [`response_of`], [`response_of_refusal`] and
//! [`Problem::of_error`].
//!
//! # What a route can require and promise
//!
//! Its [`RouteSettings`] contain everything: whether a key is required and [where it comes from](KeySource), [how
//! callers are identified](Callers) if that differs from the rest of the layer, the guarantee and its duration, [how
//! much of a response is stored](Retain), [who authorizes a replay](Authorize), [who resolves unknown
//! outcomes](Reconciler), what happens [while the store is down](StoreDown), and whether the settings are
//! [enforced](Mode) or only reported to an [`Observer`].
//!
//! # What a client gets
//!
//! Every protected response has an `Operation-Id`, and `Idempotency-Expires` if its outcome is final and stored.
//! Refusals are [`Problem`] documents; [`Code`] lists all of them.
//!
//! # The code
//!
//! Each of these modules uses only those above it; `layer` is what applications use.
//!
//! | module | what lives there |
//! |---|---|
//! | `names` | Semel's headers |
//! | `fairness` | who holds how much of what all clients share |
//! | `memory` | the memory that bodies and responses share |
//! | `body` | bodies, read or streamed |
//! | `problem` | what is answered if there is no outcome |
//! | `stored` | what is stored of a response, and its replay |
//! | `route` | which requests belong to a route, and its settings |
//! | `observe` | events for an [`Observer`] |
//! | `layer_state` | what all requests of a layer share |
//! | `handler` | what a handler gets and reports |
//! | `request` | from a request to an intent |
//! | `response` | from a response to an ending, from an answer to a response |
//! | `publish` | the specification, and the operations of a caller |
//! | `run` | how a request goes through the layer; the only one that calls the inner service |
//! | `layer` | the layer and its settings |

mod body;
pub mod fairness;
mod handler;
mod layer;
mod layer_state;
mod memory;
pub mod names;
mod observe;
mod problem;
mod publish;
mod request;
mod response;
mod route;
mod run;
mod stored;

pub use body::{Body, BoxError};
pub use handler::{Handle, OutcomeHint};
pub use layer::Layer;
pub use observe::{Event, EventKind, Observer, ShadowDetails, ShadowOutcome};
pub use problem::{Code, Failure, Form, Malformed, Problem, SPECIFICATION, TooSlow, UnreadReason};
pub use response::{is_endless, response_of, response_of_refusal};
pub use route::{
    Authorize, Callers, Deadlines, KeyRule, KeySource, MismatchStatus, Mode, NotIdentified, Reconciler,
    RoutePattern, RoutePatternError, RouteSettings, RouteSettingsError, Routes, StoreDown, check_method,
    is_registered_method, is_shadow,
};
pub use run::Service;
pub use semel::local::Joinable;
pub use stored::{Rebuild, Retain, StoredHeaders, StoredSummary, is_header};
