//! A single-threaded executor in virtual time, where a seed decides which task runs next.
//!
//! Has tasks, the nodes they belong to, timers, and ways to kill or pause a node. No thread, real clock or order apart
//! from the seed is involved. Ready tasks form a *set*: the order in which they were woken is dropped, because tokio's
//! channels partly choose it at random.

use super::chance::Chance;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// A future that can run.
pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a task belongs: it dies and pauses with its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskOwner {
    /// The outside world, which never fails.
    Outside,
    /// A node.
    Node(usize),
}

/// What a running task asks the executor to do as soon as the task yields.
enum Command {
    Kill(usize),
    Drop(u64),
}

/// A task's handle to its executor.
#[derive(Default)]
pub(crate) struct Handle {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    now: u64,
    sequence: u64,
    timers: BTreeMap<(u64, u64), Waker>,
    ready: BTreeSet<u64>,
    spawned: Vec<(u64, TaskOwner, Task)>,
    commands: Vec<Command>,
    /// Since when each node is paused, and for how long it was paused before.
    still: BTreeMap<usize, Option<u64>>,
    paused_for: BTreeMap<usize, u64>,
    /// Which task is being polled, and which tasks each has started.
    current: Option<u64>,
    children: BTreeMap<u64, Vec<u64>>,
}

impl Handle {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Virtual time since the start, in nanoseconds.
    pub(crate) fn now(&self) -> u64 {
        self.inner().now
    }

    /// Starts a task and returns its name.
    pub(crate) fn spawn(&self, home: TaskOwner, task: Task) -> u64 {
        let mut inner = self.inner();
        inner.sequence += 1;
        let id = inner.sequence;
        inner.spawned.push((id, home, task));
        if let Some(parent) = inner.current {
            inner.children.entry(parent).or_default().push(id);
        }
        id
    }

    /// Drops a task.
    pub(crate) fn cancel(&self, task: u64) {
        self.inner().commands.push(Command::Drop(task));
    }

    /// Drops a task and those that it has started.
    pub(crate) fn cancel_with_children(&self, task: u64) {
        let mut inner = self.inner();
        let children = inner.children.get(&task).cloned().unwrap_or_default();
        inner.commands.extend(children.into_iter().chain([task]).map(Command::Drop));
    }

    /// Drops every task of a node.
    pub(crate) fn kill(&self, node: usize) {
        let mut inner = self.inner();
        inner.commands.push(Command::Kill(node));
        inner.resume_node(node);
    }

    /// Pauses a node: its tasks do not run, but time passes.
    pub(crate) fn pause_node(&self, node: usize) {
        let mut inner = self.inner();
        let now = inner.now;
        inner.still.entry(node).or_default().get_or_insert(now);
    }

    pub(crate) fn resume_node(&self, node: usize) {
        self.inner().resume_node(node);
    }

    /// Whether a node is paused.
    pub(crate) fn is_paused(&self, node: usize) -> bool {
        self.inner().still.get(&node).copied().flatten().is_some()
    }

    /// How long a node was paused in total.
    pub(crate) fn paused_total(&self, node: usize) -> u64 {
        self.inner().paused_for.get(&node).copied().unwrap_or(0)
    }

    pub(crate) fn sleep(self: &Arc<Self>, span: Duration) -> Sleep {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let until = self.now().saturating_add(span);
        Sleep { handle: Arc::clone(self), until, timer: None }
    }
}

impl Inner {
    fn resume_node(&mut self, node: usize) {
        if let Some(since) = self.still.insert(node, None).flatten() {
            *self.paused_for.entry(node).or_default() += self.now - since;
        }
    }

    fn is_home_paused(&self, home: TaskOwner) -> bool {
        match home {
            TaskOwner::Outside => false,
            TaskOwner::Node(node) => self.still.get(&node).copied().flatten().is_some(),
        }
    }
}

/// A sleep in virtual time.
pub(crate) struct Sleep {
    handle: Arc<Handle>,
    until: u64,
    timer: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut inner = this.handle.inner();
        if inner.now >= this.until {
            return Poll::Ready(());
        }
        let timer = *this.timer.get_or_insert_with(|| {
            inner.sequence += 1;
            (this.until, inner.sequence)
        });
        inner.timers.insert(timer, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.handle.inner().timers.remove(&timer);
        }
    }
}

struct TaskWaker {
    id: u64,
    handle: Arc<Handle>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.handle.inner().ready.insert(self.id);
    }
}

struct Entry {
    home: TaskOwner,
    task: Task,
    waker: Waker,
}

/// Runs tasks until there is nothing left to do.
pub(crate) struct Executor {
    handle: Arc<Handle>,
    tasks: BTreeMap<u64, Entry>,
    chance: Chance,
}

/// Why the executor stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It was asked to.
    Asked,
    /// Nothing is ready, and no timer is set.
    NothingToDo,
    /// It ran for more steps than any history needs.
    TooLong,
}

impl Executor {
    pub(crate) fn new(seed: u64) -> Self {
        Self { handle: Arc::default(), tasks: BTreeMap::new(), chance: Chance::new(seed) }
    }

    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Runs until `enough` returns true, for at most so many steps.
    pub(crate) fn run(&mut self, steps_max: u64, enough: impl Fn() -> bool) -> Stopped {
        for _ in 0..steps_max {
            self.apply_orders();
            if enough() {
                return Stopped::Asked;
            }
            match self.next_ready() {
                Some(id) => self.step(id),
                None if self.pass_time() => {}
                None => return Stopped::NothingToDo,
            }
        }
        Stopped::TooLong
    }

    /// Drops every task.
    pub(crate) fn clear(&mut self) {
        self.tasks.clear();
        let mut inner = self.handle.inner();
        let (spawned, timers) = (std::mem::take(&mut inner.spawned), std::mem::take(&mut inner.timers));
        drop(inner);
        drop((spawned, timers));
    }

    /// Adds started tasks, and drops those to be dropped.
    fn apply_orders(&mut self) {
        loop {
            let mut inner = self.handle.inner();
            let spawned = std::mem::take(&mut inner.spawned);
            let commands = std::mem::take(&mut inner.commands);
            if spawned.is_empty() && commands.is_empty() {
                return;
            }
            inner.ready.extend(spawned.iter().map(|(id, ..)| *id));
            drop(inner);
            for (id, home, task) in spawned {
                let waker = Waker::from(Arc::new(TaskWaker { id, handle: Arc::clone(&self.handle) }));
                self.tasks.insert(id, Entry { home, task, waker });
            }
            for command in commands {
                match command {
                    Command::Drop(id) => drop(self.tasks.remove(&id)),
                    Command::Kill(node) => self.tasks.retain(|_, entry| entry.home != TaskOwner::Node(node)),
                }
            }
        }
    }

    /// One of the ready tasks, each with the same probability.
    fn next_ready(&mut self) -> Option<u64> {
        let mut inner = self.handle.inner();
        inner.ready.retain(|id| self.tasks.contains_key(id));
        let can_run = |id: &&u64| !inner.is_home_paused(self.tasks[id].home);
        let number = inner.ready.iter().filter(can_run).count();
        if number == 0 {
            return None;
        }
        let chosen = if number == 1 { 0 } else { self.chance.index(number) };
        let id = inner.ready.iter().filter(can_run).nth(chosen).copied()?;
        inner.ready.remove(&id);
        Some(id)
    }

    fn step(&mut self, id: u64) {
        let Some(entry) = self.tasks.get_mut(&id) else { return };
        let waker = entry.waker.clone();
        self.handle.inner().current = Some(id);
        if entry.task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            self.tasks.remove(&id);
            self.handle.inner().children.remove(&id);
        }
        self.handle.inner().current = None;
    }

    /// Advances to the next timer.
    fn pass_time(&self) -> bool {
        let mut inner = self.handle.inner();
        let Some(((at, _), _)) = inner.timers.first_key_value() else { return false };
        inner.now = (*at).max(inner.now);
        let later = (inner.now.saturating_add(1), 0);
        let not_yet = inner.timers.split_off(&later);
        let due = std::mem::replace(&mut inner.timers, not_yet);
        drop(inner);
        due.into_values().for_each(Waker::wake);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn ticking(handle: &Arc<Handle>, ticks: &Arc<AtomicU64>) -> Task {
        let (handle, ticks) = (Arc::clone(handle), Arc::clone(ticks));
        Box::pin(async move {
            for _ in 0..10 {
                handle.sleep(Duration::from_secs(1)).await;
                ticks.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    fn after(seconds: u64, handle: &Arc<Handle>, act: impl FnOnce(&Handle) + Send + 'static) {
        let own = Arc::clone(handle);
        handle.spawn(
            TaskOwner::Outside,
            Box::pin(async move {
                own.sleep(Duration::from_secs(seconds)).await;
                act(&own);
            }),
        );
    }

    #[test]
    fn a_killed_node_stops_and_others_continue() {
        let mut executor = Executor::new(1);
        let handle = Arc::clone(executor.handle());
        let (one, two) = (Arc::default(), Arc::default());
        handle.spawn(TaskOwner::Node(1), ticking(&handle, &one));
        handle.spawn(TaskOwner::Node(2), ticking(&handle, &two));
        handle.sleep(Duration::ZERO);
        after(3, &handle, |handle| handle.kill(1));
        assert_eq!(executor.run(1_000, || false), Stopped::NothingToDo);
        assert!((2..=3).contains(&one.load(Ordering::Relaxed)));
        assert_eq!(two.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn a_paused_node_continues_later() {
        let mut executor = Executor::new(1);
        let handle = Arc::clone(executor.handle());
        let ticks = Arc::default();
        handle.spawn(TaskOwner::Node(1), ticking(&handle, &ticks));
        after(3, &handle, |handle| handle.pause_node(1));
        after(50, &handle, |handle| handle.resume_node(1));
        executor.run(1_000, || false);
        assert_eq!(ticks.load(Ordering::Relaxed), 10);
        assert!(handle.now() >= 56_000_000_000, "{}", handle.now());
        assert_eq!(handle.paused_total(1), 47_000_000_000);
    }

    #[test]
    fn a_run_ends_when_every_task_waits() {
        let mut executor = Executor::new(1);
        executor.handle().spawn(TaskOwner::Outside, Box::pin(std::future::pending()));
        assert_eq!(executor.run(1_000, || false), Stopped::NothingToDo);
    }
}
