//! A blocking Redis client for tests, for the commands that an operator gives with `redis-cli`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// An answer of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedisReply {
    /// No value.
    Nil,
    /// A number.
    Number(i64),
    /// A string or a status.
    Bytes(Vec<u8>),
    /// An error.
    Error(String),
    /// Several answers.
    Array(Vec<RedisReply>),
}

impl RedisReply {
    /// The bytes of a string.
    ///
    /// # Panics
    /// If it is not a string.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes,
            other => panic!("expected a string, found {other:?}"),
        }
    }

    /// The same as text.
    ///
    /// # Panics
    /// If it is not a string.
    pub fn text(self) -> String {
        String::from_utf8(self.bytes()).expect("UTF-8")
    }

    /// A number.
    ///
    /// # Panics
    /// If it is not a number.
    pub fn number(self) -> i64 {
        match self {
            Self::Number(number) => number,
            other => panic!("expected a number, found {other:?}"),
        }
    }
}

/// A connection to a Redis server without TLS. Calls block, and panic if the connection breaks.
#[derive(Debug)]
pub struct RedisClient(BufReader<TcpStream>);

impl RedisClient {
    /// Connects to `HOST:PORT`; `None` if there is no answer.
    pub fn try_connect(address: &str) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        Some(Self(BufReader::new(stream)))
    }

    /// Connects to the first host of a `redis://` URL.
    ///
    /// # Panics
    /// If there is no answer.
    pub fn connect(url: &str) -> Self {
        let authority =
            url.split("//").nth(1).and_then(|rest| rest.split(['/', '?', ',']).next()).expect("a URL");
        let address = authority.rsplit('@').next().expect("a host");
        Self::try_connect(address).expect("the server answers")
    }

    /// Sends a command, and waits for the answer.
    ///
    /// # Panics
    /// If the connection breaks.
    pub fn ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> RedisReply {
        self.try_ask(arguments).expect("an answer")
    }

    /// The same; `None` if the connection breaks.
    pub fn try_ask<A: AsRef<[u8]>>(&mut self, arguments: &[A]) -> Option<RedisReply> {
        let mut bytes = format!("*{}\r\n", arguments.len()).into_bytes();
        for argument in arguments {
            let argument = argument.as_ref();
            bytes.extend(format!("${}\r\n", argument.len()).into_bytes());
            bytes.extend_from_slice(argument);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).ok()?;
        self.read()
    }

    fn read(&mut self) -> Option<RedisReply> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).ok()?;
        let text = String::from_utf8_lossy(line.strip_suffix(b"\r\n")?).into_owned();
        let rest = text.get(1..)?.to_owned();
        Some(match text.as_bytes().first()? {
            b'+' => RedisReply::Bytes(rest.into_bytes()),
            b'-' => RedisReply::Error(rest),
            b':' => RedisReply::Number(rest.parse().ok()?),
            b'$' => match usize::try_from(rest.parse::<i64>().ok()?) {
                Err(_) => RedisReply::Nil,
                Ok(length) => {
                    let mut bytes = vec![0; length + 2];
                    self.0.read_exact(&mut bytes).ok()?;
                    bytes.truncate(length);
                    RedisReply::Bytes(bytes)
                }
            },
            _ => match usize::try_from(rest.parse::<i64>().ok()?) {
                Err(_) => RedisReply::Nil,
                Ok(length) => RedisReply::Array((0..length).map(|_| self.read()).collect::<Option<_>>()?),
            },
        })
    }
}
