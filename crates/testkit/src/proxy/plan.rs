//! What happens to which request.

use crate::chance::mixed;
use crate::faults::Pause;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One request of a client, as a [`Plan`] sees it. The [`Protocol`](super::Protocol) defines where it ends.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The connection's number, in the order in which they were accepted.
    pub connection: u64,
    /// How many requests this connection had before.
    pub number: u64,
    /// How many requests all connections had before.
    pub total: u64,
    /// The bytes that have arrived so far.
    pub bytes: &'a [u8],
}

impl Request<'_> {
    /// Whether `part` is in the bytes that have arrived.
    pub fn contains(&self, part: &[u8]) -> bool {
        part.is_empty() || self.bytes.windows(part.len()).any(|window| window == part)
    }
}

/// What happens to a request.
#[derive(Debug)]
pub enum Fault {
    /// Nothing.
    Pass,
    /// It reaches the server after the pause, which starts now.
    DelayRequest(Pause),
    /// Its response reaches the client after the pause, which starts now.
    DelayResponse(Pause),
    /// The connection is reset and the server never sees a byte of the request.
    CutBefore,
    /// The server gets the request and answers it; the client gets no byte of the response, and its connection is
    /// reset.
    CutAfter,
    /// From here on, bytes are dropped in both directions. The connection stays open until the client closes it.
    HalfOpen,
    /// From here on the connection is slow in both directions.
    Throttle(Throttle),
}

/// How slow a connection is.
#[derive(Clone)]
pub struct Throttle {
    pub(super) chunk_bytes: usize,
    gap: Arc<dyn Fn() -> Pause + Send + Sync>,
}

impl Throttle {
    /// `chunk_bytes` (at least one) at a time, with a pause after each.
    pub fn new(chunk_bytes: usize, gap: impl Fn() -> Pause + Send + Sync + 'static) -> Self {
        Self { chunk_bytes: chunk_bytes.max(1), gap: Arc::new(gap) }
    }

    /// This many bytes per second, in twenty parts.
    pub fn bytes_per_second(bytes: usize) -> Self {
        Self::new(bytes.div_ceil(20), || Pause::of(Duration::from_millis(50)))
    }

    pub(super) fn gap(&self) -> Pause {
        (self.gap)()
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Throttle({} bytes at a time)", self.chunk_bytes)
    }
}

/// Decides what happens to each request. A closure is one.
pub trait Plan: Send + Sync + 'static {
    /// What happens to `request`.
    fn fate(&self, request: &Request<'_>) -> Fault;
}

impl<F: Fn(&Request<'_>) -> Fault + Send + Sync + 'static> Plan for F {
    fn fate(&self, request: &Request<'_>) -> Fault {
        self(request)
    }
}

/// Faults for one request after another, on any connection; requests after the last entry pass.
#[derive(Debug, Default)]
pub struct Script {
    lines: Mutex<VecDeque<Fault>>,
    part: Vec<u8>,
}

impl Script {
    /// Applies these to the next requests.
    pub fn new(lines: impl IntoIterator<Item = Fault>) -> Self {
        Self { lines: Mutex::new(lines.into_iter().collect()), part: Vec::new() }
    }

    /// Applies these to the next requests that [contain](Request::contains) `part`; all others pass.
    pub fn of(part: impl Into<Vec<u8>>, lines: impl IntoIterator<Item = Fault>) -> Self {
        Self { part: part.into(), ..Self::new(lines) }
    }
}

impl Plan for Script {
    fn fate(&self, request: &Request<'_>) -> Fault {
        if !request.contains(&self.part) {
            return Fault::Pass;
        }
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.pop_front().unwrap_or(Fault::Pass)
    }
}

/// How often each fault happens per thousand requests, and how strong it is. All other requests pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultRates {
    /// [`Fault::DelayRequest`] or [`Fault::DelayResponse`], for up to `delay_max`.
    pub delay: u16,
    /// [`Fault::CutBefore`].
    pub cut_before: u16,
    /// [`Fault::CutAfter`].
    pub cut_after: u16,
    /// [`Fault::HalfOpen`].
    pub half_open: u16,
    /// [`Fault::Throttle`], at 64 KiB in a second.
    pub throttle: u16,
    /// The longest delay.
    pub delay_max: Duration,
}

/// Random faults: the fault of a request depends on the seed, its connection's number and its own number on that
/// connection, so one connection does not affect another.
#[derive(Debug, Clone, Copy)]
pub struct Seeded {
    seed: u64,
    odds: FaultRates,
}

impl Seeded {
    /// Faults with these `odds`.
    pub const fn new(seed: u64, odds: FaultRates) -> Self {
        Self { seed, odds }
    }
}

impl Plan for Seeded {
    fn fate(&self, request: &Request<'_>) -> Fault {
        let FaultRates { delay, cut_before, cut_after, half_open, throttle, delay_max } = self.odds;
        let draw = mixed(self.seed ^ mixed(request.connection ^ mixed(request.number)));
        let mut roll = draw % 1_000;
        let mut strikes = |odds: u16| match roll.checked_sub(u64::from(odds)) {
            None => true,
            Some(left) => {
                roll = left;
                false
            }
        };
        if strikes(delay) {
            // Up to a thousand steps of a thousandth each.
            let steps = u32::try_from((draw >> 32) % 1_000).unwrap_or_default() + 1;
            let pause = Pause::of(delay_max / 1_000 * steps);
            return if draw >> 63 == 0 { Fault::DelayRequest(pause) } else { Fault::DelayResponse(pause) };
        }
        match () {
            () if strikes(cut_before) => Fault::CutBefore,
            () if strikes(cut_after) => Fault::CutAfter,
            () if strikes(half_open) => Fault::HalfOpen,
            () if strikes(throttle) => Fault::Throttle(Throttle::bytes_per_second(64 << 10)),
            () => Fault::Pass,
        }
    }
}
