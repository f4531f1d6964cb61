//! The URL `memory:`.

use super::Store;
use semel_core::store::{self, Error, Inspection, Kind, OpenOptions, Pending};
use std::sync::Arc;

/// Opens a new store for the URL `memory:`.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

impl store::Backend for Backend {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn url_form(&self) -> &'static str {
        "memory:"
    }

    fn check(&self, address: &str) -> Result<(), String> {
        if address.is_empty() { Ok(()) } else { Err("unexpected text after `memory:`".to_owned()) }
    }

    fn keeps_in_memory(&self) -> bool {
        true
    }

    fn is_in_process(&self) -> bool {
        true
    }

    fn exists<'a>(&'a self, _: &'a str) -> Pending<'a, bool> {
        Box::pin(async { Ok(false) })
    }

    fn open<'a>(&'a self, _: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn store::Store>> {
        Box::pin(async {
            let store =
                options.clock.as_ref().map_or_else(Store::new, |clock| Store::with_clock(Arc::clone(clock)));
            Ok(Arc::new(store) as Arc<dyn store::Store>)
        })
    }

    fn inspect<'a>(&'a self, _: &'a str) -> Pending<'a, Box<dyn Inspection>> {
        Box::pin(async {
            Err(Error::new(Kind::Unfit, "inspecting memory:, which exists only inside its own process"))
        })
    }
}
