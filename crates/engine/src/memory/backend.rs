//! The URL `memory:`.

use super::Store;
use semel_core::store::{self, AddressError, Error, Inspection, Kind, OpenOptions, Pending};
use std::fmt;
use std::sync::Arc;

/// Opens a new store for the URL `memory:`.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

/// Text after the scheme: the store has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressNotEmpty;

impl fmt::Display for AddressNotEmpty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unexpected text after `memory:`")
    }
}

impl std::error::Error for AddressNotEmpty {}

impl store::Backend for Backend {
    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn url_form(&self) -> &'static str {
        "memory:"
    }

    fn check(&self, address: &str) -> Result<(), AddressError> {
        if address.is_empty() { Ok(()) } else { Err(AddressError::new(AddressNotEmpty)) }
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
