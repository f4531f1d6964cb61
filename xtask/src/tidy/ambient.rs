//! Rule: time and randomness are arguments, in tests too: a test that reads a clock fails on a slow day.

use super::lexer::{code_only, lines_with};
use super::violation::Violation;
use crate::workspace::{TextFile, Workspace};

const CLOCK: &str = "reads the system clock; take the time as an argument";
const RANDOMNESS: &str = "draws randomness; take it as an argument";
const ORDER: &str = "iterates in a random order; use BTreeMap or BTreeSet in the core";

const AMBIENT: &[(&str, &str)] = &[
    ("SystemTime::now", CLOCK),
    ("Instant::now", CLOCK),
    (".elapsed(", CLOCK),
    ("rand::", RANDOMNESS),
    ("fastrand", RANDOMNESS),
    ("getrandom", RANDOMNESS),
    ("thread_rng", RANDOMNESS),
    ("Uuid::new_v4", RANDOMNESS),
    ("RandomState", RANDOMNESS),
];

/// Further names that the core must not use.
const IN_CORE: &[(&str, &str)] = &[("HashMap", ORDER), ("HashSet", ORDER)];
const CORE: &str = "crates/core/";

/// The files that may read the clock or draw randomness.
const ALLOWED_FILES: &[&str] = &[
    "crates/engine/src/runtime/clock.rs",
    "crates/engine/src/runtime/random.rs",
    "crates/redis/src/random.rs",
    "crates/sql/src/clock.rs",
    "sim/src/stopwatch.rs",
    "torture/src/clock.rs",
    "xtask/src/stopwatch.rs",
];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.rust_files().filter(|file| !may_read(&file.path)).flat_map(readings).collect()
}

/// Benchmarks measure time.
fn may_read(path: &str) -> bool {
    ALLOWED_FILES.contains(&path) || path.starts_with("bench/") || path.contains("/benches/")
}

fn readings(file: &TextFile) -> Vec<Violation> {
    let code = code_only(&file.text);
    let core: &[_] = if file.path.starts_with(CORE) { IN_CORE } else { &[] };
    let mut found: Vec<(usize, &str, &str)> = Vec::new();
    for (pattern, reason) in AMBIENT.iter().chain(core) {
        found.extend(lines_with(&code, pattern).into_iter().map(|line| (line, *pattern, *reason)));
    }
    found.sort_unstable();
    let violation =
        |(line, pattern, reason)| Violation::at(&file.path, line, format!("`{pattern}` {reason}"));
    found.into_iter().map(violation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    fn found(path: &str, text: &str) -> Vec<String> {
        let file = TextFile { path: path.to_owned(), text: text.to_owned() };
        messages(&check(&Workspace { files: vec![file], ..Workspace::default() }))
    }

    #[test]
    fn every_name_on_the_list_is_found_with_its_line() {
        for (pattern, _) in AMBIENT {
            let messages =
                found("crates/sql/src/store.rs", &format!("fn f() {{\n    x{pattern}x\n  {pattern}\n}}"));
            let hits = messages.iter().filter(|line| line.starts_with("crates/sql/src/store.rs:3: ")).count();
            assert_eq!(hits, 1, "{pattern}: {messages:?}");
        }
    }

    #[test]
    fn test_code_is_no_exception() {
        let messages =
            found("crates/http/tests/layer.rs", "#[test]\nfn t() { let t = std::time::Instant::now(); }");
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert_eq!(
            found("sim/src/lib.rs", "#[cfg(test)]\nmod tests { fn t() { started.elapsed(); } }").len(),
            1
        );
    }

    #[test]
    fn the_core_has_no_hashed_collections_but_others_may() {
        let text = "use std::collections::{HashMap, HashSet};";
        assert_eq!(found("crates/core/src/record.rs", text).len(), 2);
        assert!(found("crates/engine/src/node/cache.rs", text).is_empty());
    }

    #[test]
    fn words_about_clocks_are_allowed() {
        let text = "// Instant::now\n/// `SystemTime::now`\nlet hint = \"rand::random()\";\noperand::f();";
        assert!(found("crates/core/src/time.rs", text).is_empty());
    }

    #[test]
    fn only_the_named_files_and_benchmarks_may_read() {
        let text = "let t = Instant::now();";
        for path in ALLOWED_FILES.iter().chain(&["bench/src/main.rs", "crates/core/benches/machine.rs"]) {
            assert!(found(path, text).is_empty(), "{path}");
        }
        for path in ["crates/engine/src/call/engine.rs", "crates/core/src/clock.rs", "workbench/src/lib.rs"] {
            assert_eq!(found(path, text).len(), 1, "{path}");
        }
    }
}
