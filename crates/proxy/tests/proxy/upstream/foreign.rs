//! Real upstreams: Node's server, which closes idle connections after its own timeout, and Python's, which speaks
//! HTTP/1.0.

use super::world::{ask, get, post, upstream};
use semel_proxy::upstream::{Options, Upstream};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server in its own process, stopped when the test ends.
struct ServerProcess {
    child: Child,
    url: String,
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl ServerProcess {
    /// Starts a server that prints its port as its first line.
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

/// Keeps idle connections for a second, as announced, and answers with the number of accepted connections.
const NODE: &str = "
    let connections = 0;
    const server = require('http').createServer((request, response) => {
        request.resume();
        request.on('end', () => response.end(String(connections)));
    });
    server.keepAliveTimeout = 1000;
    server.on('connection', () => connections++);
    server.listen(0, '127.0.0.1', () => console.log(server.address().port));
";

#[tokio::test]
async fn a_node_server_that_closes_idle_connections_breaks_no_request() {
    let node = ServerProcess::start("node", "-e", NODE);
    // Fifty pools of one connection each; every second request is sent around the moment of the close.
    let clients = (0..50_u64).map(|client| {
        let upstream = node.upstream();
        tokio::spawn(async move {
            let mut connections = 0;
            for round in 0..10_u64 {
                let reply = ask(&upstream, post("/", "12345")).await;
                let reply =
                    reply.unwrap_or_else(|failure| panic!("client {client}, round {round}: {failure}"));
                connections = reply.text().parse().expect("a number");
                let pause = if round % 2 == 0 { 10 } else { 940 + client * 3 };
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            connections
        })
    });
    let clients: Vec<_> = clients.collect();
    let mut connections = 0;
    for client in clients {
        connections = connections.max(client.await.expect("no failure"));
    }
    assert!((51..500).contains(&connections), "{connections}: some were used again, some were not");
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
    let python = ServerProcess::start("python3", "-c", PYTHON);
    let upstream = python.upstream();
    for _ in 0..3 {
        assert_eq!(ask(&upstream, get("/")).await.expect("an answer").text(), "to the end");
        let reply = ask(&upstream, post("/", "charge")).await.expect("an answer");
        assert_eq!((reply.status, reply.text()), (201, "charge"));
    }
}
