//! The second pass over a JSON body: write its canonical form.
//!
//! Walks a checked body in canonical order, without excluded values. It cannot fail: the first pass finds every error.

use std::ops::Range;

use super::super::pointer::Pointer;
use super::super::sink::Sink;
use super::check::Order;
use super::find::{find, next, skip, white_space};
use super::{number, string};

/// The excluded pointers that still apply at this depth: those in `range` whose first `depth` steps match.
#[derive(Clone)]
struct Excluded {
    range: Range<usize>,
    depth: usize,
}

/// Whether a member or element is excluded.
enum Exclusion {
    Out,
    In(Excluded),
}

pub(super) struct Emitter<'a, S> {
    bytes: &'a [u8],
    order: &'a Order,
    hint: usize,
    /// Sorted step by step, so that pointers into one value are neighbours.
    exclude: &'a [Pointer],
    sink: &'a mut S,
}

impl<'a, S: Sink> Emitter<'a, S> {
    pub(super) fn new(bytes: &'a [u8], order: &'a Order, exclude: &'a [Pointer], sink: &'a mut S) -> Self {
        Self { bytes, order, hint: 0, exclude, sink }
    }

    /// Writes the whole body.
    pub(super) fn document(&mut self) {
        let all = self.everything();
        self.value(white_space(self.bytes, 0), &all);
    }

    /// Writes the value that `pointer` names, or nothing and `false` where it is absent or excluded.
    pub(super) fn value_at(&mut self, pointer: &Pointer) -> bool {
        let Some(at) = find(self.bytes, pointer) else { return false };
        let mut excluded = self.everything();
        for step in pointer.steps() {
            match self.judge(&excluded, |candidate| candidate.cmp(step.as_str())) {
                Exclusion::Out => return false,
                Exclusion::In(below) => excluded = below,
            }
        }
        self.value(at, &excluded);
        true
    }

    fn everything(&self) -> Excluded {
        Excluded { range: 0..self.exclude.len(), depth: 0 }
    }

    /// Narrows `excluded` by one step. `compare` orders a candidate step against the one taken.
    fn judge(&self, excluded: &Excluded, compare: impl Fn(&str) -> std::cmp::Ordering) -> Exclusion {
        let depth = excluded.depth;
        let Range { start, end } = excluded.range;
        let candidates = &self.exclude[start..end];
        let step = |pointer: &Pointer| compare(&pointer.steps()[depth]);
        let low = start + candidates.partition_point(|pointer| step(pointer).is_lt());
        let high = start + candidates.partition_point(|pointer| step(pointer).is_le());
        match self.exclude[low..high].first() {
            // The shortest one sorts first, and may end here.
            Some(pointer) if pointer.steps().len() == depth + 1 => Exclusion::Out,
            _ => Exclusion::In(Excluded { range: low..high, depth: depth + 1 }),
        }
    }

    #[inline]
    fn value(&mut self, at: usize, excluded: &Excluded) -> usize {
        match self.bytes[at] {
            b'"' => string::write(self.bytes, at, self.sink),
            b'{' => self.object(at, excluded),
            b'[' => self.array(at, excluded),
            b't' | b'n' => {
                self.sink.write(&self.bytes[at..at + 4]);
                at + 4
            }
            b'f' => {
                self.sink.write(b"false");
                at + 5
            }
            _ => number::write(self.bytes, at, self.sink),
        }
    }

    fn array(&mut self, start: usize, excluded: &Excluded) -> usize {
        self.sink.push(b'[');
        let mut at = white_space(self.bytes, start + 1);
        let mut first = true;
        let mut index = 0_usize;
        while self.bytes[at] != b']' {
            let verdict = if excluded.range.is_empty() {
                Exclusion::In(excluded.clone())
            } else {
                let text = index.to_string();
                self.judge(excluded, |candidate| candidate.cmp(text.as_str()))
            };
            index += 1;
            at = match verdict {
                Exclusion::Out => skip(self.bytes, at),
                Exclusion::In(below) => {
                    if !first {
                        self.sink.push(b',');
                    }
                    first = false;
                    self.value(at, &below)
                }
            };
            at = next(self.bytes, at);
        }
        self.sink.push(b']');
        at + 1
    }

    fn object(&mut self, start: usize, excluded: &Excluded) -> usize {
        self.sink.push(b'{');
        let mut first = true;
        let mut at = white_space(self.bytes, start + 1);
        if let Some(mut place) = self.order.find(start, &mut self.hint) {
            // Members are not in body order; the object ends after the one that is last in the body.
            let mut end = at;
            loop {
                let (name, last) = self.order.member(place);
                end = end.max(self.member(name, &mut first, excluded));
                if last {
                    break;
                }
                place += 1;
            }
            at = white_space(self.bytes, end);
        } else {
            while self.bytes[at] == b'"' {
                let end = self.member(at, &mut first, excluded);
                at = next(self.bytes, end);
            }
        }
        self.sink.push(b'}');
        at + 1
    }

    #[inline]
    fn member(&mut self, name: usize, first: &mut bool, excluded: &Excluded) -> usize {
        let bytes = self.bytes;
        let below = if excluded.range.is_empty() {
            excluded.clone()
        } else {
            match self.judge(excluded, |candidate| string::compare_with(bytes, name, candidate).reverse()) {
                Exclusion::In(below) => below,
                Exclusion::Out => {
                    let colon = white_space(bytes, string::end(bytes, name));
                    return skip(bytes, white_space(bytes, colon + 1));
                }
            }
        };
        if !std::mem::take(first) {
            self.sink.push(b',');
        }
        let colon = white_space(bytes, string::write(bytes, name, self.sink));
        self.sink.push(b':');
        self.value(white_space(bytes, colon + 1), &below)
    }
}
