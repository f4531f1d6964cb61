//! Semel in the application's own transaction: claim, effect and outcome in one commit.
//!
//! A command of class `local` changes only the database that contains its record. The record is written at
//! the end of the transaction with the effect: both are committed, or neither. There is no lease, nothing to
//! reconcile, and no unknown outcome: a retry finds the outcome, or runs the command for the first time.
//!
//! **What lives here**: transactions, one folder for each database: `postgres` (feature `postgres`, on sqlx
//! connections), and `sqlite` (feature `sqlite`, on the store's own thread or on a connection of the
//! application); with the feature `axum`, errors as responses. **What must never**: a rule about what a record means (that is [`semel::core::machine`]), or
//! a commit that does not depend on the record's own write.
//!
//! # An order, created once
//!
//! ```no_run
//! # #[cfg(feature = "postgres")]
//! # async fn example(item: String) -> Result<(), Box<dyn std::error::Error>> {
//! use semel::core::outcome::Outcome;
//! use semel::{Class, Engine, Identity, Intent, Key, Operation, Policy, Scope, payload};
//! use semel_tx::postgres::{Database, transact};
//! use semel_tx::{Error, LocalEnding};
//! use std::sync::Arc;
//!
//! // Once, at start: the store and the application's pool lead to the same database.
//! let url = "postgres://shop@db.example/shop";
//! let store = semel_sql::postgres::Store::open(url, Default::default()).await?;
//! let engine = Engine::builder(Arc::new(store)).build().await?;
//! let orders = Database::new(sqlx::PgPool::connect(url).await?);
//!
//! // For each request:
//! let scope = Scope::new(Identity::api_key("k-17"), Operation::named("create-order"));
//! let key = Key::from_source("8e03978e-40d5-43dd-bc93-6894a57f9324")?;
//! let intent = Intent::new(scope, key, Policy::new(Class::Local), payload::Raw::from(item.clone()));
//! let created = transact(&engine, &orders, intent, move |tx, local| {
//!     let item = item.clone();
//!     Box::pin(async move {
//!         let id = local.operation_id.to_string();
//!         sqlx::query("INSERT INTO orders (id, item) VALUES ($1, $2)").bind(&id).bind(item).execute(tx).await?;
//!         Ok(LocalEnding::Succeeded(Outcome::http(201, [("location", format!("/orders/{id}"))], "")))
//!     })
//! })
//! .await;
//! match created {
//!     // The order exists: created now, or by an earlier call with the key.
//!     Ok(created) => println!("order {} (replayed: {})", created.operation_id, created.replayed),
//!     // The work refused it, the key belongs to another payload, or a duplicate is running.
//!     Err(Error::Refused(refusal)) => eprintln!("no order: {refusal}"),
//!     Err(error) if error.is_retryable() => eprintln!("try again with the same key: {error}"),
//!     Err(error) => return Err(error.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What happens where
//!
//! | the process or the connection dies | the database has | a retry with the key |
//! |---|---|---|
//! | before `COMMIT` is sent | nothing of it | runs the command |
//! | after `COMMIT` is sent, before its answer | all of it, or nothing | gets the outcome, or runs the command |
//! | after the answer | all of it | gets the outcome |
//!
//! In the second line a caller that is still running gets `Error::CommitInDoubt` if the database cannot be
//! asked. That is not an `UNKNOWN` outcome: a retry with the *same* key settles it.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod caller_tx;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod ending;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub mod patterns;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(all(feature = "axum", any(feature = "postgres", feature = "sqlite")))]
mod respond;
#[cfg(feature = "sqlite")]
pub mod sqlite;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use error::{BoxError, Error};
pub use semel::local::{Local, LocalEnding};

/// The examples of the guide, compiled.
#[cfg(all(doctest, feature = "axum", feature = "postgres", feature = "sqlite"))]
#[doc = include_str!("../../../docs/guide/src/transactions.md")]
struct Guide;
