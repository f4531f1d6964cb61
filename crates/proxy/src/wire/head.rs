//! The lines of a head or a trailer section, and what they say about the message's length. A line is judged when it is
//! complete, so the verdict does not depend on how the bytes arrived.

use super::line::{self, Framing};
use super::refusal::MessageRefusal;
use super::scanner::Limits;
use std::ops::Range;

/// Empty lines that are accepted before a request; some old clients send one after a body.
const EMPTY_LINES_MAX: u8 = 4;
/// Trailers are few and short.
const TRAILER_BYTES_MAX: usize = 8 * 1024;
const TRAILERS_MAX: usize = 64;

/// The framing of the rest of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    Length(u64),
    Chunked,
}

/// A complete head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Complete {
    /// Its length in bytes, including empty lines before it.
    pub(super) bytes: usize,
    pub(super) body: Body,
    /// Whether it asks for an upgrade.
    pub(super) wants_upgrade: bool,
}

/// The start of the next line, and how far its end was searched for.
#[derive(Debug, Clone, Default)]
struct Lines {
    begin: usize,
    searched: usize,
}

impl Lines {
    /// The next complete line, without its end.
    fn next(&mut self, bytes: &[u8]) -> Option<Range<usize>> {
        let Some(at) = bytes[self.searched..].iter().position(|byte| *byte == b'\n') else {
            self.searched = bytes.len();
            return None;
        };
        let end = self.searched + at + 1;
        let begin = std::mem::replace(&mut self.begin, end);
        self.searched = end;
        Some(begin..end)
    }
}

/// An incomplete head.
#[derive(Debug, Clone, Default)]
pub(super) struct Head {
    lines: Lines,
    empty_lines: u8,
    request: Option<Request>,
}

#[derive(Debug, Clone, Default)]
struct Request {
    is_old: bool,
    authority: Option<(Range<usize>, &'static str)>,
    headers: usize,
    host: Option<Range<usize>>,
    length: Option<u64>,
    is_chunked: bool,
    wants_upgrade: bool,
}

impl Head {
    /// Scans the head: all of its bytes so far.
    pub(super) fn advance(
        &mut self,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<Complete>, MessageRefusal> {
        loop {
            let first = bytes.get(self.lines.begin).copied();
            if self.request.is_none()
                && first.is_some_and(|byte| !line::is_token(byte) && !matches!(byte, b'\r' | b'\n'))
            {
                return Err(MessageRefusal::RequestLine);
            }
            let line = self.lines.next(bytes);
            if line.as_ref().map_or(bytes.len(), |line| line.end) > limits.head_bytes_max {
                return Err(MessageRefusal::HeadTooLarge);
            }
            let Some(line) = line else { return Ok(None) };
            if let Some(body) = self.line(bytes, line.clone(), limits)? {
                let request = self.request.take().unwrap_or_default();
                let wants_upgrade = request.wants_upgrade;
                return Ok(Some(Complete { bytes: line.end, body, wants_upgrade }));
            }
        }
    }

    fn line(
        &mut self,
        bytes: &[u8],
        at: Range<usize>,
        limits: &Limits,
    ) -> Result<Option<Body>, MessageRefusal> {
        let content = line::content(&bytes[at.clone()])?;
        match &mut self.request {
            None if content.is_empty() => {
                self.empty_lines += 1;
                if self.empty_lines > EMPTY_LINES_MAX { Err(MessageRefusal::EmptyLines) } else { Ok(None) }
            }
            None => {
                let line = line::request_line(content)?;
                let authority =
                    line.authority.map(|(range, port)| (at.start + range.start..at.start + range.end, port));
                let (is_old, wants_upgrade) = (line.is_old, line.is_connect);
                self.request = Some(Request { is_old, authority, wants_upgrade, ..Request::default() });
                Ok(None)
            }
            Some(request) if content.is_empty() => request.end(bytes).map(Some),
            Some(request) => request.header(content, at.start, limits).map(|()| None),
        }
    }
}

impl Request {
    fn header(&mut self, content: &[u8], offset: usize, limits: &Limits) -> Result<(), MessageRefusal> {
        self.headers += 1;
        if self.headers > limits.headers_max {
            return Err(MessageRefusal::TooManyHeaders);
        }
        let (name, range) = line::field(content)?;
        let value = &content[range.clone()];
        match line::framing(name)? {
            Some(Framing::ContentLength) => self.length(value),
            Some(Framing::TransferEncoding) => self.coding(value),
            Some(Framing::Host) => {
                line::host(value)?;
                let host = offset + range.start..offset + range.end;
                self.host.replace(host).map_or(Ok(()), |_| Err(MessageRefusal::TwoHosts))
            }
            Some(Framing::Upgrade) => {
                self.wants_upgrade |= !self.is_old;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn length(&mut self, value: &[u8]) -> Result<(), MessageRefusal> {
        if self.is_chunked {
            return Err(MessageRefusal::LengthAndCoding);
        }
        let length = line::length(value)?;
        self.length.replace(length).map_or(Ok(()), |_| Err(MessageRefusal::TwoLengths))
    }

    fn coding(&mut self, value: &[u8]) -> Result<(), MessageRefusal> {
        if self.length.is_some() {
            return Err(MessageRefusal::LengthAndCoding);
        }
        if self.is_old {
            return Err(MessageRefusal::CodingInOldVersion);
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(MessageRefusal::Coding);
        }
        if std::mem::replace(&mut self.is_chunked, true) { Err(MessageRefusal::TwoCodings) } else { Ok(()) }
    }

    fn end(&self, bytes: &[u8]) -> Result<Body, MessageRefusal> {
        match (&self.host, &self.authority) {
            (None, _) if !self.is_old => return Err(MessageRefusal::NoHost),
            (Some(host), Some((authority, port)))
                if !line::is_same_host(&bytes[host.clone()], &bytes[authority.clone()], port) =>
            {
                return Err(MessageRefusal::OtherHost);
            }
            _ => {}
        }
        Ok(if self.is_chunked { Body::Chunked } else { Body::Length(self.length.unwrap_or(0)) })
    }
}

/// The lines after the last chunk.
#[derive(Debug, Clone, Default)]
pub(super) struct Trailers {
    lines: Lines,
    count: usize,
}

impl Trailers {
    /// Scans the trailers: all bytes after the last chunk's line. Returns their length when they are complete.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, MessageRefusal> {
        loop {
            let line = self.lines.next(bytes);
            if line.as_ref().map_or(bytes.len(), |line| line.end) > TRAILER_BYTES_MAX {
                return Err(MessageRefusal::Trailer);
            }
            let Some(line) = line else { return Ok(None) };
            let content = line::content(&bytes[line.clone()])?;
            if content.is_empty() {
                return Ok(Some(line.end));
            }
            let (name, _) = line::field(content)?;
            self.count += 1;
            if line::framing(name)?.is_some() || self.count > TRAILERS_MAX {
                return Err(MessageRefusal::Trailer);
            }
        }
    }
}
