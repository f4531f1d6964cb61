//! An axum service whose charges happen once: `cargo run -p semel-http --example charges`, then run this twice:
//!
//! `curl -i http://127.0.0.1:3000/charges -H 'Authorization: Bearer anna' -H 'Idempotency-Key: 5f0c9d6e-order-1234' -d
//! '{}'`

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Router, middleware};
use semel::Engine;
use semel::core::scope::Identity;
use semel_http::{Callers, Layer, NotIdentified, RouteSettings};
use semel_sql::sqlite;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// The result of authentication.
#[derive(Clone)]
struct User(String);

/// Replaces a real check: a bearer token is the user's name.
async fn authenticate(mut request: Request, next: Next) -> Response {
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let Some(name) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
        return (StatusCode::UNAUTHORIZED, "who are you?").into_response();
    };
    let user = User(name.to_owned());
    request.extensions_mut().insert(user);
    next.run(request).await
}

fn charge() -> (StatusCode, &'static str) {
    println!("charging a card");
    (StatusCode::CREATED, "charged\n")
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = sqlite::Store::open("charges.db", sqlite::Options::default())?;
    let engine = Engine::builder(Arc::new(store)).build().await?;
    // By the user, not by the token: a user with a renewed token is still the same caller.
    let callers = Callers::by(|parts| {
        let user: &User = parts.extensions.get().ok_or(NotIdentified::ByRule)?;
        Ok(Identity::header(user.0.as_str()).into())
    });
    let app = Router::new()
        .route("/charges", post(|| async { charge() }))
        .layer(Layer::new(engine.clone(), RouteSettings::default())?.callers(callers).publishing(""))
        // Added last, so it runs first: nobody gets a replay before the caller is identified.
        .layer(middleware::from_fn(authenticate));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on http://127.0.0.1:3000; end it with Enter");
    let entered = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    axum::serve(listener, app).with_graceful_shutdown(async move { drop(entered.await) }).await?;
    engine.shutdown(Duration::from_secs(30)).await;
    Ok(())
}
