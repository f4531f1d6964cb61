//! Gets a connection for a request: from the pool if possible, otherwise a new one, within one timeout.

use super::dial::{self, NewConnection};
use super::failed::Failed;
use super::h1;
use super::h2::{self, Lease};
use super::options::Options;
use super::pool::{Pool, PooledConnection};
use super::slots::{Slot, Slots};
use super::tls::AlpnConfigs;
use semel_http::Failure;
use semel_net::client::AuthoritiesError;
use semel_net::target::{Target, Transport};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Mutex;

/// What all requests to one upstream share.
pub(super) struct Connector {
    pub(super) target: Target,
    pub(super) options: Options,
    offers: Option<AlpnConfigs>,
    pool: Arc<Pool>,
    slots: Slots,
    /// Whether the upstream used HTTP/2 last time.
    is_h2: AtomicBool,
    /// Held while a shareable connection is opened, so that others wait for it instead of opening their own.
    opening: Mutex<()>,
}

/// The request that needs a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Requester {
    pub(super) is_protected: bool,
    /// None for the gateway's own questions.
    pub(super) client: Option<IpAddr>,
}

/// What carries one request.
pub(super) enum RequestConnection {
    H1(PooledConnection),
    H2(Lease),
}

impl Connector {
    pub(super) fn new(target: Target, options: Options) -> Result<Self, AuthoritiesError> {
        let is_tls = target.transport() == Transport::Https;
        let offers = is_tls.then(|| AlpnConfigs::new(&options.authorities)).transpose()?;
        Ok(Self {
            is_h2: AtomicBool::new(target.transport() == Transport::H2c),
            pool: Pool::new(&options),
            slots: Slots::new(options.connections_max),
            opening: Mutex::new(()),
            target,
            options,
            offers,
        })
    }

    /// A connection for one request, in time.
    pub(super) async fn way(
        &self,
        who: Requester,
        is_upgrade: bool,
        must_be_new: bool,
    ) -> Result<RequestConnection, Failed> {
        let is_protected = who.is_protected;
        let must_be_new = must_be_new || is_upgrade || is_protected && self.options.is_fresh_when_protected;
        // Without a timer if there is nothing to wait for.
        if !must_be_new && let Some(way) = self.at_hand(who) {
            return Ok(way);
        }
        // Separate, because most requests never need it.
        let open = Box::pin(self.open(who, is_upgrade, must_be_new));
        match tokio::time::timeout(self.options.connect_timeout, open).await {
            Ok(way) => way,
            Err(_) => Err(Failed::new(Failure::ConnectTimeout, "no connection in time")),
        }
    }

    fn at_hand(&self, who: Requester) -> Option<RequestConnection> {
        let Requester { is_protected, client } = who;
        if self.is_h2.load(Ordering::Relaxed) {
            return self.pool.lease(is_protected).map(RequestConnection::H2);
        }
        let slot = self.slots.at_hand(is_protected, client)?;
        let connection = self.pool.take(is_protected)?;
        Some(RequestConnection::H1(PooledConnection::new(connection, &self.pool, slot)))
    }

    async fn open(
        &self,
        who: Requester,
        is_upgrade: bool,
        must_be_new: bool,
    ) -> Result<RequestConnection, Failed> {
        let is_protected = who.is_protected;
        if self.is_h2.load(Ordering::Relaxed) && !is_upgrade {
            if must_be_new {
                let dialled = self.dial(false).await?;
                return if dialled.is_h2 {
                    self.h2(dialled).await.map(|connection| RequestConnection::H2(Lease::alone(connection)))
                } else {
                    self.h1(dialled, self.slot(who).await?).await
                };
            }
            let opening = self.opening.lock().await;
            if let Some(lease) = self.pool.lease(is_protected) {
                return Ok(RequestConnection::H2(lease));
            }
            let dialled = self.dial(false).await?;
            if dialled.is_h2 {
                let lease = self.pool.share(self.h2(dialled).await?);
                return Ok(RequestConnection::H2(lease));
            }
            drop(opening);
            return self.h1(dialled, self.slot(who).await?).await;
        }
        let slot = self.slot(who).await?;
        // While this waited for its slot, another may have returned a connection.
        if !must_be_new && let Some(connection) = self.pool.take(is_protected) {
            return Ok(RequestConnection::H1(PooledConnection::new(connection, &self.pool, slot)));
        }
        let dialled = self.dial(is_upgrade).await?;
        if !dialled.is_h2 {
            return self.h1(dialled, slot).await;
        }
        let connection = self.h2(dialled).await?;
        Ok(RequestConnection::H2(if must_be_new {
            Lease::alone(connection)
        } else {
            self.pool.share(connection)
        }))
    }

    async fn dial(&self, must_be_http1: bool) -> Result<NewConnection, Failed> {
        let dialled = dial::dial(&self.target, self.offers.as_ref(), must_be_http1).await;
        let dialled = dialled.map_err(|undialled| Failed::new(Failure::Unreachable, undialled))?;
        if !must_be_http1 {
            self.is_h2.store(dialled.is_h2, Ordering::Relaxed);
        }
        Ok(dialled)
    }

    async fn h1(&self, dialled: NewConnection, slot: Slot) -> Result<RequestConnection, Failed> {
        let connection = h1::Connection::over(dialled, self.options.head_bytes_max).await;
        let connection = connection.map_err(|error| Failed::new(Failure::Unreachable, error))?;
        Ok(RequestConnection::H1(PooledConnection::new(connection, &self.pool, slot)))
    }

    async fn h2(&self, dialled: NewConnection) -> Result<h2::Connection, Failed> {
        let connection = h2::Connection::over(dialled, self.options.head_bytes_max).await;
        connection.map_err(|error| Failed::new(Failure::Unreachable, error))
    }

    async fn slot(&self, who: Requester) -> Result<Slot, Failed> {
        let slot = self.slots.wait(who.is_protected, who.client).await;
        slot.map_err(|error| Failed::new(Failure::Unreachable, error))
    }
}
