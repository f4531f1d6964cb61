//! Upstreams that nobody here wrote: Node's server, which closes idle connections by its own clock, and Python's, which
//! speaks HTTP/1.0.

use crate::world::{ask, get, post, upstream};
use semel_gateway::upstream::{Options, Upstream};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server in a process of its own, ended with the test.
struct Foreign {
    child: Child,
    url: String,
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Foreign {
    /// Starts one that prints its port as its first line.
    fn start(program: &str, option: &str, source: &str) -> Self {
        let mut command = Command::new(program);
        let command = command.args([option, source]).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("it is installed");
        let mut port = String::new();
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        lines.read_line(&mut port).expect("a line");
        Self { child, url: format!("http://127.0.0.1:{}", port.trim()) }
    }

    fn upstream(&self) -> Upstream {
        upstream(&self.url, Options::default())
    }
}

/// Says nothing of its own about how long it keeps connections, and closes them after 20 ms: requests are spaced around
/// that, so that closes and requests meet as often as they can.
const NODE: &str = "
    const server = require('http').createServer((request, response) => {
        let length = 0;
        request.on('data', data => length += data.length);
        request.on('end', () => { response.removeHeader('keep-alive'); response.end(String(length)); });
    });
    server.keepAliveTimeout = 20;
    server.keepAliveTimeoutBuffer = 0;
    server.on('connection', socket => socket.setNoDelay(true));
    server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

#[tokio::test]
async fn a_node_server_that_closes_idle_connections_breaks_no_request() {
    let node = Foreign::start("node", "-e", NODE);
    let upstream = node.upstream();
    for round in 0..500_u64 {
        let reply = ask(&upstream, post("/", "12345")).await;
        assert_eq!(reply.expect("an answer").text(), "5", "round {round}");
        tokio::time::sleep(Duration::from_micros(16_000 + round % 50 * 200)).await;
    }
}

const PYTHON: &str = "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'to the end')
    def do_POST(self):
        body = self.rfile.read(int(self.headers['content-length']))
        self.send_response(201)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
";

#[tokio::test]
async fn a_python_server_of_http_1_0_is_understood() {
    let python = Foreign::start("python3", "-c", PYTHON);
    let upstream = python.upstream();
    for _ in 0..3 {
        assert_eq!(ask(&upstream, get("/")).await.expect("an answer").text(), "to the end");
        let reply = ask(&upstream, post("/", "charge")).await.expect("an answer");
        assert_eq!((reply.status, reply.text()), (201, "charge"));
    }
}
