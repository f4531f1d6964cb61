//! Rule: a file of more than 700 lines is two files.

use super::violation::Violation;
use crate::workspace::{TextFile, Workspace};

const LINES_MAX: usize = 700;

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    workspace.rust_files().filter_map(too_long).collect()
}

fn too_long(file: &TextFile) -> Option<Violation> {
    let lines = file.text.lines().count();
    let advice = format!("{lines} lines; at most {LINES_MAX} are allowed: split the file by subject");
    (lines > LINES_MAX).then(|| Violation::at(&file.path, lines, advice))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(path: &str, lines: usize) -> Workspace {
        let file = TextFile { path: path.to_owned(), text: "x\n".repeat(lines) };
        Workspace { files: vec![file], ..Workspace::default() }
    }

    #[test]
    fn the_line_past_the_limit_is_the_violation() {
        assert_eq!(check(&sample("a.rs", LINES_MAX)), []);
        assert_eq!(check(&sample("a.rs", LINES_MAX + 1)).len(), 1);
    }

    #[test]
    fn only_sources_are_counted() {
        assert_eq!(check(&sample("Cargo.lock", LINES_MAX + 1)), []);
    }
}
