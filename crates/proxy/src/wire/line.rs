//! One line of a head: which bytes are allowed where.

use super::refusal::MessageRefusal;
use std::ops::Range;

/// `tchar` of RFC 9110.
const TOKEN: [bool; 256] = table(b"!#$%&'*+-.^_`|~");
/// What a host and its port are written with, percent signs and brackets included.
const HOST: [bool; 256] = table(b"-._~%!$&'()*+,;=:[]");

const fn table(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128_usize {
        #[expect(clippy::cast_possible_truncation, reason = "below 128")]
        let letter = (byte as u8).is_ascii_alphanumeric();
        table[byte] = letter;
        byte += 1;
    }
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
}

pub(super) fn is_token(byte: u8) -> bool {
    TOKEN[usize::from(byte)]
}

fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// A line without its end, which must be CR LF; `line` ends with LF.
pub(super) fn content(line: &[u8]) -> Result<&[u8], MessageRefusal> {
    line.strip_suffix(b"\r\n").ok_or(MessageRefusal::BareLineFeed)
}

/// A request line, as far as framing needs it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RequestLine {
    pub(super) is_old: bool,
    pub(super) is_connect: bool,
    /// Where the authority of an absolute target is in the line, and its default port.
    pub(super) authority: Option<(Range<usize>, &'static str)>,
}

pub(super) fn request_line(line: &[u8]) -> Result<RequestLine, MessageRefusal> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (Some(method), Some(target), Some(version)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(MessageRefusal::RequestLine);
    };
    let is_plain = |byte: &u8| *byte > b' ' && *byte != 0x7f;
    if method.is_empty() || !method.iter().all(|byte| is_token(*byte)) {
        return Err(MessageRefusal::RequestLine);
    }
    if target.is_empty() || !target.iter().all(is_plain) || !version.iter().all(is_plain) {
        return Err(MessageRefusal::RequestLine);
    }
    let is_old = match version {
        b"HTTP/1.1" => false,
        b"HTTP/1.0" => true,
        _ if version.starts_with(b"HTTP/") => return Err(MessageRefusal::Version),
        _ => return Err(MessageRefusal::RequestLine),
    };
    let is_connect = method == b"CONNECT";
    // Libraries remove it, but some services do not.
    if target.contains(&b'#') {
        return Err(MessageRefusal::Fragment);
    }
    let authority = if is_connect { None } else { authority(target, method.len() + 1) };
    if authority.as_ref().is_some_and(|(range, _)| line[range.clone()].contains(&b'@')) {
        return Err(MessageRefusal::UserInfo);
    }
    // Some parsers read anything else as a host, others as a path.
    let is_known = match target {
        _ if is_connect => host(target).is_ok(),
        [b'/', ..] => true,
        b"*" => method == b"OPTIONS",
        _ => authority.is_some(),
    };
    if is_known { Ok(RequestLine { is_old, is_connect, authority }) } else { Err(MessageRefusal::Target) }
}

fn authority(target: &[u8], offset: usize) -> Option<(Range<usize>, &'static str)> {
    let has_scheme = |scheme: &str| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme.as_bytes()))
    };
    let (start, port) = if has_scheme("http://") {
        (7, ":80")
    } else if has_scheme("https://") {
        (8, ":443")
    } else {
        return None;
    };
    let end = target[start..].iter().position(|byte| matches!(byte, b'/' | b'?' | b'#'));
    let end = end.map_or(target.len(), |at| start + at);
    Some((offset + start..offset + end, port))
}

/// Whether two authorities are equal, with this default port.
pub(super) fn is_same_host(one: &[u8], other: &[u8], port: &str) -> bool {
    let plain = |host: &[u8]| {
        let host = host.to_ascii_lowercase();
        host.strip_suffix(port.as_bytes()).map(<[u8]>::to_vec).unwrap_or(host)
    };
    one.eq_ignore_ascii_case(other) || plain(one) == plain(other)
}

/// A header line: its name, and where its value is in the line.
pub(super) fn field(line: &[u8]) -> Result<(&[u8], Range<usize>), MessageRefusal> {
    if matches!(line.first(), Some(b' ' | b'\t')) {
        return Err(MessageRefusal::Folding);
    }
    let colon = line.iter().position(|byte| !is_token(*byte));
    let Some(colon) = colon.filter(|at| *at > 0) else { return Err(MessageRefusal::HeaderName) };
    match line[colon] {
        b':' => {}
        b' ' | b'\t' if line[colon..].trim_ascii_start().starts_with(b":") => {
            return Err(MessageRefusal::SpaceBeforeColon);
        }
        _ => return Err(MessageRefusal::HeaderName),
    }
    let value = &line[colon + 1..];
    if let Some(control) = value.iter().find(|byte| is_control(**byte)) {
        return Err(if *control == b'\r' {
            MessageRefusal::BareCarriageReturn
        } else {
            MessageRefusal::ControlCharacter
        });
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let Some(start) = value.iter().position(|byte| !is_space(byte)) else {
        return Ok((&line[..colon], colon + 1..colon + 1));
    };
    let end = value.iter().rposition(|byte| !is_space(byte)).map_or(start, |at| at + 1);
    Ok((&line[..colon], colon + 1 + start..colon + 1 + end))
}

/// The headers that decide where a message ends and whom it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    ContentLength,
    TransferEncoding,
    Host,
    Upgrade,
}

/// Which of them a name is. Some programs behind the gateway treat an underscore as a hyphen.
pub(super) fn framing(name: &[u8]) -> Result<Option<Framing>, MessageRefusal> {
    let is = |known: &[u8]| name.eq_ignore_ascii_case(known);
    if is_disguised(name) {
        return Err(MessageRefusal::Disguised);
    }
    Ok(match name.len() {
        4 if is(b"host") => Some(Framing::Host),
        7 if is(b"upgrade") => Some(Framing::Upgrade),
        14 if is(b"content-length") => Some(Framing::ContentLength),
        17 if is(b"transfer-encoding") => Some(Framing::TransferEncoding),
        _ => None,
    })
}

/// Whether a name is that of a framing header, with an underscore.
pub(crate) fn is_disguised(name: &[u8]) -> bool {
    match name.len() {
        14 => name.eq_ignore_ascii_case(b"content_length"),
        17 => name.eq_ignore_ascii_case(b"transfer_encoding"),
        _ => false,
    }
}

/// A message's length: only digits, and not absurdly large.
pub(super) fn length(value: &[u8]) -> Result<u64, MessageRefusal> {
    if value.is_empty() || value.len() > 19 {
        return Err(MessageRefusal::Length);
    }
    let mut length: u64 = 0;
    for digit in value {
        if !digit.is_ascii_digit() {
            return Err(MessageRefusal::Length);
        }
        length = length * 10 + u64::from(digit - b'0');
    }
    if length > i64::MAX.cast_unsigned() { Err(MessageRefusal::Length) } else { Ok(length) }
}

pub(super) fn host(value: &[u8]) -> Result<(), MessageRefusal> {
    if value.iter().all(|byte| HOST[usize::from(*byte)]) { Ok(()) } else { Err(MessageRefusal::Host) }
}

/// A chunk extension's byte.
pub(super) fn is_extension(byte: u8) -> bool {
    !is_control(byte)
}
