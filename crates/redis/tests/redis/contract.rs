//! Every promise of the contract, on each kind of server.

use crate::world::{Keys, servers_of};
use semel_core::id::OperationId;
use semel_core::store::Backend as _;
use semel_redis::Backend;
use semel_test_support::{RedisReply, services};
use semel_testkit::Subject;

async fn opened(url: Option<String>, parameters: &str) -> Subject {
    let url =
        url.expect("a server: run `cargo xtask test`, or `cargo xtask services up` and set what it prints");
    let keys = Keys::at(&url);
    let full = keys.url_with(parameters);
    let address = full.split_once(':').expect("a URL").1.to_owned();
    Backend.check(&address).expect("an address");
    let prefix = keys.prefix.clone();
    let subject = Subject::opened_by(&Backend, &address).await;
    subject
        .damaged_by(move |id, bytes| {
            let pattern = format!("{{{prefix}:*}}r:{}", OperationId::of(&id).to_string().replace('-', ""));
            for mut server in servers_of(&url) {
                let RedisReply::Array(found) = server.ask(&["KEYS", &pattern]) else { panic!("no keys") };
                if let Some(key) = found.into_iter().next() {
                    let key = key.bytes();
                    let mut value = server.ask(&[&b"GET"[..], &key]).bytes();
                    let name = u32::from_be_bytes(value[122..126].try_into().expect("four bytes"));
                    value.truncate(126 + usize::try_from(name).expect("small"));
                    value.extend_from_slice(&bytes);
                    server.ask(&[&b"SET"[..], &key, &value]);
                    return Box::pin(std::future::ready(()));
                }
            }
            panic!("there was nothing to damage");
        })
        .holding(keys)
}

async fn open() -> Subject {
    opened(services::redis_url(), "").await
}

/// Three buckets, so that walks cross them and find several records in each.
async fn open_with_few_buckets() -> Subject {
    opened(services::redis_url(), "&buckets=3").await
}

async fn open_on_cluster() -> Subject {
    opened(services::redis_cluster_url(), "").await
}

async fn open_on_valkey() -> Subject {
    opened(services::valkey_url(), "").await
}

semel_testkit::contract!(store, open);
semel_testkit::contract!(few_buckets, open_with_few_buckets);
semel_testkit::contract!(cluster, open_on_cluster);
semel_testkit::contract!(valkey, open_on_valkey);
