//! Rule: dependencies between our crates run one way, as this table says.

use super::violation::Violation;
use crate::workspace::{Dependency, Kind, Package, Workspace};

const STORES_AND_SHELLS: &[&str] = &[
    "semel-core",
    "semel-text",
    "semel-net",
    "semel",
    "semel-sql",
    "semel-redis",
    "semel-cassandra",
    "semel-http",
    "semel-identity",
    "semel-telemetry",
    "semel-proxy",
    "semel-admin",
    "semel-messaging",
    "semel-client",
    "semel-tx",
];

/// What each crate may depend on. The core and the crate of texts depend on none, a store only on these two and
/// on what connections need; only the gateway combines parts.
const ALLOWED: &[(&str, &[&str])] = &[
    ("semel-core", &[]),
    ("semel-text", &[]),
    ("semel-net", &["semel-text"]),
    ("semel", &["semel-core", "semel-text"]),
    ("semel-sql", &["semel-core", "semel-text", "semel-net"]),
    ("semel-redis", &["semel-core", "semel-text", "semel-net"]),
    ("semel-cassandra", &["semel-core", "semel-text", "semel-net"]),
    ("semel-http", &["semel-core", "semel"]),
    // Who is calling. The layer that asks is an argument.
    ("semel-identity", &["semel-core", "semel-text", "semel-net"]),
    // How a gateway is observed: what the engine and the layer report, under names that its parts pass.
    ("semel-telemetry", &["semel-core", "semel-text", "semel-net", "semel", "semel-http"]),
    // Bytes between clients and the upstream. It knows the layer's bodies and failures, never the reverse.
    ("semel-proxy", &["semel-core", "semel-text", "semel-net", "semel", "semel-http"]),
    // In the application's own transaction: the store's rows, and the engine that decides about them. With its
    // feature `axum`, its errors are answered with the layer's documents; the layer knows no transactions.
    ("semel-tx", &["semel-core", "semel", "semel-sql", "semel-http"]),
    ("semel-messaging", &["semel-core", "semel", "semel-sql"]),
    ("semel-client", &["semel-core"]),
    // The admin address over an engine. It opens no store, and knows neither the proxy nor the configuration.
    ("semel-admin", &["semel-core", "semel-text", "semel-net", "semel", "semel-http"]),
    ("semel-gateway", STORES_AND_SHELLS),
    ("semel-test-support", &[]),
    ("semel-testkit", &["semel-core", "semel"]),
    ("semel-sim", &["semel-core", "semel"]),
    ("semel-bench", STORES_AND_SHELLS),
    // Through the gateway's list of stores.
    ("semel-torture", &["semel-core", "semel", "semel-gateway"]),
    ("semel-example-charge", STORES_AND_SHELLS),
    // Only how private servers are started. It depends on nothing else, so `cargo xtask` builds in seconds.
    ("xtask", &["semel-test-support"]),
];

/// What any crate's tests may use in addition.
const FOR_TESTS: &[&str] = &["semel-testkit", "semel-test-support"];

/// What the tests of one crate may use in addition: a layer is tested on a durable store, and a store under an
/// engine or with its clock.
const IN_TESTS: &[(&str, &str)] = &[
    ("semel-http", "semel-sql"),
    ("semel-admin", "semel-sql"),
    ("semel-sql", "semel"),
    ("semel-redis", "semel"),
];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let is_ours = |name: &str| workspace.packages.iter().any(|package| package.name == name);
    let mut found = Vec::new();
    for package in &workspace.packages {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| *name == package.name) else {
            found.push(unknown(package));
            continue;
        };
        let ours = package.dependencies.iter().filter(|dependency| is_ours(&dependency.package));
        found.extend(
            ours.filter(|d| !may_use(package, d, allowed)).map(|d| wrong_direction(package, d, allowed)),
        );
    }
    found
}

fn may_use(package: &Package, dependency: &Dependency, allowed: &[&str]) -> bool {
    let pair = (package.name.as_str(), dependency.package.as_str());
    let for_tests = dependency.kind == Kind::Dev && (FOR_TESTS.contains(&pair.1) || IN_TESTS.contains(&pair));
    for_tests || allowed.contains(&dependency.package.as_str())
}

fn unknown(package: &Package) -> Violation {
    let advice = format!(
        "crate `{}` is missing in the table of allowed dependencies: add it to ALLOWED in {}",
        package.name,
        file!()
    );
    Violation::at(package.manifest(), 0, advice)
}

fn wrong_direction(package: &Package, dependency: &Dependency, allowed: &[&str]) -> Violation {
    let may = if allowed.is_empty() { "none of our crates".to_owned() } else { allowed.join(", ") };
    let advice = format!(
        "`{}` must not depend on `{}` (allowed: {may}); move the shared code to a crate that both may use",
        package.name, dependency.package
    );
    Violation::at(package.manifest(), 0, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    fn workspace(packages: &[(&str, &[(&str, Kind)])]) -> Workspace {
        let package = |(name, dependencies): &(&str, &[(&str, Kind)])| Package {
            name: (*name).to_owned(),
            directory: format!("crates/{name}"),
            dependencies: dependencies.iter().map(|(name, kind)| dependency(name, *kind)).collect(),
            ..Package::default()
        };
        Workspace { packages: packages.iter().map(package).collect(), ..Workspace::default() }
    }

    fn dependency(name: &str, kind: Kind) -> Dependency {
        Dependency { package: name.to_owned(), name: name.to_owned(), kind }
    }

    #[test]
    fn a_dependency_in_the_wrong_direction_is_found() {
        let sample = workspace(&[
            ("semel-core", &[("semel", Kind::Normal), ("sha2", Kind::Normal)]),
            ("semel", &[("semel-core", Kind::Normal)]),
            ("semel-redis", &[("semel-core", Kind::Normal), ("semel", Kind::Build)]),
        ]);
        let messages = messages(&check(&sample));
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert!(
            messages[0].starts_with("crates/semel-core/Cargo.toml: `semel-core` must not depend on `semel` ")
        );
        assert!(messages[1].contains(
            "`semel-redis` must not depend on `semel` (allowed: semel-core, semel-text, semel-net)"
        ));
    }

    #[test]
    fn an_unknown_crate_is_reported_with_advice() {
        let messages = messages(&check(&workspace(&[("semel-utils", &[])])));
        assert_eq!(messages.len(), 1);
        assert!(messages[0].contains("add it to ALLOWED in xtask/src/tidy/arrows.rs"), "{}", messages[0]);
    }

    #[test]
    fn the_testkit_and_the_support_of_tests_are_for_tests_only() {
        for name in FOR_TESTS {
            let package = (*name, &[][..]);
            let tests = workspace(&[package, ("semel-core", &[(*name, Kind::Dev)])]);
            assert_eq!(check(&tests), []);
            let product = workspace(&[package, ("semel-core", &[(*name, Kind::Normal)])]);
            assert_eq!(check(&product).len(), 1);
        }
    }

    #[test]
    fn a_layer_may_use_a_store_only_in_tests() {
        let sql = ("semel-sql", &[("semel-core", Kind::Normal)][..]);
        let core = ("semel-core", &[][..]);
        let tests = workspace(&[core, sql, ("semel-http", &[("semel-sql", Kind::Dev)])]);
        assert_eq!(check(&tests), []);
        let product = workspace(&[core, sql, ("semel-http", &[("semel-sql", Kind::Normal)])]);
        assert_eq!(check(&product).len(), 1);
        let other = workspace(&[core, sql, ("semel-client", &[("semel-sql", Kind::Dev)])]);
        assert_eq!(check(&other).len(), 1);
    }

    #[test]
    fn the_table_itself_has_no_cycle() {
        // In this order, every crate comes after all that it may depend on.
        let mut placed: Vec<&str> = Vec::new();
        while placed.len() < ALLOWED.len() {
            let ready = |(name, needs): &&(&'static str, &[&str])| {
                !placed.contains(name) && needs.iter().all(|need| placed.contains(need))
            };
            let next: Vec<&str> = ALLOWED.iter().filter(ready).map(|(name, _)| *name).collect();
            assert!(!next.is_empty(), "a cycle, or a name that is no crate, beyond {placed:?}");
            placed.extend(next);
        }
    }
}
