//! One connection through the proxy, in both directions.
//!
//! Passes, holds, drops or cuts bytes. There is one task per connection, because a fault in one direction must be
//! visible to the other at once.

use super::plan::{Fault, Throttle};
use super::protocol::ProtocolState;
use super::{Orders, Shared};
use crate::faults::Pause;
use bytes::{Buf as _, BytesMut};
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// How much is read ahead.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// How a connection ends.
enum End {
    /// Both sides had sent everything.
    Closed,
    /// Both sides get an error.
    Reset,
}

/// One direction: bytes that have arrived and are not passed on yet.
#[derive(Default)]
struct Flow {
    bytes: BytesMut,
    /// Nothing is passed on before these are over: a delay, and the pause after a part on a slow connection.
    delay: Option<Pause>,
    gap: Option<Pause>,
    is_finished: bool,
}

impl Flow {
    fn takes_more(&self) -> bool {
        !self.is_finished && self.bytes.len() < AHEAD_BYTES_MAX
    }

    fn has_some_to_pass(&self) -> bool {
        !self.bytes.is_empty() && self.delay.is_none() && self.gap.is_none()
    }

    /// Writes what the socket accepts at once, and at most one part on a slow connection.
    fn pass_to(&mut self, stream: &TcpStream, throttle: Option<&Throttle>) -> io::Result<()> {
        let most = throttle.map_or(usize::MAX, |throttle| throttle.chunk_bytes).min(self.bytes.len());
        match stream.try_write(&self.bytes[..most]) {
            Ok(written) => self.bytes.advance(written),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        }
        self.gap = throttle.map(Throttle::gap);
        Ok(())
    }
}

struct Connection<'a> {
    shared: &'a Shared,
    orders: watch::Receiver<Orders>,
    orders_seen: Orders,
    number: u64,
    requests: u64,
    talk: ProtocolState,
    client: TcpStream,
    server: TcpStream,
    /// The server that the next request goes to.
    next_server: Option<SocketAddr>,
    to_server: Flow,
    to_client: Flow,
    throttle: Option<Throttle>,
    /// The response to the current request is not passed on, and ends the connection.
    cuts_response: bool,
    vanishes: bool,
}

pub(super) async fn run(client: TcpStream, number: u64, shared: &Shared) {
    let mut orders = shared.orders.subscribe();
    let orders_seen = *orders.borrow_and_update();
    let Ok(server) = TcpStream::connect(orders_seen.server).await else {
        return reset(&client);
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let mut connection = Connection {
        shared,
        orders,
        orders_seen,
        number,
        requests: 0,
        talk: ProtocolState::new(shared.protocol),
        client,
        server,
        next_server: None,
        to_server: Flow::default(),
        to_client: Flow::default(),
        throttle: None,
        cuts_response: false,
        vanishes: false,
    };
    let end = loop {
        match connection.step().await {
            Ok(None) => {}
            Ok(Some(end)) => break end,
            Err(_) => break End::Reset,
        }
    };
    if let End::Reset = end {
        reset(&connection.client);
        reset(&connection.server);
    }
}

/// Makes the other side see the end of the socket as an error.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

impl Connection<'_> {
    /// Waits until something can be done, and does it.
    async fn step(&mut self) -> io::Result<Option<End>> {
        let Self { orders, client, server, to_server, to_client, .. } = self;
        tokio::select! {
            order = orders.changed() => {
                if order.is_err() || self.read_orders() {
                    return Ok(Some(End::Reset));
                }
            }
            ready = client.readable(), if to_server.takes_more() => ready?,
            ready = server.readable(), if to_client.takes_more() => ready?,
            ready = server.writable(), if to_server.has_some_to_pass() => ready?,
            ready = client.writable(), if to_client.has_some_to_pass() => ready?,
            () = over(&mut to_server.delay), if to_server.delay.is_some() => to_server.delay = None,
            () = over(&mut to_server.gap), if to_server.gap.is_some() => to_server.gap = None,
            () = over(&mut to_client.delay), if to_client.delay.is_some() => to_client.delay = None,
            () = over(&mut to_client.gap), if to_client.gap.is_some() => to_client.gap = None,
        }
        if let Some(end) = self.read_request().await? {
            return Ok(Some(end));
        }
        if let Some(end) = self.read_response()? {
            return Ok(Some(end));
        }
        self.pass().await
    }

    /// Reads new orders. Returns whether to cut the connection.
    fn read_orders(&mut self) -> bool {
        let now = *self.orders.borrow_and_update();
        if now.follows > self.orders_seen.follows {
            self.next_server = Some(now.server);
        }
        let is_cut = now.cuts > self.orders_seen.cuts;
        self.orders_seen = now;
        is_cut
    }

    async fn read_request(&mut self) -> io::Result<Option<End>> {
        if !self.to_server.takes_more() {
            return Ok(None);
        }
        let mut arrived = BytesMut::with_capacity(8 << 10);
        match read(&self.client, &mut arrived)? {
            None => return Ok(None),
            // A connection that dropped everything has nothing more to send.
            Some(0) if self.vanishes => return Ok(Some(End::Closed)),
            Some(0) => self.to_server.is_finished = true,
            Some(_) if self.vanishes => return Ok(None),
            Some(_) => {}
        }
        if !arrived.is_empty() && self.talk.is_idle() {
            // Orders from before the request was sent apply to it.
            if self.orders.has_changed().unwrap_or(true) && self.read_orders() {
                return Ok(Some(End::Reset));
            }
            if let Some(server) = self.next_server.take() {
                self.follow(server).await?;
            }
            let fate = self.shared.fate(self.number, self.requests, &arrived);
            self.requests += 1;
            match fate {
                Fault::Pass => {}
                Fault::DelayRequest(pause) => self.to_server.delay = Some(pause),
                Fault::DelayResponse(pause) => self.to_client.delay = Some(pause),
                Fault::CutBefore => return Ok(Some(End::Reset)),
                Fault::CutAfter => self.cuts_response = true,
                Fault::HalfOpen => {
                    self.vanishes = true;
                    (self.to_server, self.to_client) = (Flow::default(), Flow::default());
                    return Ok(None);
                }
                Fault::Throttle(throttle) => self.throttle = Some(throttle),
            }
        }
        self.talk.client_sent(&arrived);
        self.to_server.bytes.unsplit(arrived);
        Ok(None)
    }

    fn read_response(&mut self) -> io::Result<Option<End>> {
        if !self.to_client.takes_more() {
            return Ok(None);
        }
        let mut arrived = BytesMut::with_capacity(8 << 10);
        match read(&self.server, &mut arrived)? {
            None => return Ok(None),
            Some(0) => {
                self.to_client.is_finished = true;
                // A server that disconnected before it answered: the client must not learn more than usual.
                return Ok(self.cuts_response.then_some(End::Reset));
            }
            Some(_) if self.vanishes => return Ok(None),
            Some(_) => {}
        }
        self.talk.server_sent(&arrived);
        if !self.cuts_response {
            self.to_client.bytes.unsplit(arrived);
        } else if self.talk.is_idle() {
            return Ok(Some(End::Reset));
        }
        Ok(None)
    }

    /// Passes on what is allowed, and the end of either side after its last byte.
    async fn pass(&mut self) -> io::Result<Option<End>> {
        if self.vanishes {
            return Ok(None);
        }
        if self.to_server.has_some_to_pass() {
            self.to_server.pass_to(&self.server, self.throttle.as_ref())?;
        }
        if self.to_client.has_some_to_pass() {
            self.to_client.pass_to(&self.client, self.throttle.as_ref())?;
        }
        if self.to_client.is_finished && self.to_client.bytes.is_empty() {
            return Ok(Some(End::Closed));
        }
        if self.to_server.is_finished && self.to_server.bytes.is_empty() {
            self.server.shutdown().await?;
        }
        Ok(None)
    }

    /// Continues with another server, which needs the same start-up messages.
    async fn follow(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut server = TcpStream::connect(address).await?;
        server.set_nodelay(true)?;
        if let Some(introduction) = self.talk.introduction() {
            let mut talk = ProtocolState::new(self.shared.protocol);
            talk.client_sent(&introduction);
            server.write_all(&introduction).await?;
            while !talk.is_idle() {
                let mut answer = BytesMut::with_capacity(8 << 10);
                if server.read_buf(&mut answer).await? == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                talk.server_sent(&answer);
            }
        }
        self.server = server;
        Ok(())
    }
}

async fn over(pause: &mut Option<Pause>) {
    if let Some(pause) = pause {
        pause.await;
    }
}

/// What can be read without waiting: `None` if nothing, zero bytes at the end.
fn read(stream: &TcpStream, into: &mut BytesMut) -> io::Result<Option<usize>> {
    match stream.try_read_buf(into) {
        Ok(length) => Ok(Some(length)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}
