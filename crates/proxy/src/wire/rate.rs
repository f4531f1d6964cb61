//! How slow a client may be: its bytes extend the time that it has left. Time counts only while somebody waits for it.

use semel::{Clock as _, SystemClock};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// The minimum number of bytes per second that a client has to send or read while it is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// 0 means no minimum.
    pub bytes_per_second: u32,
    /// How long a client may be behind.
    pub window: Duration,
}

impl Default for Rate {
    /// 1 KiB per second, over 30 seconds.
    fn default() -> Self {
        Self { bytes_per_second: 1024, window: Duration::from_secs(30) }
    }
}

impl Rate {
    /// How long `bytes` may take.
    fn time_for(self, bytes: usize) -> Duration {
        let micros = (bytes as u64).saturating_mul(1_000_000) / u64::from(self.bytes_per_second.max(1));
        Duration::from_micros(micros)
    }
}

/// How many windows ahead a client may be that is written to. At 1 KiB/s, 150 s: 150 KiB.
const AHEAD: u32 = 5;

/// The time that one client has left to send or read. Waiting for it uses time up, and its bytes add the time that
/// they may take at the minimum rate.
#[derive(Debug)]
pub(crate) struct Allowance {
    rate: Rate,
    /// How long it may be silent.
    silence_max: Duration,
    left: Duration,
    left_max: Duration,
    /// Since when it is waited for, in uptime.
    waiting: Option<(Duration, Pin<Box<Sleep>>)>,
}

impl Allowance {
    /// For a client that is read from.
    pub(crate) fn reading(rate: Rate, silence_max: Duration) -> Self {
        Self { rate, silence_max, left: rate.window, left_max: rate.window, waiting: None }
    }

    /// For a client that is written to. Its system reports reads in steps as large as its buffer, which is 128 KiB on
    /// most systems, so it may be further ahead than it may be behind.
    pub(crate) fn writing(rate: Rate, silence_max: Duration) -> Self {
        Self { left_max: rate.window * AHEAD, ..Self::reading(rate, silence_max) }
    }

    /// The client is waited for. Ready when that took too long; if its rate does not count, only silence does.
    pub(crate) fn poll_waiting(&mut self, context: &mut Context<'_>, rate_counts: bool) -> Poll<()> {
        let has_rate = rate_counts && self.rate.bytes_per_second > 0;
        let limit = if has_rate { self.left.min(self.silence_max) } else { self.silence_max };
        let (since, timer) =
            self.waiting.get_or_insert_with(|| (SystemClock.uptime(), Box::pin(sleep(limit))));
        loop {
            ready!(timer.as_mut().poll(context));
            let waited = SystemClock.uptime().saturating_sub(*since);
            // Its rate may have stopped counting since the timer was set.
            match limit.checked_sub(waited).filter(|rest| *rest > Duration::from_millis(1)) {
                Some(rest) => timer.set(sleep(rest)),
                None => return Poll::Ready(()),
            }
        }
    }

    /// The client has sent or read `bytes`, or need not at the moment. Waiting counts if its rate does.
    pub(crate) fn moved(&mut self, bytes: usize, rate_counts: bool) {
        if let Some((since, _)) = self.waiting.take()
            && rate_counts
        {
            let waited = SystemClock.uptime().saturating_sub(since);
            self.left = self.left.saturating_sub(waited);
        }
        if bytes > 0 && self.left < self.left_max {
            self.left = (self.left + self.rate.time_for(bytes)).min(self.left_max);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    const RATE: Rate = Rate { bytes_per_second: 1024, window: Duration::from_millis(100) };
    const LONG: Duration = Duration::from_mins(10);

    /// Waits for a silent client until its time is over.
    async fn over(allowance: &mut Allowance, rate_counts: bool) {
        poll_fn(|context| allowance.poll_waiting(context, rate_counts)).await;
    }

    #[tokio::test]
    async fn bytes_extend_the_time_up_to_its_maximum() {
        let mut allowance = Allowance::reading(RATE, LONG);
        assert_eq!(allowance.left, RATE.window);
        over(&mut allowance, true).await;
        allowance.moved(64, true);
        assert_eq!(
            allowance.left,
            Duration::from_micros(62_500),
            "what was left is used up, and 64 bytes are 1/16 s"
        );
        allowance.moved(1 << 20, true);
        assert_eq!(allowance.left, RATE.window);
        let mut ahead = Allowance::writing(RATE, LONG);
        ahead.moved(1 << 20, true);
        assert_eq!(ahead.left, RATE.window * AHEAD);
    }

    #[tokio::test]
    async fn without_a_rate_only_silence_counts() {
        let short = Duration::from_millis(20);
        let off = Rate { bytes_per_second: 0, ..RATE };
        for (rate, counts) in [(RATE, true), (RATE, false), (off, true)] {
            let mut allowance = Allowance::reading(Rate { window: LONG, ..rate }, short);
            over(&mut allowance, counts).await;
        }
        // With no rate to keep to, nothing is used up.
        let mut free = Allowance::reading(RATE, short);
        over(&mut free, false).await;
        free.moved(0, false);
        assert_eq!(free.left, RATE.window);
    }

    #[tokio::test]
    async fn a_client_whose_rate_stops_counting_gets_more_time() {
        let mut allowance = Allowance::reading(RATE, LONG);
        poll_fn(|context| {
            assert!(allowance.poll_waiting(context, true).is_pending());
            Poll::Ready(())
        })
        .await;
        let waited = tokio::time::timeout(RATE.window * 3, over(&mut allowance, false)).await;
        assert!(waited.is_err(), "its silence is not over yet");
    }
}
