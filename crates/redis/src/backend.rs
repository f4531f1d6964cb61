//! Opens stores by `redis://…` and `rediss://…` URLs.

use crate::acceptance::accept_loss;
use crate::address::{Address, TTL_IGNORED};
use crate::inspection::Inspected;
use crate::store::Store;
use crate::url_error::UrlError;
use semel_core::store::{self, AcceptedLoss, AddressError, Error, Inspection, Kind, OpenOptions, Pending};
use std::sync::Arc;

/// Opens stores by URLs like `redis://cache.example`, without encryption.
#[derive(Debug, Clone, Copy)]
pub struct Backend;

/// Opens stores by URLs like `rediss://cache.example`, over TLS.
#[derive(Debug, Clone, Copy)]
pub struct TlsBackend;

macro_rules! backend {
    ($type:ty, $scheme:literal, $aliases:expr, $form:literal, $is_encrypted:literal) => {
        impl store::Backend for $type {
            fn scheme(&self) -> &'static str {
                $scheme
            }

            fn scheme_aliases(&self) -> &'static [&'static str] {
                &$aliases
            }

            fn url_form(&self) -> &'static str {
                $form
            }

            fn check(&self, address: &str) -> Result<(), AddressError> {
                Address::parse(address, $is_encrypted).map(drop).map_err(AddressError::new)
            }

            fn check_files(&self, address: &str) -> Result<(), AddressError> {
                let address = Address::parse(address, $is_encrypted).map_err(AddressError::new)?;
                address.check_files().map_err(AddressError::new)
            }

            fn warnings(&self, address: &str) -> Vec<String> {
                let parsed = Address::parse(address, $is_encrypted);
                let is_ignored = parsed.is_ok_and(|parsed| parsed.ignores_ttl);
                is_ignored.then(|| TTL_IGNORED.to_owned()).into_iter().collect()
            }

            fn keeps_in_memory(&self) -> bool {
                true
            }

            fn address_apart(&self, address: &str, name: &str) -> Option<String> {
                apart(address, name)
            }

            fn exists<'a>(&'a self, address: &'a str) -> Pending<'a, bool> {
                Box::pin(async move { exists(parsed(address, $is_encrypted)?).await })
            }

            fn open<'a>(
                &'a self,
                address: &'a str,
                options: &'a OpenOptions,
            ) -> Pending<'a, Arc<dyn store::Store>> {
                Box::pin(async move {
                    let name = format!(concat!($scheme, ":{}"), address);
                    let parsed = parsed(address, $is_encrypted)?;
                    let store = Store::at(name, parsed, options.clock.clone()).await?;
                    Ok(Arc::new(store) as Arc<dyn store::Store>)
                })
            }

            fn accept_loss<'a>(&'a self, address: &'a str, why: &'a str) -> Pending<'a, AcceptedLoss> {
                Box::pin(async move { accept_loss(parsed(address, $is_encrypted)?, why).await })
            }

            fn inspect<'a>(&'a self, address: &'a str) -> Pending<'a, Box<dyn Inspection>> {
                Box::pin(async move {
                    let name = format!(concat!($scheme, ":{}"), address);
                    let inspected = Inspected::open(name, parsed(address, $is_encrypted)?).await?;
                    Ok(Box::new(inspected) as Box<dyn Inspection>)
                })
            }
        }
    };
}

backend!(Backend, "redis", ["valkey"], "redis://HOST", false);
backend!(TlsBackend, "rediss", ["valkeys"], "rediss://HOST", true);

fn parsed(address: &str, is_encrypted: bool) -> Result<Address, Error> {
    let unfit = |cause: UrlError| Error::new(Kind::Unfit, "opening the Redis store").because(cause);
    Address::parse(address, is_encrypted).map_err(unfit)
}

fn apart(address: &str, name: &str) -> Option<String> {
    let (base, query) = address.split_once('?').unwrap_or((address, ""));
    if query.split('&').any(|pair| pair.starts_with("prefix=")) {
        return None;
    }
    let more = if query.is_empty() { String::new() } else { format!("{query}&") };
    Some(format!("{base}?{more}prefix={name}"))
}

async fn exists(address: Address) -> Result<bool, Error> {
    crate::shared::Shared::exists(address.for_reading()).await
}
