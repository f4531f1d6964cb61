//! Certificates in files, for settings that name some.

use rcgen::{CertificateParams, KeyPair};
use semel_test_support::ScratchDir;

/// A temporary directory with a certificate and keys.
pub(crate) struct Pem(ScratchDir);

impl Pem {
    pub(crate) fn new() -> Self {
        let directory = ScratchDir::new("pem");
        let (key, other) = (KeyPair::generate().expect("a key"), KeyPair::generate().expect("a key"));
        let params = CertificateParams::new(vec!["semel.example".to_owned()]).expect("a name");
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        let files = [
            ("cert.pem", certificate.as_str()),
            ("key.pem", &key.serialize_pem()),
            ("other.pem", &other.serialize_pem()),
            ("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            ("text.pem", "no certificate\n"),
        ];
        for (name, text) in files {
            directory.write(name, text);
        }
        Self(directory)
    }

    /// `key = 'path of that file'`, with a newline.
    pub(crate) fn line(&self, key: &str, file: &str) -> String {
        format!("{key} = '{}'\n", self.0.join(file).display())
    }

    /// A valid TLS configuration.
    pub(crate) fn tls(&self) -> String {
        self.line("tls_cert", "cert.pem") + &self.line("tls_key", "key.pem")
    }
}
