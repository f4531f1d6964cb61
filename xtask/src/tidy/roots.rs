//! Rule: every crate starts with what belongs there and what does not ("lives here", "must never").

use super::violation::Violation;
use crate::workspace::Workspace;

const PHRASES: &[&str] = &["lives here", "must never"];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for path in workspace.packages.iter().flat_map(|package| &package.roots) {
        match workspace.files.iter().find(|file| &file.path == path) {
            Some(file) => found.extend(missing(&file.text).map(|phrase| missing_phrase(path, phrase))),
            None => found.push(Violation::at(path, 0, "git does not track this crate root")),
        }
    }
    found
}

fn missing_phrase(path: &str, phrase: &str) -> Violation {
    let advice = format!("open the crate with a `//!` paragraph that says \"What {phrase}: …\"");
    Violation::at(path, 1, advice)
}

/// The phrases that are missing in the opening paragraphs. A phrase may continue on the next line.
fn missing(text: &str) -> impl Iterator<Item = &'static str> {
    let opening = text.lines().map_while(|line| line.strip_prefix("//!"));
    let words: Vec<String> = opening.flat_map(str::split_whitespace).map(str::to_lowercase).collect();
    let prose = words.join(" ");
    PHRASES.iter().copied().filter(move |phrase| !prose.contains(phrase))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;
    use crate::workspace::{Package, TextFile};

    fn found(text: &str) -> Vec<String> {
        let path = "crates/core/src/lib.rs".to_owned();
        let package = Package { roots: vec![path.clone()], ..Package::default() };
        let file = TextFile { path, text: text.to_owned() };
        messages(&check(&Workspace { packages: vec![package], files: vec![file], ..Workspace::default() }))
    }

    #[test]
    fn a_root_without_the_paragraph_lacks_both_phrases() {
        for text in ["", "pub mod key;\n", "use a;\n//! What lives here: a.\n//! What must never: b.\n"] {
            assert_eq!(found(text).len(), 2, "{text}");
        }
    }

    #[test]
    fn a_root_with_one_phrase_lacks_the_other() {
        let messages = found("//! The core.\n//!\n//! What lives here: keys.\n\npub mod key;\n");
        assert_eq!(messages.len(), 1);
        assert!(messages[0].starts_with("crates/core/src/lib.rs:1: ") && messages[0].contains("must never"));
    }

    #[test]
    fn a_phrase_may_run_over_the_end_of_a_line() {
        assert!(found("//! All of it lives\n//! here. What Must\n//! never: I/O.\n").is_empty());
    }

    #[test]
    fn a_root_that_git_does_not_know_is_found() {
        let package = Package { roots: vec!["src/lib.rs".to_owned()], ..Package::default() };
        assert_eq!(check(&Workspace { packages: vec![package], ..Workspace::default() }).len(), 1);
    }
}
