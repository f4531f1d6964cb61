//! Opens stores by `postgres://…` URLs.

use super::address::Address;
use super::inspection::Inspected;
use super::schema::{self, STEPS};
use super::slot::Slot;
use super::{Options, Store, own_row};
use semel_core::store::{self, AcceptedLoss, AddressError, Inspection, OpenOptions, Pending};
use std::sync::Arc;

/// Opens stores by URLs like `postgres://semel@db.example/payments`.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

impl store::Backend for Backend {
    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn scheme_aliases(&self) -> &'static [&'static str] {
        &["postgresql"]
    }

    fn url_form(&self) -> &'static str {
        "postgres://USER@HOST/DATABASE"
    }

    fn check(&self, address: &str) -> Result<(), AddressError> {
        address.parse::<Address>().map(drop).map_err(AddressError::new)
    }

    fn check_files(&self, address: &str) -> Result<(), AddressError> {
        let address = address.parse::<Address>().map_err(AddressError::new)?;
        address.check_files().map_err(AddressError::new)
    }

    fn schema_steps(&self) -> &'static [&'static str] {
        STEPS
    }

    fn schema_script(&self, address: &str) -> String {
        address.parse::<Address>().map_or_else(|_| String::new(), |address| schema::script(&address.schema))
    }

    fn address_apart(&self, address: &str, name: &str) -> Option<String> {
        let (base, query) = address.split_once('?').unwrap_or((address, ""));
        let names_schema = |pair: &&str| pair.starts_with("schema=");
        if query.split('&').any(|pair| names_schema(&pair)) {
            return None;
        }
        let more = if query.is_empty() { String::new() } else { format!("{query}&") };
        Some(format!("{base}?{more}schema={name}"))
    }

    fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool> {
        Box::pin(async move {
            let address = Arc::new(parsed(address)?.for_reading());
            Ok(schema::of(&Slot::new(&address), &address.schema).await?.have > 0)
        })
    }

    fn open<'a>(&'a self, address: &'a str, options: &'a OpenOptions) -> Pending<'a, Arc<dyn store::Store>> {
        Box::pin(async move {
            let chosen = Options {
                connections: options.connections,
                request_timeout: options.request_timeout,
                clock: options.clock.clone(),
            };
            Ok(Arc::new(Store::at(address, chosen).await?) as Arc<dyn store::Store>)
        })
    }

    fn accept_loss<'a>(&'a self, address: &'a str, why: &'a str) -> Pending<'a, AcceptedLoss> {
        Box::pin(async move { own_row::accept(parsed(address)?, why).await })
    }

    fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>> {
        Box::pin(async move {
            Ok(Box::new(Inspected::open(address, parsed(address)?).await?) as Box<dyn Inspection>)
        })
    }
}

fn parsed(address: &str) -> Result<Address, store::Error> {
    let unfit = |cause| store::Error::new(store::Kind::Unfit, "opening the PostgreSQL store").because(cause);
    address.parse::<Address>().map_err(unfit)
}
