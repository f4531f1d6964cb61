//! Rule: every dependency is declared once, and a page in `docs/decisions/` says why it is needed.

use super::violation::Violation;
use crate::workspace::Workspace;

const PAGES: &str = "docs/decisions/";

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found = undeclared(workspace);
    let pages = || workspace.files.iter().filter(|file| file.path.starts_with(PAGES));
    for entry in workspace.table.iter().filter(|entry| !entry.is_ours) {
        // In backticks, because a name such as `bytes` is also an ordinary word.
        let name = format!("`{}`", entry.name);
        if !pages().any(|page| page.text.contains(&name)) {
            let advice = format!("no page in {PAGES} says why we depend on {name}: write one line there");
            found.push(Violation::at("Cargo.toml", entry.line, advice));
        }
    }
    found
}

/// Dependencies that a crate declares outside the workspace table.
fn undeclared(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        for dependency in &package.dependencies {
            if !workspace.table.iter().any(|entry| entry.name == dependency.name) {
                let advice = format!(
                    "`{}` is not in the workspace table: declare it in [workspace.dependencies], and use `.workspace = true`",
                    dependency.name
                );
                found.push(Violation::at(package.manifest(), 0, advice));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;
    use crate::workspace::{Dependency, Entry, Kind, Package, TextFile};

    fn sample(path: &str, text: &str) -> Workspace {
        let entry = |name: &str, line, is_ours| Entry { name: name.to_owned(), line, is_ours };
        Workspace {
            table: vec![entry("semel-core", 16, true), entry("bytes", 19, false)],
            files: vec![TextFile { path: path.to_owned(), text: text.to_owned() }],
            ..Workspace::default()
        }
    }

    #[test]
    fn a_dependency_without_a_reason_is_found() {
        let messages = messages(&check(&sample("docs/decisions/machine.md", "A key has at most 255 bytes.")));
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].starts_with("Cargo.toml:19: ") && messages[0].contains("`bytes`"));
    }

    #[test]
    fn a_reason_on_another_page_does_not_count() {
        assert_eq!(check(&sample("README.md", "We use `bytes`.")).len(), 1);
    }

    #[test]
    fn one_line_is_enough_and_our_own_crates_need_none() {
        assert_eq!(check(&sample("docs/decisions/machine.md", "- `bytes`: cheap clones of a body.")), []);
    }

    #[test]
    fn a_dependency_outside_the_workspace_table_is_found() {
        let mut sample = sample("docs/decisions/machine.md", "`bytes`");
        let dependency = Dependency { package: "libc".to_owned(), name: "libc".to_owned(), kind: Kind::Dev };
        let package =
            Package { directory: "sim".to_owned(), dependencies: vec![dependency], ..Package::default() };
        sample.packages.push(package);
        let messages = messages(&check(&sample));
        assert_eq!(messages.len(), 1);
        assert!(
            messages[0].starts_with("sim/Cargo.toml: `libc` is not in the workspace table"),
            "{}",
            messages[0]
        );
    }
}
