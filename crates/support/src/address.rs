//! Addresses on which nothing listens.

use std::net::{Ipv4Addr, SocketAddr};
use tokio::net::TcpSocket;

/// An address of 127.0.0.1 that refuses connections. Until this is dropped, the system gives its port to nobody: a
/// port that is only looked up and released may belong to another process a moment later.
///
/// On Linux, a server that is started with exactly this address can listen on it meanwhile.
#[derive(Debug)]
pub struct ReservedAddress {
    address: SocketAddr,
    _socket: TcpSocket,
}

impl ReservedAddress {
    /// Reserves a free port.
    pub fn new() -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        // Two sockets can have one address if both allow it and at most one of them listens.
        socket.set_reuseaddr(true).expect("a setting");
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("a port");
        let address = socket.local_addr().expect("an address");
        Self { address, _socket: socket }
    }

    /// The address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Default for ReservedAddress {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn a_reserved_address_refuses_until_a_server_asks_for_it() {
        let reserved = ReservedAddress::new();
        let refused =
            async || TcpStream::connect(reserved.address()).await.expect_err("nothing listens").kind();
        assert_eq!(refused().await, ErrorKind::ConnectionRefused);
        if cfg!(target_os = "linux") {
            let listener = TcpListener::bind(reserved.address()).await.expect("it was asked for");
            TcpStream::connect(reserved.address()).await.expect("it listens");
            drop(listener);
            assert_eq!(refused().await, ErrorKind::ConnectionRefused);
        }
    }
}
