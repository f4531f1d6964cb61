//! A connection that loses a response.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards bytes between clients and the gateway. Cuts the connection that would carry the first response after the
/// effect; leaves later connections alone.
pub(crate) struct Lossy {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

struct State {
    to: SocketAddr,
    has_happened: Box<dyn Fn() -> bool + Send + Sync>,
    has_lost: AtomicBool,
    is_over: AtomicBool,
}

impl Lossy {
    /// `has_happened` reports whether the effect exists.
    pub(crate) fn new(to: SocketAddr, has_happened: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            to,
            has_happened: Box::new(has_happened),
            has_lost: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.forward(&client));
            }
        });
        Self { address, state }
    }

    /// Whether an answer was lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.state.has_lost.load(Ordering::SeqCst)
    }
}

impl State {
    fn forward(&self, client: &TcpStream) {
        let Ok(server) = TcpStream::connect(self.to) else { return };
        std::thread::scope(|scope| {
            scope.spawn(|| copy(client, &server, || true));
            copy(&server, client, || {
                let is_lost = (self.has_happened)() && !self.has_lost.swap(true, Ordering::SeqCst);
                !is_lost
            });
        });
    }
}

/// Copies until the end, or until `goes_on` returns false; after that, nothing is forwarded.
fn copy(mut from: &TcpStream, mut to: &TcpStream, goes_on: impl Fn() -> bool) {
    let mut chunk = [0; 16 * 1024];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(length) if goes_on() && to.write_all(&chunk[..length]).is_ok() => {}
            _ => {
                let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                return;
            }
        }
    }
}

impl Drop for Lossy {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::SeqCst);
        // Wakes tasks that wait for a client.
        drop(TcpStream::connect(self.address));
    }
}
