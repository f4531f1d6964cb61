//! TLS against a real server: which certificates are accepted, and that records are sent encrypted.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use semel_core::machine::Unchanged;
use semel_core::store::{Change, Kind, Store as _};
use semel_sql::postgres::{Options, Store};
use semel_test_support::{PostgresServer, ScratchDir};
use semel_testkit::records::{claimed, finished, id, is_done};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Every authority has the same name, as before and after a key change.
fn authority() -> Authority {
    authority_named(None)
}

fn authority_named(name: Option<&str>) -> Authority {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    if let Some(name) = name {
        params.distinguished_name.push(DnType::CommonName, name);
    }
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

struct World {
    server: PostgresServer,
    folder: ScratchDir,
    /// The authority's certificate.
    root: PathBuf,
    authority: Authority,
}

impl World {
    /// A server with TLS and a certificate for `name`; without TLS if there is none.
    fn start(test: &str, name: Option<&str>) -> Self {
        let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), test);
        let server = PostgresServer::start(folder.join("data"));
        let authority = authority();
        let root = folder.write("root.pem", authority.pem());
        let world = Self { server, folder, root, authority };
        if let Some(name) = name {
            world.certify(name);
        }
        world
    }

    fn certify(&self, name: &str) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
        let certificate = params.signed_by(&key, &self.authority).expect("a certificate");
        self.server.offer_tls(&certificate.pem(), &key.serialize_pem());
    }

    fn url(&self, mode: &str, root: Option<&Path>) -> String {
        let root = root.map(|root| format!("&sslrootcert={}", root.display())).unwrap_or_default();
        format!("{}?connect_timeout=10&sslmode={mode}{root}", self.server.url())
    }

    async fn refusal(&self, mode: &str, root: Option<&Path>) -> String {
        let refused = Store::open(&self.url(mode, root), Options::default()).await.expect_err("refused");
        assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
        refused.to_string()
    }

    /// How many connections the store has, encrypted and not.
    fn connections(&self) -> (u32, u32) {
        let counted = self.server.sql(
            "SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl \
             JOIN pg_stat_activity USING (pid) WHERE application_name = 'semel'",
        );
        let (encrypted, clear) = counted.split_once('|').expect("two counts");
        (encrypted.parse().expect("a number"), clear.parse().expect("a number"))
    }
}

async fn works(store: &Store, number: u64) {
    assert!(is_done(&store.write(id(number), Change::Insert(&claimed(number))).await.expect("an answer")));
    assert!(store.get(id(number)).await.expect("an answer").record().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_mode_connects_to_a_server_with_the_right_certificate() {
    let world = World::start("tls-right", Some("127.0.0.1"));
    let root = world.root.clone();
    let modes = [
        ("prefer", None),
        ("require", None),
        ("require", Some(&*root)),
        ("verify-ca", Some(&*root)),
        ("verify-full", Some(&*root)),
    ];
    for (number, (mode, root)) in (1..).zip(modes) {
        let store = Store::open(&world.url(mode, root), Options::default()).await;
        let store = store.unwrap_or_else(|error| panic!("{mode}: {error}"));
        works(&store, number).await;
        let (encrypted, clear) = world.connections();
        assert!(encrypted > 0 && clear == 0, "{mode}: {encrypted} encrypted, {clear} not");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_refused_with_advice() {
    let world = World::start("tls-authority", Some("127.0.0.1"));
    let (same_name, other_name) = (authority(), authority_named(Some("other authority")));
    let same_name = world.folder.write("same-name.pem", same_name.pem());
    let other_root = world.folder.write("other.pem", other_name.pem());
    let message = world.refusal("verify-ca", Some(&same_name)).await;
    assert!(message.contains("check sslrootcert"), "{message}");
    for mode in ["require", "verify-ca", "verify-full"] {
        let message = world.refusal(mode, Some(&other_root)).await;
        assert!(message.contains("check sslrootcert"), "{mode}: {message}");
    }
    // Without a file, the system's authorities are used, and this server's is not one of them.
    let message = world.refusal("verify-full", None).await;
    assert!(message.contains("sslrootcert"), "{message}");
    let missing = world.refusal("verify-full", Some(Path::new("/no/such/file.pem"))).await;
    assert!(missing.contains("sslrootcert=/no/such/file.pem"), "{missing}");
    assert_eq!(world.connections(), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_refused_by_verify_full_only() {
    let world = World::start("tls-host", Some("db.example"));
    let root = world.root.clone();
    let message = world.refusal("verify-full", Some(&root)).await;
    assert!(message.contains("check the host") && message.contains("sslmode=verify-ca"), "{message}");
    let store = Store::open(&world.url("verify-ca", Some(&root)), Options::default())
        .await
        .expect("its authority is right");
    works(&store, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let world = World::start("tls-none", None);
    let root = world.root.clone();
    for (mode, root) in [("require", None), ("verify-ca", Some(&*root)), ("verify-full", Some(&*root))] {
        let message = world.refusal(mode, root).await;
        assert!(
            message.contains("does not support TLS") && message.contains("sslmode="),
            "{mode}: {message}"
        );
    }
    assert_eq!(world.connections(), (0, 0), "nothing was sent unencrypted");
    let store = Store::open(&world.url("prefer", None), Options::default())
        .await
        .expect("prefer takes what there is");
    works(&store, 1).await;
    assert!(world.connections().1 > 0);
}

/// Passes everything on and records what the client sent.
async fn relay(to: SocketAddr) -> (SocketAddr, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its number");
    let sent: Arc<Mutex<Vec<u8>>> = Arc::default();
    let seen = Arc::clone(&sent);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                let server = TcpStream::connect(to).await.expect("the server answers");
                let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
                    (client.into_split(), server.into_split());
                let back =
                    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
                let mut buffer = vec![0; 16 << 10];
                while let Ok(read @ 1..) = from_client.read(&mut buffer).await {
                    seen.lock().expect("no panic").extend_from_slice(&buffer[..read]);
                    to_server.write_all(&buffer[..read]).await.expect("the server reads");
                }
                back.abort();
            });
        }
    });
    (address, sent)
}

/// An eavesdropper sees no record, unless the URL allows it.
#[tokio::test(flavor = "multi_thread")]
async fn records_are_sent_encrypted() {
    let world = World::start("tls-wire", Some("127.0.0.1"));
    let server = SocketAddr::from(([127, 0, 0, 1], world.server.port()));
    for (number, mode, is_clear) in [(1, "disable", true), (2, "require", false), (3, "verify-full", false)] {
        let (address, sent) = relay(server).await;
        let root = (mode == "verify-full").then_some(&*world.root);
        let port = format!(":{}/", world.server.port());
        let url = world.url(mode, root).replace(&port, &format!(":{}/", address.port()));
        let store = Store::open(&url, Options::default()).await.expect("the store opens");
        let claim = claimed(number);
        assert!(is_done(&store.write(id(number), Change::Insert(&claim)).await.expect("an answer")));
        let paid = finished(&claim, "a body that nobody else may read");
        let written = store.write(id(number), Change::Replace(Unchanged::of(&claim), &paid)).await;
        assert!(is_done(&written.expect("an answer")));
        store.close().await;
        let sent = sent.lock().expect("no panic").clone();
        let holds = |text: &[u8]| sent.windows(text.len()).any(|part| part == text);
        assert!(!sent.is_empty());
        assert_eq!(holds(b"nobody else may read"), is_clear, "{mode}");
        assert_eq!(holds(b"semel.write"), is_clear, "{mode}");
    }
}

/// `any` accepts a read-only server; the first write reports it.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_accepted_if_any_server_may_be() {
    let world = World::start("session-any", None);
    let owner = Store::open(&world.server.admin_url(), Options::default()).await.expect("the store opens");
    works(&owner, 1).await;
    owner.close().await;
    world.server.sql(
        "CREATE ROLE guest LOGIN; GRANT USAGE ON SCHEMA semel TO guest; \
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA semel TO guest; \
         ALTER ROLE guest SET default_transaction_read_only = on",
    );
    let url = world.server.url().replace("semel@", "guest@");
    let refused = Store::open(&url, Options::default()).await.expect_err("it takes no writes");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    let any = Store::open(&format!("{url}?target_session_attrs=any"), Options::default())
        .await
        .expect("any will do");
    assert!(any.get(id(1)).await.expect("an answer").record().is_some());
    let refused = any.write(id(2), Change::Insert(&claimed(2))).await.expect_err("nothing is written");
    assert_eq!(refused.kind(), Kind::ReadOnly, "{refused}");
    assert!(any.get(id(2)).await.expect("an answer").entry.is_none());
}
