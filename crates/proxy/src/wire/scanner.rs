//! The scanner: a state machine that decides which bytes of a connection may pass. It has no socket and no clock. No
//! part of a head passes before all of it was judged.

use super::chunked::Chunked;
use super::head::{Body, Head, Trailers};
use super::refusal::MessageRefusal;

/// The first bytes of a client with prior knowledge of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Limits for a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the request line and the headers, line ends included.
    pub head_bytes_max: usize,
    /// Header lines.
    pub headers_max: usize,
}

impl Default for Limits {
    /// 64 KiB and 100 lines.
    fn default() -> Self {
        Self { head_bytes_max: 64 * 1024, headers_max: 100 }
    }
}

/// What is spoken on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.0 or HTTP/1.1.
    Http1,
    /// HTTP/2, whose frames need no scanning.
    Http2,
}

/// Follows the messages of one connection from its first byte on.
///
/// The caller keeps the bytes that have not passed yet and passes them again, with new ones, to the next call: see
/// [`scan`](Self::scan). The result does not depend on how the bytes were split.
#[derive(Debug, Clone)]
pub struct Scanner {
    limits: Limits,
    phase: Phase,
    /// The current message asked for an upgrade.
    wants_upgrade: bool,
    messages: u64,
    protocol: Option<Protocol>,
}

#[derive(Debug, Clone)]
enum Phase {
    Head(Head),
    Length(u64),
    Chunked(Chunked),
    Trailers(Trailers),
    /// A message that asked for an upgrade has ended. The next message follows, or the new protocol.
    Undecided,
    /// No longer HTTP/1.
    Unscanned,
    Refused(MessageRefusal, bool),
}

impl Scanner {
    /// At the start of a connection.
    pub fn new(limits: Limits) -> Self {
        let phase = Phase::Head(Head::default());
        Self { limits, phase, wants_upgrade: false, messages: 0, protocol: None }
    }

    /// Scans `bytes`: everything that arrived and has not passed. Returns how many of them pass; the others wait for
    /// more bytes, for [`decide`](Self::decide), or were [refused](Self::refusal).
    pub fn scan(&mut self, bytes: &[u8]) -> usize {
        if self.protocol.is_none() && !self.recognise(bytes) {
            return 0;
        }
        let mut passed = 0;
        loop {
            let rest = &bytes[passed..];
            match self.step(rest) {
                Ok(Some(step)) => passed += step,
                Ok(None) => return passed,
                Err((step, refusal)) => {
                    let is_amid = !matches!(self.phase, Phase::Head(_));
                    self.phase = Phase::Refused(refusal, is_amid);
                    return passed + step;
                }
            }
        }
    }

    /// Scans one part of a message, and returns how many bytes pass. `None` if more bytes are needed, or none are
    /// left.
    fn step(&mut self, rest: &[u8]) -> Result<Option<usize>, (usize, MessageRefusal)> {
        if rest.is_empty() {
            return Ok(None);
        }
        match &mut self.phase {
            Phase::Head(head) => {
                let complete = head.advance(rest, &self.limits).map_err(|refusal| (0, refusal))?;
                let Some(complete) = complete else { return Ok(None) };
                self.messages += 1;
                self.wants_upgrade = complete.wants_upgrade;
                match complete.body {
                    Body::Length(0) => self.end(),
                    Body::Length(length) => self.phase = Phase::Length(length),
                    Body::Chunked => self.phase = Phase::Chunked(Chunked::new()),
                }
                Ok(Some(complete.bytes))
            }
            Phase::Length(left) => {
                let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                *left -= taken as u64;
                if *left == 0 {
                    self.end();
                }
                Ok(Some(taken))
            }
            Phase::Chunked(chunked) => {
                let progress = chunked.advance(rest);
                match progress.end {
                    Some(Err(refusal)) => return Err((progress.bytes, refusal)),
                    Some(Ok(())) => self.phase = Phase::Trailers(Trailers::default()),
                    None => {}
                }
                Ok(Some(progress.bytes))
            }
            Phase::Trailers(trailers) => {
                let bytes = trailers.advance(rest).map_err(|refusal| (0, refusal))?;
                if bytes.is_some() {
                    self.end();
                }
                Ok(bytes)
            }
            Phase::Unscanned => Ok(Some(rest.len())),
            Phase::Undecided | Phase::Refused(..) => Ok(None),
        }
    }

    /// Whether the protocol is known by now.
    fn recognise(&mut self, bytes: &[u8]) -> bool {
        if bytes.starts_with(PREFACE) {
            self.protocol = Some(Protocol::Http2);
            self.phase = Phase::Unscanned;
        } else if !PREFACE.starts_with(bytes) {
            self.protocol = Some(Protocol::Http1);
        }
        self.protocol.is_some()
    }

    fn end(&mut self) {
        self.phase = if self.wants_upgrade { Phase::Undecided } else { Phase::Head(Head::default()) };
    }

    /// Tells whether the upgrade was granted. If so, everything passes from now on; otherwise, the next message is
    /// scanned.
    pub fn decide(&mut self, is_granted: bool) {
        if !std::mem::take(&mut self.wants_upgrade) {
            return;
        }
        if is_granted {
            self.phase = Phase::Unscanned;
        } else if matches!(self.phase, Phase::Undecided) {
            self.end();
        }
    }

    /// Lets nothing more pass, for a reason outside the bytes.
    pub(super) fn refuse(&mut self, refusal: MessageRefusal) {
        if !matches!(self.phase, Phase::Unscanned | Phase::Refused(..)) {
            self.phase = Phase::Refused(refusal, !matches!(self.phase, Phase::Head(_)));
            self.protocol.get_or_insert(Protocol::Http1);
        }
    }

    /// Whether the current message asked for an upgrade that is not decided yet.
    pub fn is_undecided(&self) -> bool {
        self.wants_upgrade
    }

    /// Whether everything passes from here on.
    pub fn is_unscanned(&self) -> bool {
        matches!(self.phase, Phase::Unscanned)
    }

    /// Why nothing passes any more.
    pub fn refusal(&self) -> Option<MessageRefusal> {
        if let Phase::Refused(refusal, _) = self.phase { Some(refusal) } else { None }
    }

    /// Whether a message has begun to pass and has not ended, even if it was refused.
    pub fn is_amid_message(&self) -> bool {
        matches!(
            self.phase,
            Phase::Length(_) | Phase::Chunked(_) | Phase::Trailers(_) | Phase::Refused(_, true)
        )
    }

    /// The protocol, when the first bytes show it.
    pub fn protocol(&self) -> Option<Protocol> {
        self.protocol
    }

    /// How many heads have passed.
    pub fn messages(&self) -> u64 {
        self.messages
    }
}
