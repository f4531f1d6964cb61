//! Where a request ends, and where its response does.
//!
//! What lives here: as much of PostgreSQL's framing as that takes. What must never: what a message means beyond it.

use bytes::{Buf as _, Bytes, BytesMut};

/// How the proxy tells requests and responses apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// By turns: a request is what a client sends until the server sends something, and its response has come with the first bytes.
    Opaque,
    /// PostgreSQL without TLS. A request is what a client sends before the server is ready for a query again; its response has
    /// come when the server is. Under TLS the proxy goes by turns.
    Postgres,
}

/// What is known of the talk on one connection.
#[derive(Debug)]
pub(super) enum Talk {
    Turns { is_idle: bool },
    Postgres(Frames),
}

impl Talk {
    pub(super) fn new(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Opaque => Self::Turns { is_idle: true },
            Protocol::Postgres => Self::Postgres(Frames::default()),
        }
    }

    /// Whether every request has its response, so that whatever the client sends next is a new request.
    pub(super) fn is_idle(&self) -> bool {
        match self {
            Self::Turns { is_idle } => *is_idle,
            Self::Postgres(frames) => frames.is_idle(),
        }
    }

    pub(super) fn client_sent(&mut self, bytes: &[u8]) {
        match self {
            Self::Turns { is_idle } => *is_idle = false,
            Self::Postgres(frames) => frames.client_sent(bytes),
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
        }
    }

    /// What the client introduced itself to the server with, where that has to be said to another server as well.
    pub(super) fn introduction(&self) -> Option<Bytes> {
        match self {
            Self::Turns { .. } => None,
            Self::Postgres(frames) => frames.startup.clone(),
        }
    }
}

/// The codes of the messages that come before the one with the user's name.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSSAPI: u32 = 80_877_104;

/// Messages of one PostgreSQL connection, by their frames.
#[derive(Debug, Default)]
pub(super) struct Frames {
    from_client: BytesMut,
    from_server: BytesMut,
    startup: Option<Bytes>,
    /// An offer of encryption that was not answered yet: with one byte, not a message.
    is_offered: bool,
    is_encrypted: bool,
    /// How often the server still has to say that it is ready.
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

/// Takes one whole message: `tag` bytes, then a length that counts itself and what follows.
fn frame(buffer: &mut BytesMut, tag: usize) -> Option<Bytes> {
    let length = buffer.get(tag..tag + 4)?.get_u32();
    let length = tag + usize::try_from(length).ok()?.max(4);
    (buffer.len() >= length).then(|| buffer.split_to(length).freeze())
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
        let mut talk = Talk::new(Protocol::Postgres);
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

        // Two requests in one go: the first answer ends only the first.
        talk.client_sent(&[message(b"P", b"\0SELECT\0\0\0"), message(b"S", b"")].concat());
        talk.client_sent(&message(b"Q", b"SELECT 1\0"));
        talk.server_sent(&[message(b"D", b"ZZZZ"), ready.clone()].concat());
        assert!(!talk.is_idle());
        talk.server_sent(&ready);
        assert!(talk.is_idle());
    }

    #[test]
    fn an_offer_of_encryption_is_answered_by_one_byte() {
        let offer = message(b"", &TLS.to_be_bytes());
        let mut talk = Talk::new(Protocol::Postgres);
        talk.client_sent(&offer);
        assert!(!talk.is_idle() && talk.introduction().is_none());
        talk.server_sent(b"N");
        assert!(talk.is_idle());
        talk.client_sent(&startup());
        assert!(!talk.is_idle() && talk.introduction().is_some());

        let mut encrypted = Talk::new(Protocol::Postgres);
        encrypted.client_sent(&offer);
        encrypted.server_sent(b"S");
        encrypted.client_sent(b"\x16");
        assert!(!encrypted.is_idle());
        encrypted.server_sent(b"\x16");
        assert!(encrypted.is_idle(), "by turns from here on");
    }
}
