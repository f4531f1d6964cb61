//! An admin address for other machines: only tokens from `semel key token` open it to `semel records`.

use crate::upstream::Upstream;
use crate::world::{Gateway, Ran, Scratch, command, key, post, run, semel};
use serde_json::Value;

/// A new token, and its lines for the configuration file.
fn minted(name: &str, roles: &[&str]) -> (String, String) {
    let roles = roles.iter().flat_map(|role| ["--role", *role]);
    let said = semel(&["key", "token", name].into_iter().chain(roles).collect::<Vec<_>>()).exits(0).out;
    let (token, lines) = said.split_once("\n\n").expect("a token and lines");
    (token.to_owned(), lines.to_owned())
}

/// A gateway whose admin address can be reached from everywhere, and three who hold tokens for it.
struct World {
    gateway: Gateway,
    scratch: Scratch,
    _upstream: Upstream,
    /// The flags of `semel records` for it.
    place: Vec<String>,
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
        assert!(!scratch.file().exists(), "nothing was begun");

        let (reader, reads) = minted("reader", &["read"]);
        let (operator, operates) = minted("ops", &["read", "operate"]);
        let (worker, claims) = minted("worker", &["claim"]);
        let config =
            scratch.write("semel.toml", [&config, &reads, &operates, &claims].map(String::as_str).concat());
        let gateway = Gateway::start(&["--admin", "0.0.0.0:0", "--config", &config]);
        let admin = gateway.admin.expect("it has one");
        assert!(admin.ip().is_unspecified(), "{admin}");
        let place = if is_tls {
            ["--admin", &format!("https://localhost:{}", admin.port()), "--ca", &certificate]
                .map(str::to_owned)
                .to_vec()
        } else {
            ["--admin", &format!("http://127.0.0.1:{}", admin.port())].map(str::to_owned).to_vec()
        };
        Self { gateway, scratch, _upstream: upstream, place, reader, operator, worker }
    }

    /// What `semel records` does with this token.
    fn records(&self, token: Option<&str>, arguments: &[&str]) -> Ran {
        let mut asked = command(&["records"]);
        asked.args(arguments).args(&self.place);
        if let Some(token) = token {
            asked.env("SEMEL_ADMIN_TOKEN", token);
        }
        run(asked)
    }

    /// That whoever is not let in is told why, and exits so.
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

fn last_word_of(record: &Value) -> Option<&str> {
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
    for asked in all {
        world.is_refused(None, asked, "SEMEL_ADMIN_TOKEN");
        world.is_refused(Some("semel_of_nobody"), asked, "The token is not one of those configured here.");
    }
    for asked in &all[..2] {
        world.is_refused(Some(&world.worker), asked, "This needs the role read");
    }
    for asked in &all[2..] {
        for token in [&world.reader, &world.worker] {
            world.is_refused(Some(token), asked, "This needs the role operate");
        }
    }
    assert_eq!([&doubted, &busy].map(|id| world.state(id)), ["UNKNOWN", "FAILED_NOT_REPLAYABLE"]);

    let listed = world.records(Some(&world.reader), &["list", "--json"]).exits(0).json();
    let ids: Vec<_> =
        listed["records"].as_array().expect("a list").iter().map(|one| &one["operationId"]).collect();
    assert_eq!(ids, [doubted.as_str(), busy.as_str()]);
    let resolved = world.records(Some(&world.operator), &resolve).exits(0).json();
    assert_eq!((resolved["state"].as_str(), last_word_of(&resolved)), (Some("SUCCEEDED"), Some("ops")));
    let released = world.records(Some(&world.operator), &release).exits(0).json();
    assert_eq!(last_word_of(&released), Some("ops"));
    world.records(Some(&world.operator), &resolve).exits(4);
    // A token in a file, as a service manager hands it over.
    let file = world.scratch.write("token", format!("{}\n", world.reader));
    world.records(None, &["show", &doubted, "--token-file", &file]).exits(0);
}

#[test]
fn over_plain_http_each_token_is_good_for_what_its_roles_say() {
    each_token_is_good_for_what_its_roles_say(false);
}

#[test]
fn over_tls_each_token_is_good_for_what_its_roles_say() {
    each_token_is_good_for_what_its_roles_say(true);
}

#[test]
fn a_token_is_sent_only_to_a_verified_server() {
    let world = World::new(true);
    let port = world.gateway.admin.expect("it has one").port();
    for url in [format!("https://localhost:{port}"), format!("http://localhost:{port}")] {
        let mut asked = command(&["records", "list", "--admin", &url]);
        asked.env("SEMEL_ADMIN_TOKEN", &world.operator);
        let told = run(asked).exits(1);
        assert!(told.out.is_empty() && !told.err.contains(&world.operator), "{told:?}");
    }
}
