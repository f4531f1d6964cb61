//! How those who wait for a batch are told.
//!
//! Contents: the choice of the thread that does it. Never here: an answer that is lost, whatever becomes of the place
//! where it was to be given.

use super::write::{Job, Said};
use tokio::runtime::{Handle, RuntimeFlavor};

/// Fewer than this are told by the thread that writes.
const TOGETHER_MIN: usize = 16;

/// What came of a batch, for everybody who waits for it. Told when this is dropped.
struct Answers(Vec<(Job, Said)>);

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|(job, said)| job.answer(Ok(said)));
    }
}

/// Tells everybody in a batch its result.
///
/// To wake a task from outside of its runtime takes a lock, and often a system call to wake the thread that runs it:
/// an eighth of what the thread that writes had to do. From inside it is a place in a queue. So those of one runtime
/// are told by a task there. Only if it has threads of its own: one that has to be driven may not be, while a task
/// that was made in it is waited for elsewhere. Should the runtime end before, the answers are given as they are
/// dropped.
pub(super) fn tell(batch: impl ExactSizeIterator<Item = (Job, Said)>) {
    if batch.len() < TOGETHER_MIN {
        return drop(Answers(batch.collect()));
    }
    let mut rest = batch.peekable();
    let runtime = rest.peek().and_then(|(job, _)| job.runtime.clone());
    let Some(runtime) = runtime.filter(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread)
    else {
        return drop(Answers(rest.collect()));
    };
    let is_there = |(job, _): &(Job, Said)| job.runtime.as_ref().map(Handle::id) == Some(runtime.id());
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

    const MANY: usize = 4 * TOGETHER_MIN;

    fn asked(count: usize) -> (Vec<(Job, Said)>, Vec<Answer>) {
        let ask = |_| {
            let (job, answer) = Job::new(Work::Inspect);
            ((job, Said::Done(Time::from_millis(7))), answer)
        };
        (0..count).map(ask).unzip()
    }

    fn asked_in(runtime: &Runtime, count: usize) -> (Vec<(Job, Said)>, Vec<Answer>) {
        let _inside = runtime.enter();
        asked(count)
    }

    fn assert_told(answers: Vec<Answer>) {
        for answer in answers {
            assert!(matches!(answer.blocking_recv(), Ok(Ok(Said::Done(_)))));
        }
    }

    fn threads() -> Runtime {
        Builder::new_multi_thread().worker_threads(1).build().expect("a runtime")
    }

    #[test]
    fn everybody_is_told_wherever_it_asked_from() {
        let (one, two) = (threads(), threads());
        let parts = [asked_in(&one, MANY), asked(MANY), asked_in(&two, MANY), asked_in(&one, 1)];
        let (batches, answers): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
        tell(batches.into_iter().flatten().collect::<Vec<_>>().into_iter());
        assert_told(answers.into_iter().flatten().collect());
    }

    #[test]
    fn whoever_asked_in_a_runtime_that_has_ended_is_told() {
        let runtime = threads();
        let (batch, answers) = asked_in(&runtime, MANY);
        drop(runtime);
        tell(batch.into_iter());
        assert_told(answers);
    }

    #[test]
    fn a_runtime_that_somebody_has_to_drive_is_not_relied_upon() {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        let (batch, answers) = asked_in(&runtime, MANY);
        tell(batch.into_iter());
        assert_told(answers);
    }
}
