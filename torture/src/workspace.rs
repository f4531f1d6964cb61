//! The tested store, and the files beside it. The run's own files are never among the store's, where a
//! simulated power cut would affect them.

use crate::sabotage::{AnswersEarly, Sabotage};
use clap::builder::TypedValueParser;
use clap::value_parser;
use semel::core::store::{OpenOptions, Store};
use semel::{ClockSettings, Engine, Settings, Sweep};
use semel_gateway::stores::Url;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The error type of this program.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The URL of a store that can be tested: one that outlives a process.
#[derive(Debug, Clone)]
pub(crate) struct Address(Url);

impl Address {
    pub(crate) fn read(url: &str) -> Result<Self, Failure> {
        Self::new(url.parse()?)
    }

    /// Reads an address from the command line.
    pub(crate) fn parser() -> impl TypedValueParser<Value = Self> {
        value_parser!(Url).try_map(Self::new)
    }

    fn new(store: Url) -> Result<Self, Failure> {
        if store.backend().is_in_process() {
            return Err(format!("the store {store} ends with its process: a kill would prove nothing").into());
        }
        Ok(Self(store))
    }

    pub(crate) fn embedded(path: &Path) -> Self {
        Self(Url::embedded(path))
    }

    /// The same kind of store, in another file.
    pub(crate) fn moved_to(&self, path: &Path) -> Result<Self, Failure> {
        let path = path.to_str().ok_or("the store's path is not UTF-8")?;
        Self::read(&format!("{}:{path}", self.0.backend().scheme()))
    }

    /// A new store on the same server, unless the URL already names one.
    pub(crate) fn apart(&self, name: &str) -> Self {
        Self(self.0.apart(name))
    }

    pub(crate) fn url(&self) -> &Url {
        &self.0
    }

    /// The file that holds the records; `None` if the store is on a server.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        self.0.files().into_iter().next()
    }

    /// Every file that the store may have.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.0.files()
    }
}

/// The files of one run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Workspace {
    #[arg(long = "store", value_parser = Address::parser())]
    pub(crate) address: Address,
    /// Everything that does not belong to the store.
    #[arg(long)]
    pub(crate) beside: PathBuf,
}

impl Workspace {
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

/// Opens only the store.
pub(crate) async fn open(address: &Address) -> Result<Arc<dyn Store>, Failure> {
    // The log restarts every few hundred commands, so that kills hit that moment too.
    let options =
        OpenOptions { connections: Some(2), log_bytes_max: Some(1 << 20), ..OpenOptions::default() };
    Ok(address.url().open_with(&options).await?)
}

/// An open store, and an engine on it.
pub(crate) struct Open {
    pub(crate) engine: Engine,
    address: Address,
    store: Arc<dyn Store>,
}

impl Open {
    /// Opens the store and builds an engine on it whose writes carry the name of this run.
    pub(crate) async fn new(
        address: &Address,
        run: &str,
        sabotage: Option<Sabotage>,
    ) -> Result<Self, Failure> {
        if sabotage == Some(Sabotage::Forget) {
            address.files().iter().for_each(|file| drop(std::fs::remove_file(file)));
        }
        let opened = open(address).await?;
        let mut store = Arc::clone(&opened);
        if sabotage == Some(Sabotage::AnswerEarly) {
            store = Arc::new(AnswersEarly(store));
        }
        let settings = Settings {
            wait: Duration::from_millis(60),
            cache_bytes_max: 1 << 20,
            // One machine's clock, which is not changed; and outcomes that expire between two kills.
            clock: ClockSettings { skew: Duration::ZERO, settle: Duration::ZERO, ..ClockSettings::default() },
            sweep: Sweep { every: Duration::from_millis(50), ..Sweep::default() },
            ..Settings::default()
        };
        let engine = Engine::builder(store).settings(settings).name(run).build().await?;
        Ok(Self { engine, address: address.clone(), store: opened })
    }

    /// The problems of the store, one per line.
    pub(crate) async fn verify(&self) -> Result<Vec<String>, Failure> {
        Ok(self.address.url().inspect().await?.verify().await?)
    }

    /// Shuts the engine down, and closes the store.
    pub(crate) async fn close(self) {
        self.engine.shutdown(Duration::from_secs(10)).await;
        self.store.close().await;
    }
}
