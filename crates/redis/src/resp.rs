//! Redis's wire protocol (RESP 2): encodes commands and decodes replies. It does not interpret them.

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// Deeper than any reply that the store gets.
const DEPTH_MAX: u32 = 8;
/// The longest string that a server can send, unless its limit was raised.
const BULK_BYTES_MAX: usize = 512 << 20;

/// A reply of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Nil,
    Number(i64),
    Bytes(Bytes),
    /// The text after the minus sign: a code in capitals, and a message.
    Error(String),
    Array(Vec<Value>),
}

impl Value {
    pub(crate) fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.bytes().and_then(|bytes| std::str::from_utf8(bytes).ok())
    }

    /// An integer, even if it was sent as text.
    pub(crate) fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    pub(crate) fn array(&self) -> &[Self] {
        match self {
            Self::Array(values) => values,
            _ => &[],
        }
    }
}

/// A text for people; empty if the reply is none.
pub(crate) fn text(value: &Value) -> String {
    value.bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
}

/// Appends a command with its arguments.
pub(crate) fn encode(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    out.extend_from_slice(format!("*{}\r\n", arguments.len()).as_bytes());
    for argument in arguments {
        out.extend_from_slice(format!("${}\r\n", argument.len()).as_bytes());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

/// The bytes of one command.
pub(crate) fn command(arguments: &[&[u8]]) -> Bytes {
    let mut out = Vec::with_capacity(arguments.iter().map(|argument| argument.len() + 16).sum());
    encode(&mut out, arguments);
    out.into()
}

/// Why bytes are not a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum Malformed {
    #[error("a number in the reply cannot be read")]
    Number,
    #[error("the reply is longer than a server can send")]
    TooLong,
    #[error("the reply is nested too deeply")]
    TooDeep,
    #[error("the reply has no type")]
    Untyped,
    #[error("the other side does not speak Redis's protocol")]
    OtherProtocol,
    #[error("the reply is cut short")]
    Cut,
}

/// Takes one complete reply from the front of the buffer; `None` if it is incomplete.
pub(crate) fn decode(buffer: &mut BytesMut) -> Result<Option<Value>, Malformed> {
    let Some(end) = measure(buffer, 0, 0)? else { return Ok(None) };
    let frame = buffer.split_to(end).freeze();
    let mut at = 0;
    Ok(Some(build(&frame, &mut at)?))
}

fn line(buffer: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let rest = buffer.get(at..)?;
    let length = rest.windows(2).position(|pair| pair == b"\r\n")?;
    Some((&rest[..length], at + length + 2))
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    text.ok_or(Malformed::Number)
}

/// A length; negative for a missing value.
fn length(digits: &[u8]) -> Result<Option<usize>, Malformed> {
    let length = usize::try_from(number(digits)?).ok();
    if length.is_some_and(|length| length > BULK_BYTES_MAX) {
        return Err(Malformed::TooLong);
    }
    Ok(length)
}

/// Where the reply that begins at `at` ends, if it is complete.
fn measure(buffer: &[u8], at: usize, depth: u32) -> Result<Option<usize>, Malformed> {
    if depth > DEPTH_MAX {
        return Err(Malformed::TooDeep);
    }
    let Some((head, next)) = line(buffer, at) else { return Ok(None) };
    let (kind, rest) = head.split_first().ok_or(Malformed::Untyped)?;
    match kind {
        b'+' | b'-' | b':' => Ok(Some(next)),
        b'$' => {
            let end = length(rest)?.map_or(next, |length| next + length + 2);
            Ok((buffer.len() >= end).then_some(end))
        }
        b'*' => {
            let mut end = next;
            for _ in 0..length(rest)?.unwrap_or(0) {
                match measure(buffer, end, depth + 1)? {
                    Some(after) => end = after,
                    None => return Ok(None),
                }
            }
            Ok(Some(end))
        }
        _ => Err(Malformed::OtherProtocol),
    }
}

/// The reply at `at` of a complete frame.
fn build(frame: &Bytes, at: &mut usize) -> Result<Value, Malformed> {
    let (head, next) = line(frame, *at).ok_or(Malformed::Cut)?;
    let (kind, rest) = head.split_first().ok_or(Malformed::Cut)?;
    *at = next;
    Ok(match kind {
        b'+' => Value::Bytes(frame.slice_ref(rest)),
        b'-' => Value::Error(String::from_utf8_lossy(rest).into_owned()),
        b':' => Value::Number(number(rest)?),
        b'$' => match length(rest)? {
            None => Value::Nil,
            Some(length) => {
                *at = next + length + 2;
                Value::Bytes(frame.slice(next..next + length))
            }
        },
        _ => match length(rest)? {
            None => Value::Nil,
            Some(length) => {
                let mut values = Vec::with_capacity(length.min(1024));
                for _ in 0..length {
                    values.push(build(frame, at)?);
                }
                Value::Array(values)
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_reply_is_waited_for() {
        let text = b"*5\r\n:7\r\n$3\r\na\r\n\r\n$-1\r\n-OOM no room\r\n*0\r\n+rest";
        let complete = text.len() - b"+rest".len();
        for length in 0..complete {
            let mut part = BytesMut::from(&text[..length]);
            assert_eq!(decode(&mut part), Ok(None), "after {length} bytes");
        }
        let mut buffer = BytesMut::from(&text[..]);
        let expected = Value::Array(vec![
            Value::Number(7),
            Value::Bytes(Bytes::from_static(b"a\r\n")),
            Value::Nil,
            Value::Error("OOM no room".to_owned()),
            Value::Array(Vec::new()),
        ]);
        assert_eq!(decode(&mut buffer), Ok(Some(expected)));
        assert_eq!(&buffer[..], b"+rest");
    }

    #[test]
    fn a_server_that_is_not_redis_is_refused() {
        for (text, why) in [
            ("HTTP/1.1 400\r\n", Malformed::OtherProtocol),
            ("$x\r\n", Malformed::Number),
            ("$99999999999\r\n", Malformed::TooLong),
            ("\r\n", Malformed::Untyped),
            (&"*1\r\n".repeat(20), Malformed::TooDeep),
        ] {
            assert_eq!(decode(&mut BytesMut::from(text)), Err(why), "{text:?}");
        }
    }

    #[test]
    fn arguments_are_sent_with_their_length() {
        assert_eq!(command(&[b"GET", b"a\r\nb"]), "*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n");
    }
}
