//! The first pass over a JSON body: check the syntax and find the order of members.
//!
//! The grammar, and an [`Order`] with the start of each member of every object whose members are not sorted. A member
//! takes four bytes, whatever its size.
//!
//! Memory: both tables are allocated once, at a size that the body itself bounds. A member takes at least four
//! bytes of body and has a colon, so the members' table takes at most as many bytes as the body; an object with
//! two members takes at least eleven bytes, so eight bytes for each make at most three quarters of the body.

use super::super::error::{Error, ErrorKind};
use super::{DEPTH_MAX, Problem, SUBJECT, number, string};

/// Marks the last member of an object in the table.
const LAST: u32 = 1 << 31;

/// Positions are held in 31 bits.
const BODY_BYTES_END: usize = LAST as usize;

/// The canonical order of the members of a checked body.
pub(super) struct Order {
    /// Positions of member names, object by object; [`LAST`] is set on the last of each.
    members: Vec<u32>,
    /// Objects with members out of order: where the object starts, and where its members start in `members`.
    objects: Vec<(u32, u32)>,
}

impl Order {
    /// The place of the object that starts at `start`, if it is in the table. The search begins at `hint` and
    /// advances it, because objects are mostly looked up in order.
    #[inline]
    pub(super) fn find(&self, start: usize, hint: &mut usize) -> Option<usize> {
        let key = narrow(start);
        let found = match self.objects.get(*hint) {
            Some((at, _)) if *at == key => *hint,
            Some((at, _)) if *at > key && hint.checked_sub(1).is_none_or(|h| self.objects[h].0 < key) => {
                return None;
            }
            None if self.objects.is_empty() => return None,
            _ => match self.objects.binary_search_by_key(&key, |(at, _)| *at) {
                Ok(found) => found,
                Err(next) => {
                    *hint = next;
                    return None;
                }
            },
        };
        *hint = found + 1;
        Some(self.objects[found].1 as usize)
    }

    /// The position of the member name at `place`, and whether it is the object's last.
    #[inline]
    pub(super) fn member(&self, place: usize) -> (usize, bool) {
        let member = self.members[place];
        ((member & !LAST) as usize, member & LAST != 0)
    }
}

/// Positions fit: [`check`] refuses longer bodies.
#[expect(clippy::cast_possible_truncation, reason = "bodies are shorter than 2 GiB")]
fn narrow(position: usize) -> u32 {
    position as u32
}

/// Checks a whole body and returns the order of its members.
pub(super) fn check(body: &[u8]) -> Result<Order, Error> {
    if body.len() >= BODY_BYTES_END {
        return Err(Error::new(ErrorKind::TooLarge, SUBJECT, "bodies of 2 GiB or more are not supported"));
    }
    if let Err(error) = std::str::from_utf8(body) {
        return Err(Error::malformed(SUBJECT, "invalid UTF-8", error.valid_up_to()));
    }
    Checker::new(body).document().map_err(|Problem(problem, at)| Error::malformed(SUBJECT, problem, at))
}

/// How often `byte` occurs. Summed in small chunks, so that the compiler can vectorise it.
fn count(bytes: &[u8], byte: u8) -> usize {
    let pieces = bytes.chunks(usize::from(u8::MAX));
    pieces.map(|piece| usize::from(piece.iter().map(|b| u8::from(*b == byte)).sum::<u8>())).sum()
}

struct Checker<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    /// The first `done` entries are of finished objects; members of objects that are still open are at the end, from
    /// `open` on, the newest first. There are never more entries than colons.
    members: Vec<u32>,
    done: usize,
    open: usize,
    objects: Vec<(u32, u32)>,
}

impl<'a> Checker<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let members = count(bytes, b':').min(bytes.len() / 4 + 1);
        let objects = count(bytes, b'{').min(bytes.len() / 11 + 1);
        Self {
            bytes,
            at: 0,
            depth: 0,
            members: vec![0; members],
            done: 0,
            open: members,
            objects: Vec::with_capacity(objects),
        }
    }

    fn document(mut self) -> Result<Order, Problem> {
        self.white_space();
        self.value()?;
        self.white_space();
        if self.at < self.bytes.len() {
            return Err(Problem("unexpected data after the value", self.at));
        }
        // Inner objects end first, but the second pass looks up objects by their start.
        self.objects.sort_unstable();
        Ok(Order { members: self.members, objects: self.objects })
    }

    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    fn white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<(), Problem> {
        match self.peek() {
            Some(b'"') => self.at = string::check(self.bytes, self.at)?,
            Some(b'-' | b'0'..=b'9') => self.at = number::check(self.bytes, self.at)?,
            Some(b'{') => self.nested(Self::object)?,
            Some(b'[') => self.nested(Self::array)?,
            Some(b't') => self.word(b"true")?,
            Some(b'f') => self.word(b"false")?,
            Some(b'n') => self.word(b"null")?,
            Some(_) => return Err(Problem("expected a JSON value", self.at)),
            None => return Err(Problem("expected a JSON value, found the end of the body", self.at)),
        }
        Ok(())
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Problem> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(Problem("expected a JSON value", self.at));
        }
        self.at += word.len();
        Ok(())
    }

    fn nested(&mut self, inside: fn(&mut Self) -> Result<(), Problem>) -> Result<(), Problem> {
        if self.depth == DEPTH_MAX {
            return Err(Problem("more than 128 nested arrays and objects", self.at));
        }
        self.depth += 1;
        inside(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn array(&mut self) -> Result<(), Problem> {
        self.at += 1;
        self.white_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(());
        }
        loop {
            self.value()?;
            self.white_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(Problem("expected a comma or a closing bracket", self.at)),
            }
            self.white_space();
        }
        self.at += 1;
        Ok(())
    }

    fn object(&mut self) -> Result<(), Problem> {
        let start = self.at;
        let base = self.open;
        let mut in_order = true;
        self.at += 1;
        self.white_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(());
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(Problem("expected a member name in quotation marks", self.at));
            }
            let name = self.at;
            self.at = string::check(self.bytes, name)?;
            self.white_space();
            if self.peek() != Some(b':') {
                return Err(Problem("expected a colon after the member name", self.at));
            }
            self.at += 1;
            // Only now, because the table has room for as many members as there are colons.
            if in_order && self.open < base {
                let before = self.members[self.open] as usize;
                in_order = string::compare(self.bytes, before, name).is_lt();
            }
            self.open -= 1;
            self.members[self.open] = narrow(name);
            self.white_space();
            self.value()?;
            self.white_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(Problem("expected a comma or a closing brace", self.at)),
            }
            self.white_space();
        }
        self.at += 1;
        if !in_order {
            self.put_in_order(start, base)?;
        }
        self.open = base;
        Ok(())
    }

    /// Sorts the members of the object that has just ended, refuses equal names, and keeps the order.
    fn put_in_order(&mut self, start: usize, base: usize) -> Result<(), Problem> {
        let bytes = self.bytes;
        let members = &mut self.members[self.open..base];
        members.sort_unstable_by(|a, b| string::compare(bytes, *a as usize, *b as usize));
        for pair in members.windows(2) {
            if string::compare(bytes, pair[0] as usize, pair[1] as usize).is_eq() {
                let second = pair[0].max(pair[1]) as usize;
                return Err(Problem("two members of one object have the same name", second));
            }
        }
        members[base - self.open - 1] |= LAST;
        self.members.copy_within(self.open..base, self.done);
        self.objects.push((narrow(start), narrow(self.done)));
        self.done += base - self.open;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_from_any_hint_and_moves_it() {
        let body = br#"{"d":{"b":1,"a":2},"c":{"x":0},"b":[{"b":1,"a":2}],"a":{"b":1,"a":2}}"#;
        let order = check(body).expect("this is JSON");
        assert_eq!(order.objects.len(), 4, "all but one object are out of order");
        for start in 0..body.len() {
            let found = order.objects.iter().find(|(at, _)| *at as usize == start);
            let behind = order.objects.partition_point(|(at, _)| *at as usize <= start);
            for hint in 0..=order.objects.len() {
                let mut moved = hint;
                let place = order.find(start, &mut moved);
                assert_eq!(place, found.map(|(_, members)| *members as usize), "{start} from {hint}");
                assert_eq!(moved, behind, "{start} from {hint}");
            }
        }
        let order = check(b"[{}]").expect("this is JSON");
        assert_eq!(order.find(1, &mut 0), None);
    }

    #[test]
    fn bytes_are_counted_one_by_one_across_pieces() {
        for len in [0, 1, 254, 255, 256, 509, 510, 511, 10_000] {
            let colons = vec![b':'; len];
            assert_eq!((count(&colons, b':'), count(&colons, b'{')), (len, 0));
        }
        assert_eq!(count(&b"a:b".repeat(300), b':'), 300);
    }
}
