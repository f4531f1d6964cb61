//! Checks the guide's pages about errors against the codes that are really sent.

use semel_http::{Code, SPECIFICATION};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

fn guide() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src")
}

fn read(path: &str) -> String {
    fs::read_to_string(guide().join(path)).unwrap_or_else(|error| panic!("docs/guide/src/{path}: {error}"))
}

fn page(code: Code) -> String {
    read(&format!("errors/{}.md", code.as_str()))
}

/// The first example of a problem on a page.
fn example(code: Code) -> Value {
    let page = page(code);
    let (_, block) = page.split_once("```json\n").unwrap_or_else(|| panic!("{code:?}: no example"));
    let (block, _) = block.split_once("```").unwrap_or_else(|| panic!("{code:?}: the example never ends"));
    serde_json::from_str(block).unwrap_or_else(|error| panic!("{code:?}: {error}"))
}

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let codes: BTreeSet<_> = Code::ALL.iter().map(|code| format!("{}.md", code.as_str())).collect();
    let entries = fs::read_dir(guide().join("errors")).expect("the pages");
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text"));
    let pages: BTreeSet<_> = names.filter(|name| name != "README.md").collect();
    assert_eq!(pages, codes);
    assert_eq!(codes.len(), Code::ALL.len());
}

#[test]
fn the_index_and_the_contents_link_every_page() {
    let (index, contents) = (read("errors/README.md"), read("SUMMARY.md"));
    for code in Code::ALL.iter().map(|code| code.as_str()) {
        assert!(index.contains(&format!("]({code}.md)")), "errors/README.md does not link to {code}");
        assert!(contents.contains(&format!("](errors/{code}.md)")), "SUMMARY.md does not link to {code}");
    }
}

#[test]
fn every_page_shows_the_problem_as_it_is_sent() {
    let known: BTreeSet<_> =
        ["type", "title", "status", "code", "detail", "retryable", "operationId"].into_iter().collect();
    for &code in Code::ALL {
        let problem = example(code);
        let text = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
        assert_eq!(text("code"), code.as_str());
        assert_eq!(text("title"), code.title(), "{code:?}");
        assert_eq!(problem["status"], code.status(), "{code:?}");
        assert_eq!(text("type"), format!("{SPECIFICATION}#{}", code.as_str()), "{code:?}");
        assert!(!text("detail").is_empty() && problem["retryable"].is_boolean(), "{code:?}");
        let members = problem.as_object().expect("an object").keys().map(String::as_str);
        assert!(
            members.collect::<BTreeSet<_>>().is_subset(&known),
            "{code:?} has a member that is never sent"
        );
    }
}

#[test]
fn every_page_begins_with_its_code_and_names_both_statuses() {
    for &code in Code::ALL {
        let page = page(code);
        let heading = format!("# {}\n", code.as_str());
        assert!(page.starts_with(&heading), "{code:?} starts differently");
        let statuses = format!("| HTTP {} | gRPC {} ", code.status(), code.grpc_status());
        assert!(page.contains(&statuses), "{code:?} does not say `{statuses}`");
    }
}

/// The cells of a code's row in the index.
fn row(index: &str, code: Code) -> Vec<&str> {
    let start = format!("| [`{}`]", code.as_str());
    let line = index.lines().find(|line| line.starts_with(&start));
    line.unwrap_or_else(|| panic!("{code:?} has no row")).split('|').map(str::trim).collect()
}

/// The numbers of three digits in a text.
fn statuses(text: &str) -> BTreeSet<u16> {
    let numbers = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| digits.len() == 3);
    numbers.filter_map(|digits| digits.parse().ok()).collect()
}

#[test]
fn the_index_has_every_status_of_every_code_and_no_other() {
    let index = read("errors/README.md");
    for &code in Code::ALL {
        let cells = row(&index, code);
        let expected: BTreeSet<u16> = code.statuses().iter().copied().collect();
        assert_eq!(statuses(cells[2]), expected, "{code:?}: {}", cells[2]);
        assert_eq!(cells[3], code.grpc_status().to_string(), "{code:?}");
        assert_eq!(code.statuses()[0], code.status(), "{code:?}: the usual one comes first");
    }
}

#[test]
fn every_page_names_each_status_that_its_code_is_sent_with() {
    for &code in Code::ALL {
        let named = statuses(&page(code));
        for status in code.statuses() {
            assert!(named.contains(status), "{code:?}: {status} is not on its page");
        }
    }
}
