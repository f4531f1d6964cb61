//! The demo's payment service: it charges for every request, and keeps a ledger.
//!
//! It is a small HTTP server on a loopback port, in the same process. It knows nothing about idempotency keys: it stands
//! for a service that somebody else wrote and that cannot be changed.
//!
//! | request | answer |
//! |---|---|
//! | `POST /charges` `{"amount", "currency", "customer"}`, or the same as a form | 201, `Location`, a receipt |
//! | `GET /charges`, `GET /charges?operation_id=…`, `GET /charges/{id}`, `GET /ledger` | what was charged |
//! | `POST /v1/charges`, `POST /v1/payment_intents` (forms), and `GET` of one | as Stripe's libraries expect |
//! | `GET /` | a page with a button |
//!
//! A request can ask for trouble: see [`Trouble`].

mod ledger;
mod order;
mod receipt;
mod service;
mod trouble;

pub use ledger::{Charge, Ledger};
pub use trouble::{HEADER as TROUBLE, Trouble};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A payment service that runs until this is dropped.
#[derive(Debug)]
pub struct Payments {
    address: SocketAddr,
    ledger: Ledger,
    serving: JoinHandle<()>,
}

impl Payments {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has charged.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }
}

impl Drop for Payments {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Starts a payment service with an empty ledger, on a loopback port of the system's choice.
pub async fn start() -> io::Result<Payments> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let ledger = Ledger::new();
    let serving = tokio::spawn(serve(listener, ledger.clone()));
    Ok(Payments { address, ledger, serving })
}

async fn serve(listener: TcpListener, ledger: Ledger) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            // Probably out of file descriptors: other connections will close and free some.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let ledger = ledger.clone();
        let answer = service_fn(move |request| service::answer(ledger.clone(), request));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
    }
}
