//! Rule: no path of a particular machine in the repository. There are no exceptions; this file builds the
//! names from halves.

use super::violation::Violation;
use crate::workspace::{TextFile, Workspace};

const ABSOLUTE: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.files.iter().flat_map(in_file).collect()
}

fn in_file(file: &TextFile) -> Vec<Violation> {
    let mut found = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for path in ABSOLUTE.iter().filter(|path| begins_in(line, path)) {
            let advice = format!("`{path}` is a path of one machine: write it relative to the repository");
            found.push(Violation::at(&file.path, index + 1, advice));
        }
    }
    found
}

/// Whether the path begins here, and is not part of a relative path or a URL.
fn begins_in(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '~' | '*' | '}'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    fn found(text: &str) -> Vec<String> {
        let file = TextFile { path: "docs/guide.md".to_owned(), text: text.to_owned() };
        messages(&check(&Workspace { files: vec![file], ..Workspace::default() }))
    }

    #[test]
    fn every_absolute_path_is_found_wherever_it_begins() {
        for path in ABSOLUTE {
            for line in
                [format!("{path}x"), format!("cd {path}x"), format!("\"{path}"), format!("file://{path}")]
            {
                let messages = found(&format!("fine\n{line}\n"));
                assert_eq!(messages.len(), 1, "{line}: {messages:?}");
                assert!(messages[0].starts_with("docs/guide.md:2: "), "{}", messages[0]);
            }
        }
    }

    #[test]
    fn relative_paths_and_web_addresses_are_allowed() {
        for path in ABSOLUTE {
            assert!(found(&format!("see crates{path}lib.rs and https://example.org{path}")).is_empty());
        }
    }
}
