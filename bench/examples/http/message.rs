//! The request and the response of every measurement, and reading one message from a connection. Every
//! response is checked before it is counted.

use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// The upstream's response to every request.
pub(crate) const RESPONSE: &[u8] = b"HTTP/1.1 201 Created\r\n\
    Content-Type: application/json\r\n\
    Location: /v1/payments/pay_4f0c2a\r\n\
    X-Request-Id: 0b6e5a1c9d27\r\n\
    Content-Length: 114\r\n\
    \r\n\
    {\"id\":\"pay_4f0c2a\",\"object\":\"payment\",\"amount\":1200,\"currency\":\"eur\",\"status\":\"succeeded\",\"customer\":\"cus_81d2b4\"}";

/// A request. Only its key changes.
#[derive(Clone)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    key_at: usize,
}

const KEY: &str = "00000000-0000-0000-0000-000000000000";

impl Request {
    pub(crate) fn new(host: &str) -> Self {
        let body =
            "{\"amount\":1200,\"currency\":\"eur\",\"customer\":\"cus_81d2b4\",\"order\":\"ord_77120\"}";
        let text = format!(
            "POST /v1/payments HTTP/1.1\r\nHost: {host}\r\nUser-Agent: shop/3.2\r\nAccept: application/json\r\n\
             Authorization: Bearer sk_test_4eC39HqLyjWDarjtT1zdp7dc\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {KEY}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let key_at = text.find(KEY).unwrap_or_default();
        Self { bytes: text.into_bytes(), key_at }
    }

    /// The request with the `number`th key. Keys are spread like random ones, so that records are not written
    /// in order.
    pub(crate) fn with_key(&mut self, number: u64) -> &[u8] {
        let (high, low) = (mixed(number), mixed(!number));
        let hex = format!("{high:016x}{low:016x}");
        let mut digits = hex.bytes();
        for byte in self.bytes[self.key_at..self.key_at + KEY.len()].iter_mut().filter(|byte| **byte != b'-')
        {
            *byte = digits.next().unwrap_or(b'0');
        }
        &self.bytes
    }
}

/// The finaliser of `SplitMix64`: it maps no two numbers to the same value.
fn mixed(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// The parts of a message's head that are used here.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) is_created: bool,
    pub(crate) is_replayed: bool,
    pub(crate) is_stored: bool,
    length: usize,
}

/// Reads one message and discards it. `None` at the end of the connection. No peer sends another message
/// before it is asked for.
pub(crate) async fn read(from: &mut (impl AsyncRead + Unpin), buffer: &mut [u8]) -> io::Result<Option<Head>> {
    let mut filled = 0;
    loop {
        let count = from.read(&mut buffer[filled..]).await?;
        if count == 0 {
            return if filled == 0 { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        filled += count;
        if let Some((head, end)) = head(&buffer[..filled])
            && filled >= end + head.length
        {
            return Ok(Some(head));
        }
    }
}

/// The head and its end, if it has arrived completely.
fn head(bytes: &[u8]) -> Option<(Head, usize)> {
    let mut head =
        Head { is_created: bytes.starts_with(b"HTTP/1.1 201"), is_stored: true, ..Head::default() };
    let mut at = 0;
    loop {
        let end = at + bytes[at..].iter().position(|byte| *byte == b'\n')?;
        let line = bytes[at..end].trim_ascii_end();
        at = end + 1;
        if line.is_empty() {
            return Some((head, at));
        }
        let is = |name: &[u8]| line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        match line[0] {
            b'c' | b'C' if is(b"content-length:") => {
                let digits = line[15..].trim_ascii();
                head.length = digits.iter().fold(0, |length, digit| length * 10 + usize::from(digit & 0xf));
            }
            b'i' | b'I' if is(b"idempotency-replayed:") => head.is_replayed = true,
            b'i' | b'I' if is(b"idempotency-stored:") => head.is_stored = false,
            _ => {}
        }
    }
}
