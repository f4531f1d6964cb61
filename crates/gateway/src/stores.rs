//! The list of stores, and which one a URL names.

use semel::core::store::{AcceptedLoss, Backend, Error, Inspection, OpenOptions, Store};
use semel::memory;
use semel_sql::{postgres, sqlite};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error as ThisError;

/// Every store. A new store is one more line.
static BACKENDS: &[&dyn Backend] = &[
    &sqlite::Backend,
    &postgres::Backend,
    #[cfg(feature = "redis")]
    &semel_redis::Backend,
    #[cfg(feature = "redis")]
    &semel_redis::TlsBackend,
    &memory::Backend,
];

/// The store that needs no server.
static EMBEDDED: &dyn Backend = &sqlite::Backend;

/// The URL forms of all stores: `sqlite:PATH, postgres://USER@HOST/DATABASE, … or memory:`.
pub fn url_forms() -> String {
    let forms: Vec<_> = BACKENDS.iter().map(|backend| backend.url_form()).collect();
    match forms.split_last() {
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// The libraries of the stores, with their versions, one per line.
pub fn libraries() -> Vec<String> {
    BACKENDS.iter().filter_map(|backend| backend.library()).collect()
}

/// Why a text is not the URL of a store. It may contain a password, so only its scheme is repeated.
#[derive(Debug, ThisError)]
pub enum UrlError {
    /// It has no scheme.
    #[error("a store's URL begins with its kind and a colon: write {}", url_forms())]
    NoScheme,
    /// No store has this scheme. None if it does not look like one.
    #[error(
        "this version of Semel has no store for {urls}; it has {forms}",
        urls = .0.as_ref().map_or_else(|| "such URLs".to_owned(), |scheme| format!("{scheme}: URLs")),
        forms = url_forms()
    )]
    UnknownScheme(Option<String>),
    /// This kind of store refuses the rest.
    #[error(transparent)]
    Refused(Box<dyn std::error::Error + Send + Sync>),
}

/// A store that cannot be opened.
#[derive(Debug, ThisError)]
#[error("{url} cannot be opened: {source}")]
pub struct OpenError {
    url: Url,
    pub(crate) source: Error,
}

/// The URL of a store.
#[derive(Clone)]
pub struct Url {
    backend: &'static dyn Backend,
    address: String,
}

impl Url {
    /// The embedded store in the file `path`.
    pub fn embedded(path: &Path) -> Self {
        Self { backend: EMBEDDED, address: path.to_string_lossy().into_owned() }
    }

    /// The kind of store.
    pub fn backend(&self) -> &'static dyn Backend {
        self.backend
    }

    /// Checks what the URL names on this machine, without opening or creating anything.
    pub fn check_files(&self) -> Result<(), UrlError> {
        self.backend.check_files(&self.address).map_err(|error| UrlError::Refused(error.into()))
    }

    /// The files of the store on this machine, the one with the records first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.backend.files(&self.address)
    }

    /// The SQL that creates this store in an empty database. Empty if the store has no tables.
    pub fn schema_script(&self) -> String {
        self.backend.schema_script(&self.address)
    }

    /// Another store on the same server, named `name` (lower-case letters, digits and `_`); this one if its URL
    /// already identifies the store.
    #[must_use]
    pub fn apart(&self, name: &str) -> Self {
        let address = self.backend.address_apart(&self.address, name);
        Self { backend: self.backend, address: address.unwrap_or_else(|| self.address.clone()) }
    }

    /// Whether the store exists; `false` for one that ends with its process.
    pub async fn exists(&self) -> Result<bool, Error> {
        self.backend.exists(&self.address).await
    }

    /// Accepts that the store has lost data. `why` says who accepts it, when and why.
    pub async fn accept_loss(&self, why: &str) -> Result<AcceptedLoss, Error> {
        self.backend.accept_loss(&self.address, why).await
    }

    /// Opens the store for reading and writing.
    pub async fn open(&self) -> Result<Arc<dyn Store>, OpenError> {
        self.open_with(&OpenOptions::default()).await
    }

    /// Opens the store for reading and writing, with options.
    pub async fn open_with(&self, options: &OpenOptions) -> Result<Arc<dyn Store>, OpenError> {
        let opened = self.backend.open(&self.address, options).await;
        opened.map_err(|source| OpenError { url: self.clone(), source })
    }

    /// Parts of the URL that have no effect, one sentence for each.
    pub fn warnings(&self) -> Vec<String> {
        self.backend.warnings(&self.address)
    }

    /// What follows if the gateway does not sweep this store, if that is dangerous.
    pub(crate) fn unswept(&self, every: Duration) -> Option<&'static str> {
        (every.is_zero() && self.backend.keeps_in_memory()).then_some(
            "the sweeper is off, and the store keeps its records in memory: unless another gateway sweeps it, the memory fills up, and \
             then requests with a key are refused",
        )
    }

    /// Opens an existing store for reading only.
    pub async fn inspect(&self) -> Result<Box<dyn Inspection>, Error> {
        self.backend.inspect(&self.address).await
    }
}

impl Default for Url {
    fn default() -> Self {
        Self::embedded(Path::new("semel.db"))
    }
}

impl PartialEq for Url {
    fn eq(&self, other: &Self) -> bool {
        (self.backend.scheme(), &self.address) == (other.backend.scheme(), &other.address)
    }
}

impl Eq for Url {}

impl FromStr for Url {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, address) = text.split_once(':').ok_or(UrlError::NoScheme)?;
        let has_scheme =
            |backend: &&dyn Backend| backend.scheme() == scheme || backend.scheme_aliases().contains(&scheme);
        let Some(backend) = BACKENDS.iter().copied().find(has_scheme) else {
            let is_scheme = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_lowercase());
            return Err(UrlError::UnknownScheme(is_scheme.then(|| scheme.to_owned())));
        };
        backend.check(address).map_err(|error| UrlError::Refused(error.into()))?;
        Ok(Self { backend, address: address.to_owned() })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend.scheme(), self.address)
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Url({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;

    #[test]
    fn a_store_is_named_by_its_url() {
        let url = |text: &str| text.parse::<Url>().expect("a store");
        assert_eq!(url("sqlite:semel.db"), Url::default());
        assert_eq!(url("sqlite:/var/lib/a b.db"), Url::embedded(Path::new("/var/lib/a b.db")));
        for text in ["sqlite:semel.db", "sqlite:/var/lib/a b.db", "memory:", "postgres://semel@db/payments"] {
            assert_eq!(url(text).to_string(), text);
        }
        assert_eq!(url("postgresql://semel@db/payments"), url("postgres://semel@db/payments"));
        // A URL that asks for encryption is never read as one that does not.
        #[cfg(feature = "redis")]
        for (text, shown) in [("valkey://cache", "redis://cache"), ("valkeys://cache", "rediss://cache")] {
            assert_eq!(url(text).to_string(), shown);
        }
    }

    #[test]
    fn an_unknown_store_url_is_refused_without_its_password() {
        for bad in [
            "",
            "semel.db",
            "sqlite:",
            "sqlite:///x.db",
            "memory:x",
            "mongodb://u:hunter2@h/d",
            "redis://:hunter2@h",
            "postgres://u:hunter2@h/d",
            "postgresql://u@h/d?password=hunter2",
            "hunter2 x:y",
        ] {
            let refusal = bad.parse::<Url>().expect_err("no store").to_string();
            assert!(!refusal.contains("hunter2"), "{refusal}");
            let helps = ["sqlite:", "memory:", "password=env:NAME", "env:NAME or file:PATH"];
            assert!(helps.iter().any(|help| refusal.contains(help)), "{refusal}");
        }
    }

    #[tokio::test]
    async fn every_store_can_be_opened_and_says_whether_it_is_there() {
        let folder = ScratchDir::new("stores");
        for url in [Url::embedded(&folder.join("semel.db")), "memory:".parse().expect("a store")] {
            assert!(!url.exists().await.expect("looked"), "{url}");
            assert!(url.inspect().await.is_err(), "{url}");
            let store = url.open().await.expect("opened");
            assert_eq!(store.name(), url.to_string());
            store.close().await;
            assert_eq!(url.exists().await.expect("looked"), !url.backend().is_in_process(), "{url}");
        }
    }
}
