//! Benchmarks, and measurements of memory use.
//!
//! **What lives here**: an allocator that counts, for tests of the core's memory use; the baseline for stores
//! ([`barelog`]); the [`sample`] records; and the measuring loop ([`meter`]). **What must never**: a timed
//! assertion. Speed is measured by benchmarks and reported as ratios.

pub mod barelog;
pub mod lifecycle;
pub mod meter;
pub mod sample;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

/// Counts what the calling thread allocates. Growing a block counts as holding the old and the new one at
/// once, which is the worst an allocator may do.
///
/// ```
/// use semel_bench::{Counting, measure};
///
/// #[global_allocator]
/// static ALLOCATOR: Counting = Counting;
///
/// let (made, cost) = measure(|| vec![0_u8; 1000]);
/// assert_eq!((made.len(), cost.bytes_max, cost.calls), (1000, 1000, 1));
/// ```
pub struct Counting;

impl Counting {
    fn add(bytes: usize) {
        NOW.set(NOW.get().wrapping_add(bytes));
        PEAK.set(PEAK.get().max(NOW.get()));
        CALLS.set(CALLS.get() + 1);
    }

    fn subtract(bytes: usize) {
        NOW.set(NOW.get().wrapping_sub(bytes));
    }
}

// SAFETY: every call is forwarded to the system's allocator unchanged; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::add(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        Self::subtract(layout.size());
        // SAFETY: `pointer` came from the same allocator with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::add(size);
        Self::subtract(layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The memory that some work used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// The most bytes it held at once.
    pub bytes_max: usize,
    /// How often it allocated.
    pub calls: usize,
}

/// Runs `work`, and returns what it allocated on this thread. Everything is zero unless [`Counting`] is the
/// global allocator.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = NOW.get();
    PEAK.set(before);
    let calls = CALLS.get();
    let result = work();
    (result, Cost { bytes_max: PEAK.get() - before, calls: CALLS.get() - calls })
}

/// How many bytes this thread has allocated and not freed. Only differences of this number are meaningful.
pub fn held_bytes() -> usize {
    NOW.get()
}
