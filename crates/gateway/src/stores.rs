//! Which store an address means.
//!
//! What lives here: store URLs and how each is opened. What must never: a rule about what a record means, or a fall-back to
//! another store than the one that was named.

use semel::core::store::Store;
use semel::memory;
use semel_sql::sqlite;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// Where records are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Url {
    /// One file, `sqlite:PATH`.
    Sqlite(PathBuf),
    /// In this process, `memory:`. Gone when it ends.
    Memory,
}

impl Default for Url {
    fn default() -> Self {
        Self::Sqlite("semel.db".into())
    }
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(format!("`{text}` names no store: write sqlite:PATH or memory:"));
        };
        match (scheme, rest) {
            ("sqlite", "") => Err("sqlite: needs the path of its file, as in sqlite:semel.db".to_owned()),
            ("sqlite", path) if path.starts_with("//") => Err(format!(
                "`{text}`: write the path right after the colon, as in sqlite:semel.db or sqlite:/var/lib/semel.db"
            )),
            ("sqlite", path) => Ok(Self::Sqlite(path.into())),
            ("memory", "") => Ok(Self::Memory),
            ("memory", _) => Err("memory: takes nothing after its colon".to_owned()),
            // The rest may hold a password: it is not repeated.
            ("postgres" | "postgresql" | "mysql" | "redis" | "rediss" | "cassandra", _) => Err(format!(
                "this version of Semel has no store for {scheme}: URLs yet; there are sqlite:PATH and memory:"
            )),
            _ => Err("there is no such kind of store; there are sqlite:PATH and memory:".to_owned()),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Memory => f.write_str("memory:"),
        }
    }
}

/// A store that was opened, and what it takes to close it in an orderly way.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    file: Option<Arc<sqlite::Store>>,
}

impl Opened {
    /// Opens the store that `url` names.
    pub fn open(url: &Url) -> Result<Self, String> {
        match url {
            Url::Memory => Ok(Self { store: Arc::new(memory::Store::new()), file: None }),
            Url::Sqlite(path) => {
                let file = sqlite::Store::open(path, sqlite::Options::default());
                let file = Arc::new(file.map_err(|error| format!("{url} cannot be opened: {error}"))?);
                Ok(Self { store: Arc::clone(&file) as Arc<dyn Store>, file: Some(file) })
            }
        }
    }

    /// Closes it: what was written stands in the one file.
    pub async fn close(self) {
        if let Some(file) = self.file {
            file.close().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_by_its_url() {
        assert_eq!("sqlite:semel.db".parse(), Ok(Url::default()));
        assert_eq!("sqlite:/var/lib/a b.db".parse(), Ok(Url::Sqlite("/var/lib/a b.db".into())));
        assert_eq!("memory:".parse(), Ok(Url::Memory));
        for url in [Url::default(), Url::Memory] {
            assert_eq!(url.to_string().parse(), Ok(url));
        }
    }

    #[test]
    fn a_url_that_names_no_store_is_refused_and_its_password_is_not_repeated() {
        for bad in [
            "",
            "semel.db",
            "sqlite:",
            "sqlite:///x.db",
            "memory:x",
            "mongodb://u:hunter2@h/d",
            "redis://:hunter2@h",
        ] {
            let told = bad.parse::<Url>().expect_err("no store");
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
