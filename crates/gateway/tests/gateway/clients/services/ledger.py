"""A service on Python's own server. For every POST it writes a line into its ledger, and then answers with 32 bytes that
it never gives twice and the body that it got. Ends with its standard input."""

import http.server
import os
import sys
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        operation = self.headers.get("operation-id", "none")
        with open(sys.argv[1], "a") as ledger:
            ledger.write(f"{operation} {self.path} {len(body)}\n")
        answer = os.urandom(32) + body
        self.send_response(201)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(answer)))
        self.send_header("Location", "/charges/7")
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
threading.Thread(target=server.serve_forever, daemon=True).start()
sys.stdin.read()
