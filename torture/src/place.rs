//! Where a torture takes place: the store, and the files beside it.
//!
//! What lives here: what a store's address means, and the one place that builds an engine on it. What must never: a file
//! of the torture's own among the store's, where a modelled power cut would reach it.

use crate::sabotage::{AnswersEarly, Sabotage};
use semel::core::store::Store;
use semel::{ClockSettings, Engine, Settings, Sweep};
use semel_sql::sqlite;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What the torture's own errors are.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The address of a store that can be tortured.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// A file of the embedded store.
    Sqlite(PathBuf),
}

impl Address {
    pub(crate) fn read(url: &str) -> Result<Self, Failure> {
        match url.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(PathBuf::from(path))),
            _ => Err(format!("the store `{url}` cannot be tortured yet; name a file: sqlite:PATH").into()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite(path) => format!("sqlite:{}", path.display()),
        }
    }

    /// The store's file, where it is one.
    pub(crate) fn file(&self) -> &Path {
        match self {
            Self::Sqlite(path) => path,
        }
    }

    /// Every file that the store may have.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let with = |suffix: &str| {
            let mut name = self.file().as_os_str().to_owned();
            name.push(suffix);
            PathBuf::from(name)
        };
        ["", "-wal", "-shm", "-journal"].map(with).to_vec()
    }
}

/// The files of one torture.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: Address,
    /// For everything that is not the store's.
    pub(crate) beside: PathBuf,
}

impl Place {
    pub(crate) fn ledger(&self) -> PathBuf {
        self.beside.join("ledger")
    }

    pub(crate) fn answers(&self) -> PathBuf {
        self.beside.join("answers")
    }

    pub(crate) fn errors(&self, run: &str) -> PathBuf {
        self.beside.join(format!("{run}.err"))
    }
}

/// Opens the store alone.
pub(crate) fn open(address: &Address) -> Result<sqlite::Store, Failure> {
    let Address::Sqlite(path) = address;
    // A log that is begun anew every few hundred commands, so that kills meet that moment too.
    let options = sqlite::Options::default().readers(2).wal_bytes_max(1 << 20);
    Ok(sqlite::Store::open(path.clone(), options)?)
}

/// An open store, and an engine on it.
pub(crate) struct Open {
    pub(crate) engine: Engine,
    sqlite: Arc<sqlite::Store>,
}

impl Open {
    /// Opens the store and builds an engine on it whose writes bear the name of this run.
    pub(crate) async fn new(
        address: &Address,
        run: &str,
        sabotage: Option<Sabotage>,
    ) -> Result<Self, Failure> {
        if sabotage == Some(Sabotage::Forget) {
            address.files().iter().for_each(|file| drop(std::fs::remove_file(file)));
        }
        let sqlite = Arc::new(open(address)?);
        let mut store: Arc<dyn Store> = sqlite.clone();
        if sabotage == Some(Sabotage::AnswerEarly) {
            store = Arc::new(AnswersEarly(store));
        }
        let settings = Settings {
            wait: Duration::from_millis(60),
            cache_bytes_max: 1 << 20,
            // One machine's clock, which nobody sets; and outcomes that expire between two kills.
            clock: ClockSettings { skew: Duration::ZERO, settle: Duration::ZERO, ..ClockSettings::default() },
            sweep: Sweep { every: Duration::from_millis(50), ..Sweep::default() },
            ..Settings::default()
        };
        let engine = Engine::builder(store).settings(settings).name(run).build().await?;
        Ok(Self { engine, sqlite })
    }

    /// What is wrong with the store's file, a line each.
    pub(crate) async fn verify(&self) -> Result<Vec<String>, Failure> {
        Ok(self.sqlite.verify().await?)
    }

    /// Ends what runs, and closes the store.
    pub(crate) async fn close(self) {
        self.engine.shutdown(Duration::from_secs(10)).await;
        self.sqlite.close().await;
    }
}
