//! nginx and `HAProxy` in front of the gateway, and what they retry by themselves.
//!
//! Both have two routes to the gateway, the first of which loses a response. They listen on Unix sockets, so no port is
//! needed.

use super::curl::{KEY, Seen, curl, curl_without_key};
use super::lossy::Lossy;
use super::process::Process;
use super::world::{Language, World};
use crate::tools;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::time::Duration;

/// A proxy, and what is behind it.
struct Front {
    _process: Process,
    lossy: Lossy,
    world: World,
}

impl Front {
    /// `extra` are settings for the connection to the gateway.
    fn nginx(extra: &str) -> Option<Self> {
        Self::new("nginx", &["-e", "front.log", "-p", ".", "-c", "front.conf"], |lossy, gateway| {
            format!(
                "daemon off; master_process off; pid nginx.pid; events {{ }}
                http {{
                    access_log off;
                    client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
                    upstream semel {{ server {lossy} max_fails=0; server {gateway} max_fails=0; }}
                    server {{
                        listen unix:front.sock;
                        client_max_body_size 10m;
                        location / {{
                            proxy_pass http://semel;
                            proxy_http_version 1.1;
                            proxy_set_header Host $host;
                            proxy_set_header Connection '';
                            proxy_read_timeout 75s;
                            {extra}
                        }}
                    }}
                }}"
            )
        })
    }

    /// The same for `HAProxy`.
    fn haproxy(extra: &str) -> Option<Self> {
        Self::new("haproxy", &["-db", "-f", "front.conf"], |lossy, gateway| {
            format!(
                "global\n  maxconn 100\n\
                 defaults\n  mode http\n  timeout connect 5s\n  timeout client 75s\n  timeout server 75s\n  \
                 retries 3\n  option redispatch\n  {extra}\n\
                 frontend front\n  bind unix@front.sock\n  default_backend semel\n\
                 backend semel\n  balance roundrobin\n  server one {lossy}\n  server two {gateway}\n"
            )
        })
    }

    fn new(
        program: &str,
        arguments: &[&str],
        settings: impl FnOnce(SocketAddr, SocketAddr) -> String,
    ) -> Option<Self> {
        let program = tools::program(program)?;
        let world = World::new(Language::InNode)?;
        let lossy = world.lossy();
        world.folder.write("front.conf", settings(lossy.address, world.gateway));
        let mut command = Command::new(program);
        let process = Process::start(command.args(arguments).current_dir(world.folder.path()));
        let socket = world.folder.join("front.sock");
        // Neither proxy reports when it is ready.
        let ready = (0..6_000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            UnixStream::connect(&socket).is_ok()
        });
        assert!(ready, "it does not listen");
        Some(Self { _process: process, lossy, world })
    }

    fn post(&self, key: Option<&str>) -> Option<Seen> {
        let order = ["--unix-socket", "front.sock", "--data", "amount=2500", "http://localhost/charges"];
        match key {
            Some(key) => curl(&self.world, key, &order),
            None => curl_without_key(&self.world, &order),
        }
    }

    /// The proxy returns an error when a response is lost; the client retries.
    fn assert_client_retries(self) {
        let Some(lost) = self.post(Some(KEY)) else { return };
        assert_eq!(lost.status, 502, "{}", lost.stderr);
        assert!(self.lossy.has_lost());
        let retried = self.post(Some(KEY)).expect("curl runs");
        assert_eq!((retried.status, retried.is_replay), (201, true), "{}", retried.stderr);
        assert_eq!(self.world.ledger().len(), 1);
    }

    /// The proxy itself retries; the ledger then has `lines` lines.
    fn assert_proxy_retries(self, key: Option<&str>, lines: usize) {
        let Some(seen) = self.post(key) else { return };
        assert!(self.lossy.has_lost());
        assert_eq!((seen.status, seen.is_replay), (201, key.is_some()), "{}", seen.stderr);
        assert_eq!(self.world.ledger().len(), lines);
    }
}

#[test]
fn nginx_by_default_leaves_a_lost_answer_to_the_client() {
    let Some(front) = Front::nginx("") else { return };
    front.assert_client_retries();
}

#[test]
fn nginx_without_retries_leaves_a_lost_response_to_the_client() {
    let Some(front) = Front::nginx("proxy_next_upstream off;") else { return };
    front.assert_client_retries();
}

#[test]
fn nginx_that_sends_everything_again_does_what_has_a_key_once() {
    for (key, lines) in [(Some(KEY), 1), (None, 2)] {
        let Some(front) = Front::nginx("proxy_next_upstream error timeout non_idempotent;") else { return };
        front.assert_proxy_retries(key, lines);
    }
}

#[test]
fn haproxy_by_default_leaves_a_lost_answer_to_the_client() {
    let Some(front) = Front::haproxy("") else { return };
    front.assert_client_retries();
}

#[test]
fn haproxy_that_sends_everything_again_does_what_has_a_key_once() {
    for (key, lines) in [(Some(KEY), 1), (None, 2)] {
        let Some(front) = Front::haproxy("retry-on all-retryable-errors") else { return };
        front.assert_proxy_retries(key, lines);
    }
}
