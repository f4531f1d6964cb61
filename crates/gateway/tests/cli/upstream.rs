//! A service whose path selects its behavior.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// `/doubt` disconnects, `/busy` answers 429, `/hang` never answers, `/drip` starts a response that never ends, and
/// everything else is charged.
pub(crate) struct Upstream {
    pub(crate) address: SocketAddr,
    calls: Arc<AtomicUsize>,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl Upstream {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let (calls, held) = (Arc::new(AtomicUsize::new(0)), Arc::default());
        let (counted, holding) = (Arc::clone(&calls), Arc::clone(&held));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (counted, holding) = (Arc::clone(&counted), Arc::clone(&holding));
                std::thread::spawn(move || serve(stream, &counted, &holding));
            }
        });
        Self { address, calls, held }
    }

    /// How many requests arrived.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Waits until `count` requests hang.
    pub(crate) fn hanging(&self, count: usize) {
        super::world::until(|| lock(&self.held).len() >= count);
    }
}

fn lock(held: &Mutex<Vec<TcpStream>>) -> std::sync::MutexGuard<'_, Vec<TcpStream>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut stream: TcpStream, calls: &AtomicUsize, held: &Mutex<Vec<TcpStream>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    loop {
        let Some(path) = request(&mut reader) else { return };
        let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
        let response = match path.as_str() {
            "/doubt" => return,
            "/hang" => return lock(held).push(stream),
            "/drip" => {
                drop(stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\ncharge"));
                return lock(held).push(stream);
            }
            "/busy" => "HTTP/1.1 429 Too Many Requests\r\ncontent-length: 0\r\n\r\n".to_owned(),
            _ => {
                let body = format!("charge {call}");
                format!(
                    "HTTP/1.1 201 Created\r\nlocation: {path}/{call}\r\ncontent-length: {}\r\n\r\n{body}",
                    body.len()
                )
            }
        };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

/// Reads a complete request, and returns its path.
pub(crate) fn request(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    first.split(' ').nth(1).map(str::to_owned)
}
