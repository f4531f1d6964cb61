//! Each comparison, on documentation with an unknown name and on documentation without a known one.

use super::*;
use crate::tidy::violation::messages;

const FILES: [(&str, &str); 8] = [
    (
        "crates/telemetry/src/metrics/mod.rs",
        "counter(\"idempotency_claims_total\"); gauge(\"semel_build_info\");",
    ),
    (
        "crates/http/src/names.rs",
        "KEY = from_static(\"idempotency-key\"); ID = from_static(\"operation-id\");",
    ),
    ("crates/http/src/problem/code.rs", "    Missing = \"MISSING_KEY\", 400, 3, \"No key\";"),
    ("crates/admin/src/service/problem.rs", "    Invalid = \"INVALID_REQUEST\", 400, \"Not valid\";"),
    (
        "crates/admin/src/service/records.rs",
        "#[path(get, path = \"/v1/records/{id}\")] Problem::new(Code::Missing, StatusCode::OK)",
    ),
    ("crates/gateway/src/config/default.toml", "[listen]\n#ttl = \"24h\"   # how long\nkept = { as = 1 }\n"),
    ("docs/guide/src/headers.md", "`Idempotency-Key`, `Operation-Id`"),
    (
        "docs/guide/src/admin-errors.md",
        "| `INVALID_REQUEST` | 400 | fix it |\nGET /v1/records/OPERATION_ID\n`MISSING_KEY`, semel_build_info, \
         idempotency_claims_total\n```toml\nttl = \"1h\"\n```\n",
    ),
];

/// The violations if this text is added to a page, or removed from all pages.
fn found_with(added: &str, removed: &str) -> Vec<String> {
    let mut files: Vec<_> = FILES
        .iter()
        .map(|(path, text)| {
            let text = if path.starts_with("docs/") && !removed.is_empty() {
                text.replace(removed, "")
            } else {
                (*text).to_owned()
            };
            TextFile { path: (*path).to_owned(), text }
        })
        .collect();
    files.push(TextFile { path: "docs/guide/src/more.md".to_owned(), text: added.to_owned() });
    messages(&check(&Workspace { files, ..Workspace::default() }))
}

#[test]
fn documentation_that_matches_the_code_passes() {
    assert_eq!(found_with("", ""), Vec::<String>::new());
}

#[test]
fn a_name_that_the_code_does_not_have_is_found() {
    for (text, name) in [
        ("rate(idempotency_claims_bucket[5m])", "`idempotency_claims` is not a metric"),
        ("`Idempotency-Colour`", "`idempotency-colour` is not a header"),
        ("```toml\ntll = \"1h\"\n```", "`tll` is not a configuration key"),
        ("`NO_SUCH_CODE`", "`NO_SUCH_CODE` is not a code"),
        ("POST /v1/records/7a/settle", "`/v1/records/{id}/settle` is not a path"),
    ] {
        let found = found_with(text, "");
        assert!(found.len() == 1 && found[0].contains(name), "{text}: {found:?}");
        assert!(found[0].starts_with("docs/guide/src/more.md:"), "{found:?}");
    }
}

#[test]
fn a_name_that_no_page_has_is_found() {
    for (text, name) in [
        ("idempotency_claims_total", "the metric `idempotency_claims_total`"),
        ("semel_build_info", "the metric `semel_build_info`"),
        ("`Operation-Id`", "the header `operation-id`"),
        ("/v1/records/OPERATION_ID", "the path `/v1/records/{id}`"),
        ("| `INVALID_REQUEST` | 400 | fix it |", "codes and statuses"),
        ("`MISSING_KEY`", "the code of the admin address `MISSING_KEY`"),
    ] {
        let found = found_with("", text);
        assert!(found.iter().any(|line| line.contains(name)), "{text}: {found:?}");
    }
}

#[test]
fn other_languages_in_examples_are_not_read_as_configuration() {
    let manifest = "```toml\n[dependencies]\nsqlx = \"0.9\"\n```\n";
    assert_eq!(
        found_with(&format!("```rust\ntll = 1\n```\ntll = 2\n`_`\n{manifest}"), ""),
        Vec::<String>::new()
    );
}
