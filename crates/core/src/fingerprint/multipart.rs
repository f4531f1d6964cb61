//! `multipart/form-data` bodies.
//!
//! What lives here: cutting a body into parts and writing what counts of each. What must never: the boundary. It
//! is made up anew for every send, so it says nothing about the payload.
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

use super::error::Error;
use super::media_type::{MediaType, parameters, token};
use super::sink::Sink;

const SUBJECT: &str = "multipart body";

/// Longer boundaries than the standard allows are met in practice; endless ones are not.
const BOUNDARY_BYTES_MAX: usize = 256;

/// Writes the parts of a body in canonical form.
pub(super) fn write<S: Sink>(body: &[u8], boundary: Option<&[u8]>, sink: &mut S) -> Result<(), Error> {
    let boundary = match boundary {
        Some(boundary) if !boundary.is_empty() && boundary.len() <= BOUNDARY_BYTES_MAX => boundary,
        _ => return Err(Error::malformed(SUBJECT, "the content type names no usable boundary", 0)),
    };
    let parts = Parts { body, boundary };
    let Some(mut mark) = parts.first_mark() else {
        return Err(Error::malformed(SUBJECT, "no part starts with the boundary", 0));
    };
    while !mark.last {
        let head = Head::parse(body, mark.after)?;
        // The blank line under the head may itself be the line break of the next boundary line.
        let next = parts.mark_at(head.data, head.data).or_else(|| parts.mark_from(head.data));
        let Some(next) = next else {
            return Err(Error::malformed(SUBJECT, "a part is not ended by the boundary", mark.after));
        };
        head.write(sink);
        field("data", Some(&body[head.data..next.start]), sink);
        mark = next;
    }
    Ok(())
}

/// A line that separates parts: it takes the line break before it along.
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
    /// The first boundary line; what stands before it is not part of the payload.
    fn first_mark(&self) -> Option<Mark> {
        self.mark_at(0, 0).or_else(|| self.mark_from(0))
    }

    /// The next boundary line at the start of a line. Line breaks do not occur in boundaries, so that no byte is
    /// compared more than twice.
    fn mark_from(&self, from: usize) -> Option<Mark> {
        let mut at = from;
        loop {
            at += self.body.get(at..)?.iter().position(|byte| *byte == b'\r')?;
            if self.body.get(at + 1) == Some(&b'\n')
                && let Some(mark) = self.mark_at(at, at + 2)
            {
                return Some(mark);
            }
            at += 1;
        }
    }

    /// The boundary line whose dashes start at `dashes`, if there is one.
    fn mark_at(&self, start: usize, dashes: usize) -> Option<Mark> {
        let rest = self.body.get(dashes..)?.strip_prefix(b"--")?.strip_prefix(self.boundary)?;
        let behind = self.body.len() - rest.len();
        if rest.starts_with(b"--") {
            return Some(Mark { start, after: behind + 2, last: true });
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let line_break = rest[padding..].starts_with(b"\r\n");
        line_break.then_some(Mark { start, after: behind + padding + 2, last: false })
    }
}

/// What the lines above a part's data say.
struct Head {
    name: Vec<u8>,
    filename: Option<Vec<u8>>,
    filename_extended: Option<Vec<u8>>,
    content_type: Option<Vec<u8>>,
    /// Where the data starts.
    data: usize,
}

impl Head {
    fn parse(body: &[u8], start: usize) -> Result<Self, Error> {
        let mut disposition = None;
        let mut content_type = None;
        let mut at = start;
        loop {
            let Some(len) = body[at..].windows(2).position(|pair| pair == b"\r\n") else {
                return Err(Error::malformed(SUBJECT, "the body ends in the head of a part", at));
            };
            let line = &body[at..at + len];
            let line_start = at;
            at += len + 2;
            if line.is_empty() {
                break;
            }
            // A boundary line may hold a colon; it is still no header line.
            let Some((name, rest)) = token(line).filter(|_| !line.starts_with(b"--")) else {
                return Err(Error::malformed(SUBJECT, "this is not a header line of a part", line_start));
            };
            let Some(value) = rest.strip_prefix(b":") else {
                return Err(Error::malformed(SUBJECT, "a header line of a part has no colon", line_start));
            };
            let slot = match name.as_str() {
                "content-disposition" => &mut disposition,
                "content-type" => &mut content_type,
                _ => continue,
            };
            if slot.replace((value.trim_ascii(), line_start)).is_some() {
                return Err(Error::malformed(SUBJECT, "a header of a part occurs twice", line_start));
            }
        }
        let Some((disposition, disposition_at)) = disposition else {
            return Err(Error::malformed(SUBJECT, "a part has no Content-Disposition", start));
        };
        let content_type = content_type.map(|(value, _)| {
            MediaType::parse(value).map_or_else(|| value.to_vec(), |media| media.normal().into_owned())
        });
        Self::named(disposition, content_type, at).ok_or_else(|| {
            Error::malformed(SUBJECT, "a part's Content-Disposition gives no name", disposition_at)
        })
    }

    fn named(disposition: &[u8], content_type: Option<Vec<u8>>, data: usize) -> Option<Self> {
        let (kind, rest) = token(disposition)?;
        let (mut name, mut filename, mut filename_extended) = (None, None, None);
        for (parameter, value) in parameters(rest)? {
            let slot = match parameter.as_str() {
                "name" => &mut name,
                "filename" => &mut filename,
                "filename*" => &mut filename_extended,
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        if kind != "form-data" {
            return None;
        }
        Some(Self { name: name?, filename, filename_extended, content_type, data })
    }

    fn write<S: Sink>(&self, sink: &mut S) {
        sink.write(b"part\n");
        field("name", Some(&self.name), sink);
        field("filename", self.filename.as_deref(), sink);
        if self.filename_extended.is_some() {
            field("filename*", self.filename_extended.as_deref(), sink);
        }
        field("type", self.content_type.as_deref(), sink);
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
