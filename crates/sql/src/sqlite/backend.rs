//! The URL `sqlite:PATH`.

use super::schema::STEPS;
use super::{Options, ReadOnlyStore, Store, version};
use semel_core::store::{self, Inspection, OpenOptions, Pending};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Opens stores by URLs like `sqlite:semel.db`. A path is a path, never a URI: everything after the colon belongs to
/// it.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

impl store::Backend for Backend {
    fn scheme(&self) -> &'static str {
        "sqlite"
    }

    fn url_form(&self) -> &'static str {
        "sqlite:PATH"
    }

    fn check(&self, address: &str) -> Result<(), String> {
        if address.is_empty() {
            Err("the path of the file is missing; write it as in sqlite:semel.db".to_owned())
        } else if address.starts_with("//") {
            let form =
                "write the path right after the colon, as in sqlite:semel.db or sqlite:/var/lib/semel.db";
            Err(format!("`sqlite:{address}`: {form}"))
        } else {
            Ok(())
        }
    }

    fn library(&self) -> Option<String> {
        Some(format!("SQLite {}", version()))
    }

    fn schema_steps(&self) -> &'static [&'static str] {
        STEPS
    }

    fn schema_script(&self, _: &str) -> String {
        let step = |(number, step): (usize, &&str)| {
            let number = number + 1;
            let note =
                format!("INSERT OR REPLACE INTO semel_meta (name, value) VALUES ('schema', {number});");
            format!("-- schema {number}\n{}\n{note}\n", step.trim_end())
        };
        STEPS.iter().enumerate().map(step).collect::<Vec<_>>().join("\n")
    }

    fn files(&self, address: &str) -> Vec<PathBuf> {
        ["", "-wal", "-shm", "-journal"].map(|suffix| PathBuf::from(format!("{address}{suffix}"))).to_vec()
    }

    fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool> {
        Box::pin(async move { Ok(Path::new(address).exists()) })
    }

    fn open<'a>(&'a self, address: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn store::Store>> {
        Box::pin(async move {
            let mut chosen = Options::default();
            if let Some(connections) = options.connections {
                chosen = chosen.readers(connections);
            }
            if let Some(bytes) = options.log_bytes_max {
                chosen = chosen.wal_bytes_max(bytes);
            }
            if let Some(clock) = &options.clock {
                chosen = chosen.clock(Arc::clone(clock));
            }
            Ok(Arc::new(Store::open(address, chosen)?) as Arc<dyn store::Store>)
        })
    }

    fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>> {
        Box::pin(async move {
            Ok(Box::new(ReadOnlyStore::open(address, Options::default())?) as Box<dyn Inspection>)
        })
    }
}
