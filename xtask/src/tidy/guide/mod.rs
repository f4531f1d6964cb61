//! Rule: the documentation names exactly the metrics, headers, configuration keys, error codes and admin
//! paths that the code has.
//!
//! Two more comparisons need the code itself and are tests there: flags (`crates/gateway/src/cli`), and the
//! configuration file (`crates/gateway/src/config`).

mod scan;

use std::collections::{BTreeMap, BTreeSet};

use super::violation::Violation;
use crate::workspace::{TextFile, Workspace};
use scan::{Location, literals, locations, settings, toml_keys};

const HEADERS: &str = "crates/http/src/names.rs";
const HEADERS_PAGE: &str = "docs/guide/src/headers.md";
const CONFIGURATION: &str = "crates/gateway/src/config/default.toml";
const CODES: &str = "crates/http/src/problem/code.rs";
const ADMIN_CODES: &str = "crates/admin/src/service/problem.rs";
const ADMIN_CODES_PAGE: &str = "docs/guide/src/admin-errors.md";

/// Names in capitals that are not error codes: states, gRPC's statuses, variables, placeholders.
const OTHER_CAPITALS: &[&str] = &[
    "DEADLINE_EXCEEDED",
    "FAILED_NOT_REPLAYABLE",
    "FAILED_PRECONDITION",
    "FAILED_REPLAYABLE",
    "GLIBC_TUNABLES",
    "INVALID_ARGUMENT",
    "LD_PRELOAD",
    "MALLOC_ARENA_MAX",
    "NOT_FOUND",
    "NO_COLOR",
    "OPERATION_ID",
    "REFUSED_STREAM",
    "RESOURCE_EXHAUSTED",
];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let docs = Docs(workspace);
    let mut found = metrics(&docs);
    found.extend(headers(&docs));
    found.extend(configuration(&docs));
    found.extend(codes(&docs));
    found.extend(admin_codes(&docs));
    found.extend(shared_codes(&docs));
    found.extend(admin_paths(&docs));
    found
}

/// The files that are compared.
struct Docs<'a>(&'a Workspace);

impl<'a> Docs<'a> {
    fn below(&self, folder: &'a str) -> impl Iterator<Item = &'a TextFile> {
        self.0.files.iter().filter(move |file| file.path.starts_with(folder))
    }

    fn text(&self, path: &str) -> &'a str {
        self.0.files.iter().find(|file| file.path == path).map_or("", |file| &file.text)
    }
}

fn is_lower(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

fn is_upper(c: char) -> bool {
    c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_'
}

/// Each name that is in `documented`, but not in `known`.
fn unknown(documented: Vec<(String, Location)>, known: &BTreeSet<String>, kind: &str) -> Vec<Violation> {
    let is_unknown = |(name, _): &(String, Location)| !known.contains(name);
    let violation = |(name, location): (String, Location)| {
        Violation::at(location.file, location.line, format!("`{name}` is not a {kind} that the code has"))
    };
    documented.into_iter().filter(is_unknown).map(violation).collect()
}

/// Each name that is in `known`, but on no page.
fn undocumented(
    known: &BTreeSet<String>,
    documented: &BTreeSet<String>,
    file: &str,
    kind: &str,
) -> Vec<Violation> {
    let missing = known.difference(documented);
    missing.map(|name| Violation::at(file, 0, format!("the {kind} `{name}` is documented nowhere"))).collect()
}

fn metrics(docs: &Docs<'_>) -> Vec<Violation> {
    const FOLDER: &str = "crates/telemetry/src/metrics/";
    let is_metric = |name: &str| name.starts_with("idempotency_") || name.starts_with("semel_");
    let mut known = BTreeSet::new();
    for file in docs.below(FOLDER) {
        known.extend(literals(&file.text).filter(|name| is_metric(name) && name.chars().all(is_lower)));
    }
    let mut documented = Vec::new();
    for file in docs.below("docs/") {
        for (name, location) in locations(file, is_lower) {
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            documented.push((base.unwrap_or(name).to_owned(), location));
        }
    }
    let names = documented.iter().map(|(name, _)| name.clone()).collect();
    let mut found = undocumented(&known, &names, FOLDER, "metric");
    // The names of crates and of the patterns' tables begin with `semel_` too.
    documented.retain(|(name, _)| name.starts_with("idempotency_"));
    found.extend(unknown(documented, &known, "metric"));
    found
}

fn headers(docs: &Docs<'_>) -> Vec<Violation> {
    let is_header = |name: &str| name.starts_with("idempotency-") || name.starts_with("operation-");
    let known: BTreeSet<_> = literals(docs.text(HEADERS)).filter(|name| is_header(name)).collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let (mut documented, mut on_page) = (Vec::new(), BTreeSet::new());
    for file in docs.below("docs/guide/src/") {
        for (name, location) in locations(file, is_part) {
            // Written as headers are: `Idempotency-Key`. A file name is not.
            let lower = name.to_ascii_lowercase();
            if is_header(&lower)
                && name.split('-').all(|part| part.starts_with(|c: char| c.is_ascii_uppercase()))
            {
                if file.path == HEADERS_PAGE {
                    on_page.insert(lower.clone());
                }
                documented.push((lower, location));
            }
        }
    }
    let mut found = unknown(documented, &known, "header");
    found.extend(undocumented(&known, &on_page, HEADERS_PAGE, "header"));
    found
}

/// Keys in the guide's examples. The other direction is a test of the gateway, which parses the file.
fn configuration(docs: &Docs<'_>) -> Vec<Violation> {
    let known = settings(docs.text(CONFIGURATION));
    if known.is_empty() {
        return vec![Violation::at(CONFIGURATION, 0, "no keys were found")];
    }
    docs.below("docs/guide/src/")
        .flat_map(|file| unknown(toml_keys(file), &known, "configuration key"))
        .collect()
}

fn codes(docs: &Docs<'_>) -> Vec<Violation> {
    let of_file = |path: &str| literals(docs.text(path)).filter(|name| name.chars().all(is_upper));
    let mut known: BTreeSet<_> = of_file(CODES).chain(of_file(ADMIN_CODES)).collect();
    known.extend(OTHER_CAPITALS.iter().map(|name| (*name).to_owned()));
    let mut documented = Vec::new();
    for file in docs.below("docs/guide/src/") {
        let quoted = |name: &str| file.text.contains(&format!("`{name}`"));
        let is_code = |name: &str| name.trim_matches('_').contains('_') && quoted(name);
        let names = locations(file, is_upper).filter(|(name, _)| is_code(name));
        documented.extend(names.map(|(name, location)| (name.to_owned(), location)));
    }
    documented.retain(|(name, _)| !name.starts_with("SEMEL_"));
    unknown(documented, &known, "code")
}

/// Each error code of the admin API has a line with its status, and each line has a code.
fn admin_codes(docs: &Docs<'_>) -> Vec<Violation> {
    let source = docs.text(ADMIN_CODES);
    let mut known = BTreeMap::new();
    for line in source.lines() {
        // `    Invalid = "INVALID_REQUEST", 400, "The request is not valid";`
        let Some((_, rest)) = line.split_once(" = \"") else { continue };
        let Some((code, rest)) = rest.split_once("\", ") else { continue };
        let status = rest.split(',').next().unwrap_or_default();
        if status.len() == 3 && code.chars().all(is_upper) {
            known.insert(code.to_owned(), status.to_owned());
        }
    }
    let mut documented = BTreeMap::new();
    for line in docs.text(ADMIN_CODES_PAGE).lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().trim_matches('`').to_owned());
        let (code, status) = (cells.next().unwrap_or_default(), cells.next().unwrap_or_default());
        if code.chars().all(is_upper) {
            documented.insert(code, status);
        }
    }
    if known == documented && !known.is_empty() {
        return Vec::new();
    }
    let advice = format!("codes and statuses are not those of {ADMIN_CODES}: {known:?}");
    vec![Violation::at(ADMIN_CODES_PAGE, 0, advice)]
}

/// The admin address also sends codes that protected services have: its page names each.
fn shared_codes(docs: &Docs<'_>) -> Vec<Violation> {
    const FOLDER: &str = "crates/admin/src/service/";
    let mut sent = BTreeSet::new();
    for file in docs.below(FOLDER) {
        for (at, _) in
            file.text.match_indices("Code::").filter(|(at, _)| !file.text[..*at].ends_with("Status"))
        {
            let name = file.text[at + "Code::".len()..].split(|c: char| !c.is_ascii_alphanumeric()).next();
            sent.extend(name.map(str::to_owned));
        }
    }
    let mut known = BTreeSet::new();
    for line in docs.text(CODES).lines() {
        // `    Missing = "MISSING_IDEMPOTENCY_KEY", 400, 3, "The request has no idempotency key";`
        let Some((name, rest)) = line.split_once(" = \"") else { continue };
        if sent.contains(name.trim()) {
            known.extend(rest.split('"').next().map(str::to_owned));
        }
    }
    let page = docs.text(ADMIN_CODES_PAGE);
    let named = known.iter().filter(|code| page.contains(&format!("`{code}`"))).cloned().collect();
    undocumented(&known, &named, ADMIN_CODES_PAGE, "code of the admin address")
}

fn admin_paths(docs: &Docs<'_>) -> Vec<Violation> {
    const FOLDER: &str = "crates/admin/src/service/";
    let known: BTreeSet<_> = docs
        .below(FOLDER)
        .flat_map(|file| scan::served(&file.text))
        .map(|path| scan::normal(&path))
        .collect();
    let is_part = |c: char| c.is_ascii_alphanumeric() || "/-_{}$".contains(c);
    let mut documented = Vec::new();
    for file in docs.below("docs/guide/src/") {
        for (path, location) in locations(file, is_part) {
            let ours = ["/v1/records", "/v1/claims", "/v1/clock", "/v1/inboxes", "/v1/shadow"];
            if let Some(at) =
                path.find("/v1/").filter(|at| ours.iter().any(|our| path[*at..].starts_with(our)))
            {
                documented.push((scan::normal(&path[at..]), location));
            }
        }
    }
    let names = documented.iter().map(|(path, _)| path.clone()).collect();
    let mut found = undocumented(&known, &names, FOLDER, "path");
    // `/v1/clock` also stands for the paths below it.
    let is_prefix = |path: &str| known.iter().any(|longer| longer.starts_with(&format!("{path}/")));
    documented.retain(|(path, _)| !is_prefix(path));
    found.extend(unknown(documented, &known, "path"));
    found
}

#[cfg(test)]
mod tests;
