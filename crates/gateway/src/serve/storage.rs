//! Builds the engine from its settings.

use super::ServeError;
use crate::config::{Next, StorageSettings};
use crate::stores::Url;
use semel::archive::FileArchive;
use semel::core::store::Store;
use semel::quota::Quotas;
use semel::sealing::KeyRing;
use semel::{Builder, Engine};
use std::sync::Arc;

/// A builder for an engine on `store`, which `url` names. Opens the archive, if there is one.
pub(crate) fn builder(
    url: &Url,
    storage: &StorageSettings,
    quotas: Quotas,
    sealing: Option<KeyRing>,
    store: &Arc<dyn Store>,
) -> Result<Builder, ServeError> {
    let StorageSettings { settings, skew_is_chosen, archive, hashing, secret_refresh } = storage;
    if store.capabilities().clocks_can_differ() && !skew_is_chosen {
        return Err(ServeError::NoSkew(url.clone()));
    }
    let mut builder = Engine::builder(Arc::clone(store))
        .settings(settings.clone())
        .quotas(quotas)
        .secret_refresh(*secret_refresh);
    if let Some(ring) = sealing {
        builder = builder.sealing(ring);
    }
    if let Some(path) = archive {
        builder = builder.archive(FileArchive::open(path)?);
    }
    if let Some(secret) = &hashing.secret {
        builder = builder.secret(secret.clone());
    }
    if let Next::Secret(next) = &hashing.next {
        builder = builder.rotate_to(next.clone());
    }
    Ok(builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel::core::store::{Capabilities, ClockSource, Delegate, Sharing};
    use semel::memory;
    use semel_net::target::Target;

    /// A store on several machines, each with its own clock.
    struct Scattered(memory::Store);

    impl Delegate for Scattered {
        fn inner(&self) -> &dyn Store {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            let (shared, clock) = (Sharing::Machines, ClockSource::EachMachine);
            Capabilities { shared, clock, ..self.0.capabilities() }
        }
    }

    #[test]
    fn machines_with_their_own_clocks_need_a_configured_skew() {
        let built = |store: Arc<dyn Store>, config: &str| {
            let target = Target::parse("http://127.0.0.1:1").expect("a target");
            let over = crate::config::Overrides::default().with("upstream", &target.to_string());
            let config = crate::config::read(config, &over, &|_| None).expect("no mistake");
            builder(&config.store, &config.storage, config.quotas, config.sealing, &store).map(drop)
        };
        let scattered = || Arc::new(Scattered(memory::Store::new()));
        let refused = built(scattered(), "").expect_err("nobody has said so").to_string();
        assert!(refused.contains("[clock] skew"), "{refused}");
        for config in ["[clock]\nskew = \"2s\"\n", "[sweep]\nskew = \"2s\"\n"] {
            built(scattered(), config).expect(config);
        }
        built(Arc::new(memory::Store::new()), "").expect("one machine has one clock");
    }
}
