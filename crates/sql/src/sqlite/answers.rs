//! Answering the callers of a batch.
//!
//! Contents: the choice of the thread that does it. No answer is lost, even if a runtime ends.

use super::write::{Job, WriteAnswer};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Up to this many callers are answered by the writer's thread.
const RUNTIME_MIN: usize = 16;

/// The results of a batch for its callers. Sent when this is dropped.
struct Answers(Vec<(Job, WriteAnswer)>);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(job, answer)| job.answer(Ok(answer)));
    }
}

/// Answers all callers of a batch.
///
/// Waking a task from outside its runtime takes a lock, and often a system call to wake a thread: an eighth
/// of the writer's work. Inside the runtime, it is only a push to a queue. So the callers of one runtime are
/// answered by a task there, if the runtime has its own threads: a current-thread runtime may not be polled
/// at the moment. If the runtime ends first, the answers are sent on drop.
pub(super) fn send_all(batch: impl ExactSizeIterator<Item = (Job, WriteAnswer)>) {
    if batch.len() < RUNTIME_MIN {
        return drop(Answers(batch.collect()));
    }
    let mut rest = batch.peekable();
    let runtime = rest.peek().and_then(|(job, _)| job.runtime.clone());
    let Some(runtime) = runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
    else {
        return drop(Answers(rest.collect()));
    };
    let is_there = |(job, _): &(Job, WriteAnswer)| job.runtime.as_ref().map(Handle::id) == Some(runtime.id());
    let (there, elsewhere): (Vec<_>, Vec<_>) = rest.partition(is_there);
    let there = Answers(there);
    runtime.spawn(async move { drop(there) });
    drop(Answers(elsewhere));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::write::{Answer, Work};
    use semel_core::time::Time;
    use tokio::runtime::{Builder, Runtime};

    const MANY: usize = 4 * RUNTIME_MIN;

    fn asked(count: usize) -> (Vec<(Job, WriteAnswer)>, Vec<Answer>) {
        let ask = |_| {
            let (job, answer) = Job::new(Work::Inspect);
            ((job, WriteAnswer::Done(Time::from_millis(7))), answer)
        };
        (0..count).map(ask).unzip()
    }

    fn asked_in(runtime: &Runtime, count: usize) -> (Vec<(Job, WriteAnswer)>, Vec<Answer>) {
        let _inside = runtime.enter();
        asked(count)
    }

    fn assert_answered(answers: Vec<Answer>) {
        for answer in answers {
            assert!(matches!(answer.blocking_recv(), Ok(Ok(WriteAnswer::Done(_)))));
        }
    }

    fn threads() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().expect("a runtime")
    }

    #[test]
    fn every_request_is_answered_from_any_thread() {
        let (one, two) = (threads(), threads());
        let parts = [asked_in(&one, MANY), asked(MANY), asked_in(&two, MANY), asked_in(&one, 1)];
        let (batches, answers): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        send_all(batches.into_iter().flatten().collect::<Vec<_>>().into_iter());
        assert_answered(answers.into_iter().flatten().collect());
    }

    #[test]
    fn a_request_from_an_ended_runtime_is_answered() {
        let runtime = threads();
        let (batch, answers) = asked_in(&runtime, MANY);
        drop(runtime);
        send_all(batch.into_iter());
        assert_answered(answers);
    }

    #[test]
    fn a_runtime_that_must_be_polled_is_not_relied_upon() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (batch, answers) = asked_in(&runtime, MANY);
        send_all(batch.into_iter());
        assert_answered(answers);
    }
}
