//! TLS for tests: an authority, its certificates, and clients.

use crate::world::within;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use semel_test_support::Reply;
use semel_test_support::client::TestRequest;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A certificate authority.
pub(crate) struct Authority {
    params: CertificateParams,
    key: KeyPair,
    certificate: CertificateDer<'static>,
    pub(crate) pem: String,
}

/// A certificate and its key.
pub(crate) struct Holder {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    pub(crate) pem: String,
    pub(crate) key_pem: String,
}

fn named(common: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common);
    params
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = named(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("a key");
        let made = params.self_signed(&key).expect("a certificate");
        Self { params, key, certificate: made.der().clone(), pem: made.pem() }
    }

    /// A certificate for a client named `name`.
    pub(crate) fn client(&self, name: &str) -> Holder {
        let mut params = named(name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.holder(&params)
    }

    /// A certificate for 127.0.0.1.
    pub(crate) fn server(&self) -> Holder {
        let mut params = named("server");
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.holder(&params)
    }

    /// The same, valid until the beginning of this year.
    pub(crate) fn server_until(&self, year: i32) -> Holder {
        let mut params = named("server");
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        self.holder(&params)
    }

    fn holder(&self, params: &CertificateParams) -> Holder {
        let key = KeyPair::generate().expect("a key");
        let issuer = Issuer::from_params(&self.params, &self.key);
        let made = params.signed_by(&key, &issuer).expect("a certificate");
        Holder {
            certificate: made.der().clone(),
            key: key.serialize_der(),
            pem: made.pem(),
            key_pem: key.serialize_pem(),
        }
    }

    /// Sends a request over TLS to a server of this authority, with the client certificate `as_`.
    pub(crate) async fn send(
        &self,
        ask: TestRequest,
        to: SocketAddr,
        as_: Option<&Holder>,
    ) -> io::Result<Reply> {
        let stream = self.connect(to, as_, &[]).await?;
        within(ask.send_by(stream, to)).await
    }

    /// Opens a connection to a server of this authority, with the client certificate `as_` and these protocols.
    pub(crate) async fn connect(
        &self,
        to: SocketAddr,
        as_: Option<&Holder>,
        protocols: &[&str],
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = match as_ {
            None => config.with_no_client_auth(),
            Some(holder) => {
                let key = PrivatePkcs8KeyDer::from(holder.key.clone());
                config
                    .with_client_auth_cert(vec![holder.certificate.clone()], key.into())
                    .expect("valid settings")
            }
        };
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::IpAddress(to.ip().into());
        let tcp = TcpStream::connect(to).await?;
        TlsConnector::from(Arc::new(config)).connect(name, tcp).await
    }
}
