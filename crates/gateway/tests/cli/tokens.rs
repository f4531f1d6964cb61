//! An admin address for other machines: only tokens from `semel key token` open it to `semel records`.

use crate::upstream::Upstream;
use crate::world::{Gateway, RunResult, Scratch, command, key, post, run, semel};
use serde_json::Value;

/// A new token, and its lines for the configuration file.
fn new_token(name: &str, roles: &[&str]) -> (String, String) {
    let roles = roles.iter().flat_map(|role| ["--role", *role]);
    let output = semel(&["key", "token", name].into_iter().chain(roles).collect::<Vec<_>>()).exits(0).out;
    let (token, lines) = output.split_once("\n\n").expect("a token and lines");
    (token.to_owned(), lines.to_owned())
}

/// A gateway whose admin address other machines can reach, and three tokens for it.
struct World {
    gateway: Gateway,
    scratch: Scratch,
    _upstream: Upstream,
    /// The flags that point `semel records` to it.
    target: Vec<String>,
    reader: String,
    operator: String,
    worker: String,
}

impl World {
    fn new(is_tls: bool) -> Self {
        let (scratch, upstream) = (Scratch::new(), Upstream::start());
        let mut config = format!(
            "[upstream]\nurl = \"http://{}\"\n[store]\nurl = '{}'\n[admin]\n",
            upstream.address,
            scratch.store()
        );
        let mut certificate = String::new();
        if is_tls {
            let issued =
                rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
            certificate = scratch.write("cert.pem", issued.cert.pem());
            let private = scratch.write("key.pem", issued.signing_key.serialize_pem());
            config = format!("{config}tls_cert = '{certificate}'\ntls_key = '{private}'\n");
        }
        let open = ["serve", "--listen", "127.0.0.1:0", "--admin", "0.0.0.0:0", "--config"];
        let unguarded = scratch.write("unguarded.toml", &config);
        let refused = semel(&[&open[..], &[&unguarded]].concat()).exits(1);
        for words in ["0.0.0.0:0", "can be reached from other machines", "semel key token"] {
            assert!(refused.err.contains(words), "{words} is not in {refused:?}");
        }
        assert!(!scratch.file().exists(), "the store was created");

        let (reader, reads) = new_token("reader", &["read"]);
        let (operator, operates) = new_token("ops", &["read", "operate"]);
        let (worker, claims) = new_token("worker", &["claim"]);
        let config =
            scratch.write("semel.toml", [&config, &reads, &operates, &claims].map(String::as_str).concat());
        let gateway = Gateway::start(&["--admin", "0.0.0.0:0", "--config", &config]);
        let admin = gateway.admin.expect("it has an admin address");
        assert!(admin.ip().is_unspecified(), "{admin}");
        let target = if is_tls {
            ["--admin", &format!("https://localhost:{}", admin.port()), "--ca", &certificate]
                .map(str::to_owned)
                .to_vec()
        } else {
            ["--admin", &format!("http://127.0.0.1:{}", admin.port())].map(str::to_owned).to_vec()
        };
        Self { gateway, scratch, _upstream: upstream, target, reader, operator, worker }
    }

    /// Runs `semel records` with this token.
    fn records(&self, token: Option<&str>, arguments: &[&str]) -> RunResult {
        let mut command_line = command(&["records"]);
        command_line.args(arguments).args(&self.target);
        if let Some(token) = token {
            command_line.env("SEMEL_ADMIN_TOKEN", token);
        }
        run(command_line)
    }

    /// A refused command prints the reason and exits with 1.
    fn is_refused(&self, token: Option<&str>, arguments: &[&str], why: &str) {
        let refused = self.records(token, arguments).exits(1);
        assert!(refused.err.contains(why) && refused.out.is_empty(), "{why} is not in {refused:?}");
        assert!(token.is_none_or(|token| !refused.err.contains(token)), "{refused:?}");
    }

    fn state(&self, id: &str) -> String {
        let shown = self.records(Some(&self.reader), &["show", id, "--json"]).exits(0).json();
        shown["state"].as_str().expect("a state").to_owned()
    }
}

fn last_actor(record: &Value) -> Option<&str> {
    record["history"].as_array()?.last()?["who"].as_str()
}

fn each_token_is_good_for_what_its_roles_say(is_tls: bool) {
    let world = World::new(is_tls);
    let post =
        |path: &str, number| post(world.gateway.address, path, Some(&key(number)), "{}").id().to_owned();
    let (doubted, busy) = (post("/doubt", 1), post("/busy", 2));
    let resolve = ["resolve", &doubted, "--outcome", "applied", "--reason", "it is in the ledger", "--json"];
    let release = ["release", &busy, "--reason", "the wrong amount", "--json"];
    let all: [&[&str]; 4] = [&["list"], &["show", &doubted], &resolve[..6], &release[..4]];
    for arguments in all {
        world.is_refused(None, arguments, "SEMEL_ADMIN_TOKEN");
        world.is_refused(
            Some("semel_of_nobody"),
            arguments,
            "The token is not one of those configured here.",
        );
    }
    for arguments in &all[..2] {
        world.is_refused(Some(&world.worker), arguments, "This needs the role read");
    }
    for arguments in &all[2..] {
        for token in [&world.reader, &world.worker] {
            world.is_refused(Some(token), arguments, "This needs the role operate");
        }
    }
    assert_eq!([&doubted, &busy].map(|id| world.state(id)), ["UNKNOWN", "FAILED_NOT_REPLAYABLE"]);

    let listed = world.records(Some(&world.reader), &["list", "--json"]).exits(0).json();
    let ids: Vec<_> =
        listed["records"].as_array().expect("a list").iter().map(|one| &one["operationId"]).collect();
    assert_eq!(ids, [doubted.as_str(), busy.as_str()]);
    let resolved = world.records(Some(&world.operator), &resolve).exits(0).json();
    assert_eq!((resolved["state"].as_str(), last_actor(&resolved)), (Some("SUCCEEDED"), Some("ops")));
    let released = world.records(Some(&world.operator), &release).exits(0).json();
    assert_eq!(last_actor(&released), Some("ops"));
    world.records(Some(&world.operator), &resolve).exits(4);
    // A token in a file, as a service manager provides it.
    let file = world.scratch.write("token", format!("{}\n", world.reader));
    world.records(None, &["show", &doubted, "--token-file", &file]).exits(0);
}

#[test]
fn each_token_allows_what_its_roles_say() {
    each_token_is_good_for_what_its_roles_say(false);
}

#[test]
fn over_tls_each_token_is_good_for_what_its_roles_say() {
    each_token_is_good_for_what_its_roles_say(true);
}

#[test]
fn a_token_is_sent_only_to_a_verified_server() {
    let world = World::new(true);
    let port = world.gateway.admin.expect("it has an admin address").port();
    for url in [format!("https://localhost:{port}"), format!("http://localhost:{port}")] {
        let mut list = command(&["records", "list", "--admin", &url]);
        list.env("SEMEL_ADMIN_TOKEN", &world.operator);
        let ran = run(list).exits(1);
        assert!(ran.out.is_empty() && !ran.err.contains(&world.operator), "{ran:?}");
    }
}
