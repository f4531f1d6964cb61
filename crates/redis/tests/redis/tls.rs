//! TLS against a real server: only the right certificate is accepted.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use semel_core::store::{Change, Kind, Store as _};
use semel_redis::Store;
use semel_test_support::{RedisServer, ScratchDir};
use semel_testkit::records::{claimed, id, is_done};

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("an authority")
}

/// A server with a certificate for `name`, and the port that it speaks TLS on.
fn start(
    folder: &ScratchDir,
    authority: &CertifiedIssuer<'static, KeyPair>,
    name: &str,
) -> (RedisServer, u16) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let certificate = params.signed_by(&key, authority).expect("a certificate");
    let certificate = folder.write(&format!("{name}.crt"), certificate.pem());
    let key = folder.write(&format!("{name}.key"), key.serialize_pem());
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .and_then(|socket| socket.local_addr())
        .expect("a port")
        .port();
    let (port_text, root) = (port.to_string(), folder.join("root.pem"));
    let path = |path: &std::path::Path| path.to_str().expect("UTF-8").to_owned();
    let arguments = [
        "--tls-port",
        &port_text,
        "--tls-cert-file",
        &path(&certificate),
        "--tls-key-file",
        &path(&key),
        "--tls-ca-cert-file",
        &path(&root),
        "--tls-auth-clients",
        "no",
    ];
    (RedisServer::start(folder.join(format!("server-{name}")), &arguments), port)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_right_certificate_is_accepted() {
    if !RedisServer::is_installed() {
        return;
    }
    let folder = ScratchDir::under(env!("CARGO_TARGET_TMPDIR"), "tls");
    let authority = authority();
    let root = folder.write("root.pem", authority.pem());
    let (_right, port) = start(&folder, &authority, "127.0.0.1");
    let url = |port: u16, root: &std::path::Path| {
        format!("rediss://127.0.0.1:{port}?sslrootcert={}", root.display())
    };
    let store = Store::open(&url(port, &root)).await.expect("the right certificate");
    assert!(is_done(&store.write(id(1), Change::Insert(&claimed(1))).await.expect("an answer")));
    assert!(store.get(id(1)).await.expect("an answer").record().is_some());
    assert!(store.capabilities().notifies, "messages arrive over TLS too");
    store.close().await;

    let other_root = folder.write("other.pem", self::authority().pem());
    let refused = Store::open(&url(port, &other_root)).await.expect_err("signed by another authority");
    assert_eq!(refused.kind(), Kind::Unavailable, "{refused}");
    let (_wrong, port) = start(&folder, &authority, "other.example");
    let refused = Store::open(&url(port, &root)).await.expect_err("for another host");
    assert!(refused.to_string().contains("not valid for name"), "{refused}");
}
