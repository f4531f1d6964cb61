//! Replaces the hashing secret if the configuration asks for it. [`rotation`] refuses every step that is not safe yet,
//! however many nodes try.

use super::ServeError;
use semel::core::store::Store;
use semel::secrets::{Bounded, Error, Phase, rotation};
use semel::{Clock, SystemClock, SystemRandom};
use std::sync::Arc;
use std::time::Duration;
use tracing::{error, info};

/// The pause between two tries.
const PAUSE: Duration = Duration::from_secs(10);
/// The same while records are moved, because checking that reads every record.
const PAUSE_MOVING: Duration = Duration::from_mins(5);

/// The result of a try.
#[derive(Debug)]
enum Step {
    /// This phase has begun.
    Begun(Phase),
    /// This phase cannot end yet.
    Waits(Phase, Error),
    /// The new secret is in use.
    Over,
}

/// Replaces the store's secret with `next`, step by step, and returns when that is done.
pub(super) async fn run(store: Arc<dyn Store>, timeout: Duration, next: Vec<u8>) {
    let store = Bounded::new(&*store, &SystemClock, timeout);
    let mut last_line = String::new();
    loop {
        let (line, pause) = match step(store, &next).await {
            Ok(Step::Over) => {
                info!(
                    "the hashing secret was replaced: you can now write hashing_secret_next as hashing_secret"
                );
                return;
            }
            Ok(Step::Begun(phase)) => (format!("{phase}"), pause(phase)),
            Ok(Step::Waits(phase, why)) => (format!("{phase}; {why}"), pause(phase)),
            Err(why) if why.is_retryable() => (format!("not at this moment; {why}"), PAUSE),
            Err(why) => {
                error!(%why, "the hashing secret cannot be replaced");
                return;
            }
        };
        if line != last_line {
            info!("the hashing secret is being replaced: {line}");
            last_line = line;
        }
        SystemClock.sleep(pause).await;
    }
}

/// Withdraws an announced secret. Succeeds if none is announced; refused as soon as records use it.
pub(super) async fn withdraw(store: Bounded<'_>) -> Result<(), ServeError> {
    loop {
        return match rotation::withdraw(store).await {
            Ok(()) => {
                info!("the announced hashing secret was withdrawn; the one in use stays");
                Ok(())
            }
            // Another node was faster: look again.
            Err(Error::Changed) => continue,
            // Nothing is announced, as in a store without a secret. An unreadable secret is reported by the next to
            // open the store.
            Err(Error::Phase(Phase::Steady) | Error::Damaged(_) | Error::Newer(_)) => Ok(()),
            Err(Error::Phase(phase)) => Err(ServeError::SecretInUse(phase)),
            Err(other) => Err(ServeError::SecretNotWithdrawn(other)),
        };
    }
}

fn pause(phase: Phase) -> Duration {
    match phase {
        Phase::Announced | Phase::Settled => PAUSE,
        Phase::Moving => PAUSE_MOVING,
        // The last step was done: the next look only finds the end.
        Phase::Steady => Duration::ZERO,
    }
}

/// Takes the next step, if it is possible.
async fn step(store: Bounded<'_>, next: &[u8]) -> Result<Step, Error> {
    let phase = match rotation::announce(store, rotation::Next::Configured(next), &SystemRandom).await {
        Ok(()) => return Ok(Step::Begun(Phase::Announced)),
        Err(Error::Same) => return Ok(Step::Over),
        Err(Error::Phase(phase)) => phase,
        Err(other) => return Err(other),
    };
    let taken = match phase {
        Phase::Settled => rotation::finish(store).await.map(|()| Phase::Steady),
        Phase::Steady | Phase::Announced | Phase::Moving => rotation::advance(store).await,
    };
    match taken {
        Ok(phase) => Ok(Step::Begun(phase)),
        // Another node was faster: look again.
        Err(Error::Changed | Error::Phase(_)) => Ok(Step::Begun(phase)),
        Err(why @ (Error::NodesBehind(_) | Error::RecordsLeft(_) | Error::MarkersLeft(_))) => {
            Ok(Step::Waits(phase, why))
        }
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::memory;
    use semel::secrets::{Configured, RefreshSettings};

    fn bounded(store: &dyn Store) -> Bounded<'_> {
        Bounded::new(store, &SystemClock, Duration::from_secs(10))
    }

    #[tokio::test]
    async fn each_step_of_a_rotation_waits_for_every_node() {
        let (old, next) = ([1; 32], [2; 32]);
        let store: Arc<dyn Store> = Arc::new(memory::Store::new());
        let configured = Configured { secret: Some(&old), rotate_to: Some(&next) };
        let refresh = RefreshSettings::default();
        let opened = semel::secrets::open(
            Arc::clone(&store),
            configured,
            Arc::new(SystemClock),
            &SystemRandom,
            "a",
            refresh,
        );
        let node = opened.await.expect("a node");
        assert!(matches!(step(bounded(&*store), &next).await, Ok(Step::Begun(Phase::Announced))));
        let waits = step(bounded(&*store), &next).await;
        assert!(matches!(waits, Ok(Step::Waits(Phase::Announced, Error::NodesBehind(_)))), "{waits:?}");
        // Until records move, it can be withdrawn and announced again, any number of times.
        for _ in 0..2 {
            withdraw(bounded(&*store)).await.expect("taken back");
        }
        assert!(matches!(step(bounded(&*store), &next).await, Ok(Step::Begun(Phase::Announced))));
        // A node that is gone is not waited for.
        node.leave().await.expect("signed off");
        for phase in [Phase::Moving, Phase::Settled, Phase::Steady] {
            let begun = step(bounded(&*store), &next).await;
            assert!(matches!(begun, Ok(Step::Begun(found)) if found == phase), "{phase}: {begun:?}");
            let withdrawn = withdraw(bounded(&*store)).await;
            assert_eq!(withdrawn.is_ok(), phase == Phase::Steady, "{phase}: {withdrawn:?}");
        }
        assert!(matches!(step(bounded(&*store), &next).await, Ok(Step::Over)));
        // A node that has only the old secret is refused.
        let outdated = Configured { secret: Some(&old), rotate_to: None };
        let opened =
            semel::secrets::open(store, outdated, Arc::new(SystemClock), &SystemRandom, "b", refresh).await;
        assert!(matches!(opened, Err(Error::Unknown { .. })));
    }

    #[tokio::test]
    async fn a_store_without_a_secret_has_none_to_take_back() {
        withdraw(bounded(&memory::Store::new())).await.expect("nothing to withdraw");
    }
}
