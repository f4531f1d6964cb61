//! Where a request and its response end.
//!
//! Parses only as much of PostgreSQL's and Redis's framing as this needs.

use bytes::{Buf as _, Bytes, BytesMut};

/// How the proxy distinguishes requests and responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// By turns: a request is everything that a client sends until the server sends something; the first bytes of the
    /// server complete the response.
    Opaque,
    /// PostgreSQL without TLS. A request is everything that a client sends before the server is ready for a query
    /// again; that completes the response. Under TLS, the proxy uses turns.
    Postgres,
    /// Redis without TLS. A request is everything that a client sends before the server has answered all earlier
    /// commands; its response is complete when all of it is answered. `SUBSCRIBE` counts as one command; later messages
    /// answer nothing.
    Redis,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) enum ProtocolState {
    Turns { is_idle: bool },
    Postgres(Frames),
    Redis(Commands),
}

impl ProtocolState {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Opaque => Self::Turns { is_idle: true },
            Protocol::Postgres => Self::Postgres(Frames::default()),
            Protocol::Redis => Self::Redis(Commands::default()),
        }
    }

    /// Whether every request has its response, so that the next bytes of the client are a new request.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Turns { is_idle } => *is_idle,
            Self::Postgres(frames) => frames.is_idle(),
            Self::Redis(commands) => commands.is_idle(),
        }
    }

    pub(super) fn client_sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Turns { is_idle } => *is_idle = false,
            Self::Postgres(frames) => frames.client_sent(bytes),
            Self::Redis(commands) => commands.client_sent(bytes),
        }
    }

    pub(super) fn server_sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Turns { is_idle } => *is_idle = true,
            Self::Postgres(frames) => {
                frames.server_sent(bytes);
                if frames.is_encrypted {
                    *self = Self::Turns { is_idle: true };
                }
            }
            Self::Redis(commands) => commands.server_sent(bytes),
        }
    }

    /// The client's start-up messages, if another server needs them too.
    pub(super) fn introduction(&self) -> Option<Bytes> {
        match self {
            Self::Turns { .. } | Self::Redis(_) => None,
            Self::Postgres(frames) => frames.startup.clone(),
        }
    }
}

/// The codes of messages before the one with the user's name.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSSAPI: u32 = 80_877_104;

/// Messages of one PostgreSQL connection, by their frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    from_client: BytesMut,
    from_server: BytesMut,
    startup: Option<Bytes>,
    /// An unanswered offer of encryption; the answer is one byte, not a message.
    is_offered: bool,
    is_encrypted: bool,
    /// How many times the server still has to report that it is ready.
    owed: u64,
}

impl Frames {
    fn is_idle(&self) -> bool {
        self.owed == 0 && !self.is_offered && self.from_client.is_empty() && self.from_server.is_empty()
    }

    fn client_sent(&mut self, bytes: &[u8]) {
        self.from_client.extend_from_slice(bytes);
        while self.startup.is_none() {
            let Some(message) = frame(&mut self.from_client, 0) else { return };
            match message.get(4..8).map(|mut code| code.get_u32()) {
                Some(TLS | GSSAPI) => self.is_offered = true,
                Some(CANCEL) => {}
                _ => {
                    self.startup = Some(message);
                    self.owed += 1;
                }
            }
        }
        while let Some(message) = frame(&mut self.from_client, 1) {
            // Query, Sync, FunctionCall.
            self.owed += u64::from(matches!(message[0], b'Q' | b'S' | b'F'));
        }
    }

    fn server_sent(&mut self, mut bytes: &[u8]) {
        if self.is_offered && !bytes.is_empty() {
            self.is_offered = false;
            self.is_encrypted = bytes.get_u8() != b'N';
        }
        self.from_server.extend_from_slice(bytes);
        while let Some(message) = frame(&mut self.from_server, 1) {
            // ReadyForQuery.
            self.owed = self.owed.saturating_sub(u64::from(message[0] == b'Z'));
        }
    }
}

/// Removes one complete message: `tag` bytes, then a length that includes itself.
fn frame(buffer: &mut BytesMut, tag: usize) -> Option<Bytes> {
    let length = buffer.get(tag..tag + 4)?.get_u32();
    let length = tag + usize::try_from(length).ok()?.max(4);
    (buffer.len() >= length).then(|| buffer.split_to(length).freeze())
}

/// Commands and replies of one Redis connection, counted.
#[derive(Debug, Default)]
pub(super) struct Commands {
    from_client: BytesMut,
    from_server: BytesMut,
    /// How many replies the server still has to send.
    owed: u64,
}

impl Commands {
    fn is_idle(&self) -> bool {
        self.owed == 0 && self.from_client.is_empty() && self.from_server.is_empty()
    }

    fn client_sent(&mut self, bytes: &[u8]) {
        self.from_client.extend_from_slice(bytes);
        while let Some(end) = frame_end(&self.from_client, 0) {
            self.from_client.advance(end);
            self.owed += 1;
        }
    }

    fn server_sent(&mut self, bytes: &[u8]) {
        self.from_server.extend_from_slice(bytes);
        while let Some(end) = frame_end(&self.from_server, 0) {
            self.from_server.advance(end);
            self.owed = self.owed.saturating_sub(1);
        }
    }
}

/// The end of the command or reply that starts at `at`, if it is complete.
fn frame_end(buffer: &[u8], at: usize) -> Option<usize> {
    let line = buffer.get(at..)?.windows(2).position(|pair| pair == b"\r\n")? + at;
    let number = || std::str::from_utf8(&buffer[at + 1..line]).ok()?.parse::<i64>().ok();
    let next = line + 2;
    match buffer[at] {
        b'$' => {
            let end = usize::try_from(number()?).map_or(next, |length| next + length + 2);
            (buffer.len() >= end).then_some(end)
        }
        b'*' => (0..number()?).try_fold(next, |end, _| frame_end(buffer, end)),
        _ => Some(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: &[u8], body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [tag, &length.to_be_bytes(), body].concat()
    }

    fn startup() -> Vec<u8> {
        message(b"", &[&196_608_u32.to_be_bytes()[..], b"user\0semel\0\0"].concat())
    }

    #[test]
    fn a_postgres_connection_is_idle_when_every_request_was_answered() {
        let mut talk = ProtocolState::new(Protocol::Postgres);
        let ready = message(b"Z", b"I");
        // Byte by byte, as it may arrive.
        for byte in startup() {
            talk.client_sent(&[byte]);
            assert!(!talk.is_idle());
        }
        talk.server_sent(&[message(b"R", &[0; 4]), ready[..3].to_vec()].concat());
        assert!(!talk.is_idle(), "half a message");
        talk.server_sent(&ready[3..]);
        assert!(talk.is_idle());
        assert_eq!(talk.introduction().as_deref(), Some(&startup()[..]));

        // Two requests at once: the first answer ends only the first.
        talk.client_sent(&[message(b"P", b"\0SELECT\0\0\0"), message(b"S", b"")].concat());
        talk.client_sent(&message(b"Q", b"SELECT 1\0"));
        talk.server_sent(&[message(b"D", b"ZZZZ"), ready.clone()].concat());
        assert!(!talk.is_idle());
        talk.server_sent(&ready);
        assert!(talk.is_idle());
    }

    #[test]
    fn a_redis_connection_is_idle_when_every_command_was_answered() {
        let mut talk = ProtocolState::new(Protocol::Redis);
        for byte in b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n*1\r\n*1\r\n$4\r\nPING\r\n" {
            talk.client_sent(&[*byte]);
            assert!(!talk.is_idle());
        }
        talk.server_sent(b"*2\r\n$-1\r\n:7\r\n+PO");
        assert!(!talk.is_idle(), "one of two was answered");
        talk.server_sent(b"NG\r\n");
        assert!(talk.is_idle());
    }

    #[test]
    fn an_offer_of_encryption_is_answered_by_one_byte() {
        let offer = message(b"", &TLS.to_be_bytes());
        let mut talk = ProtocolState::new(Protocol::Postgres);
        talk.client_sent(&offer);
        assert!(!talk.is_idle() && talk.introduction().is_none());
        talk.server_sent(b"N");
        assert!(talk.is_idle());
        talk.client_sent(&startup());
        assert!(!talk.is_idle() && talk.introduction().is_some());

        let mut encrypted = ProtocolState::new(Protocol::Postgres);
        encrypted.client_sent(&offer);
        encrypted.server_sent(b"S");
        encrypted.client_sent(b"\x16");
        assert!(!encrypted.is_idle());
        encrypted.server_sent(b"\x16");
        assert!(encrypted.is_idle(), "by turns from here on");
    }
}
