//! `multipart/form-data` bodies.
//!
//! Splits a body into parts and writes the relevant part of each. The boundary does not count: it is new for every
//! request. Parsers of multipart bodies differ in what they tolerate, so a body that two of them could split or name
//! differently is refused.
//!
//! The canonical form has these lines for each part, in order, where `N` is a length in bytes:
//!
//! ```text
//! part
//! name N:the name
//! filename N:the file name        or   filename -       where there is none
//! filename* N:as it was sent      only where it was sent
//! type N:the normal content type  or   type -
//! data N:the exact bytes
//! ```

use std::borrow::Cow;

use super::error::Error;
use super::media_type::{MediaType, Parameters, token};
use super::sink::Sink;

const SUBJECT: &str = "multipart body";

/// Longer than the standard allows, because such boundaries occur in practice.
const BOUNDARY_BYTES_MAX: usize = 256;

/// Enough for a field, a file and a type.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEAD_TOO_LONG: &str = "the header of a part is longer than 16 KiB";

fn malformed(problem: &'static str, position: usize) -> Error {
    Error::malformed(SUBJECT, problem, position)
}

/// Writes the parts of a body in canonical form.
pub(super) fn write<S: Sink>(body: &[u8], boundary: Option<&[u8]>, sink: &mut S) -> Result<(), Error> {
    let Some(boundary) = boundary.filter(|boundary| is_usable(boundary)) else {
        return Err(malformed("the content type has no valid boundary", 0));
    };
    let parts = Parts { body, boundary };
    let mut mark = parts.first_mark()?;
    while !mark.last {
        let head = Head::parse(body, mark.after)?;
        // The blank line after the header may also be the line break of the next boundary line.
        let next = match parts.mark_at(head.data, head.data)? {
            Some(next) => next,
            None => parts
                .mark_from(head.data)?
                .ok_or_else(|| malformed("no boundary line after a part", mark.after))?,
        };
        head.write(sink);
        field("data", Some(&body[head.data..next.start]), sink);
        mark = next;
    }
    match body[mark.after..].iter().position(|byte| !byte.is_ascii_whitespace()) {
        None => Ok(()),
        Some(odd) => Err(malformed("unexpected data after the last boundary line", mark.after + odd)),
    }
}

/// Parsers disagree about a boundary with a line break, or with a blank at its end.
fn is_usable(boundary: &[u8]) -> bool {
    let control = boundary.iter().any(u8::is_ascii_control);
    boundary.len() <= BOUNDARY_BYTES_MAX && !control && boundary.last().is_some_and(|byte| *byte != b' ')
}

/// A line that separates parts, including the line break before it.
struct Mark {
    start: usize,
    after: usize,
    last: bool,
}

struct Parts<'a> {
    body: &'a [u8],
    boundary: &'a [u8],
}

impl Parts<'_> {
    /// The first boundary line. Only one line break may precede it: parsers disagree about other text.
    fn first_mark(&self) -> Result<Mark, Error> {
        let dashes = if self.body.starts_with(b"\r\n") { 2 } else { 0 };
        self.mark_at(0, dashes)?.ok_or_else(|| malformed("the body does not start with the boundary", dashes))
    }

    /// The next boundary line. Boundaries contain no line breaks, so no byte is compared more than twice.
    fn mark_from(&self, from: usize) -> Result<Option<Mark>, Error> {
        let mut at = from;
        while let Some(len) = self.body[at..].iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
            at += len;
            let is_whole = self.body[at..].starts_with(b"\r\n");
            let line = at + if is_whole { 2 } else { 1 };
            match self.mark_at(at, line)? {
                // Some parsers treat either byte alone as a line break.
                Some(_) if !is_whole => {
                    return Err(malformed("the boundary follows an incomplete line break", line));
                }
                Some(mark) => return Ok(Some(mark)),
                None => at = line,
            }
        }
        Ok(None)
    }

    /// The boundary line whose dashes start at `dashes`, if there is one. A line that starts with the boundary and
    /// continues ends a part only for some parsers, and is refused.
    fn mark_at(&self, start: usize, dashes: usize) -> Result<Option<Mark>, Error> {
        let line = self.body[dashes..].strip_prefix(b"--").and_then(|rest| rest.strip_prefix(self.boundary));
        let Some(rest) = line else { return Ok(None) };
        let (rest, last) = rest.strip_prefix(b"--").map_or((rest, false), |rest| (rest, true));
        let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let behind = self.body.len() - rest.len() + blanks;
        match &rest[blanks..] {
            [b'\r', b'\n', ..] => Ok(Some(Mark { start, after: behind + 2, last })),
            [] if last => Ok(Some(Mark { start, after: behind, last })),
            _ => Err(malformed("a boundary line has other text after the boundary, or is cut short", behind)),
        }
    }
}

/// The relevant header lines of a part, with their positions.
#[derive(Default)]
struct Lines<'a> {
    disposition: Option<(&'a [u8], usize)>,
    content_type: Option<(&'a [u8], usize)>,
    transfer_encoding: Option<(&'a [u8], usize)>,
}

impl<'a> Lines<'a> {
    /// Stores one line, if it is relevant.
    fn take(&mut self, line: &'a [u8], start: usize) -> Result<(), Error> {
        if let Some(odd) = line.iter().position(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(malformed("control character in the header of a part", start + odd));
        }
        // A boundary line may contain a colon, but is not a header line.
        let Some((name, rest)) = token(line).filter(|_| !line.starts_with(b"--")) else {
            return Err(malformed("not a valid header line of a part", start));
        };
        let Some(value) = rest.strip_prefix(b":") else {
            return Err(malformed("a header line of a part has no colon", start));
        };
        let slot = match name.as_str() {
            "content-disposition" => &mut self.disposition,
            "content-type" => &mut self.content_type,
            "content-transfer-encoding" => &mut self.transfer_encoding,
            _ => return Ok(()),
        };
        match slot.replace((value.trim_ascii(), start)) {
            Some(_) => Err(malformed("a header of a part occurs twice", start)),
            None => Ok(()),
        }
    }
}

/// The header of a part.
struct Head {
    disposition: Disposition,
    content_type: Option<Vec<u8>>,
    /// Where the data starts.
    data: usize,
}

impl Head {
    fn parse(body: &[u8], start: usize) -> Result<Self, Error> {
        let end = body.len().min(start.saturating_add(HEAD_BYTES_MAX));
        let mut lines = Lines::default();
        let mut at = start;
        loop {
            let Some(len) = body[at..end].windows(2).position(|pair| pair == b"\r\n") else {
                let cut_short = end == body.len();
                let problem = if cut_short { "the body ends in the header of a part" } else { HEAD_TOO_LONG };
                return Err(malformed(problem, at));
            };
            let (line, line_start) = (&body[at..at + len], at);
            at += len + 2;
            if line.is_empty() {
                break;
            }
            lines.take(line, line_start)?;
        }
        let Some((disposition, disposition_at)) = lines.disposition else {
            return Err(malformed("a part has no Content-Disposition", start));
        };
        let disposition =
            Disposition::parse(disposition).map_err(|problem| malformed(problem, disposition_at))?;
        if let Some((encoding, encoding_at)) = lines.transfer_encoding
            && ![&b"7bit"[..], b"8bit", b"binary"].iter().any(|plain| encoding.eq_ignore_ascii_case(plain))
        {
            return Err(malformed(
                "a part has a Content-Transfer-Encoding that changes its bytes",
                encoding_at,
            ));
        }
        let content_type = lines.content_type.map(|(value, _)| {
            let media = MediaType::parse(value);
            let normal = media.as_ref().and_then(MediaType::normal);
            normal.map_or_else(|| value.to_vec(), Cow::into_owned)
        });
        Ok(Self { disposition, content_type, data: at })
    }

    fn write<S: Sink>(&self, sink: &mut S) {
        sink.write(b"part\n");
        field("name", Some(&self.disposition.name), sink);
        field("filename", self.disposition.filename.as_deref(), sink);
        if let Some(extended) = &self.disposition.filename_extended {
            field("filename*", Some(extended), sink);
        }
        field("type", self.content_type.as_deref(), sink);
    }
}

/// The field name and file name of a part.
struct Disposition {
    name: Vec<u8>,
    filename: Option<Vec<u8>>,
    filename_extended: Option<Vec<u8>>,
}

impl Disposition {
    /// Reads a `Content-Disposition`. Parameters that other parsers may use (above all `name*`) are refused.
    fn parse(text: &[u8]) -> Result<Self, &'static str> {
        let form_data = token(text).filter(|(kind, _)| kind == "form-data");
        let Some((_, rest)) = form_data else { return Err("a part's Content-Disposition is not form-data") };
        let (mut name, mut filename, mut filename_extended) = (None, None, None);
        for parameter in Parameters::new(rest) {
            let Some((parameter, value)) = parameter else {
                return Err("a part's Content-Disposition cannot be read");
            };
            let slot = match parameter.as_str() {
                "name" => &mut name,
                "filename" => &mut filename,
                "filename*" => &mut filename_extended,
                _ => {
                    return Err(
                        "a part's Content-Disposition has a parameter other than name, filename and filename*",
                    );
                }
            };
            if slot.replace(value).is_some() {
                return Err("a part's Content-Disposition has a duplicate parameter");
            }
        }
        let name = name.ok_or("a part's Content-Disposition has no name")?;
        Ok(Self { name, filename, filename_extended })
    }
}

fn field<S: Sink>(label: &str, value: Option<&[u8]>, sink: &mut S) {
    sink.write(label.as_bytes());
    match value {
        Some(value) => {
            sink.push(b' ');
            sink.write(value.len().to_string().as_bytes());
            sink.push(b':');
            sink.write(value);
            sink.push(b'\n');
        }
        None => sink.write(b" -\n"),
    }
}
