//! Rule: the top-level modules of a crate depend on each other in one direction.

use super::lexer::{code_only, is_word};
use super::violation::Violation;
use crate::workspace::{Package, TextFile, Workspace};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        let in_cycles = Modules::of(package, workspace).in_cycles();
        found.extend(in_cycles.iter().map(|(module, cycle)| in_cycle(package, module, cycle)));
    }
    found
}

fn in_cycle(package: &Package, module: &str, cycle: &[String]) -> Violation {
    let advice = format!(
        "module `{module}` depends on itself ({}): move what two modules need to a third one",
        cycle.join(" → ")
    );
    Violation::at(package.manifest(), 0, advice)
}

/// The name of the crate's root among its modules.
const ROOT: &str = "lib";

/// Which top-level module of a crate names which.
#[derive(Debug, Default)]
struct Modules {
    names: BTreeMap<String, BTreeSet<String>>,
}

impl Modules {
    fn of(package: &Package, workspace: &Workspace) -> Self {
        let folder = format!("{}/src/", package.directory);
        let files: Vec<_> = workspace
            .rust_files()
            .filter_map(|file| Some(Source::of(file.path.strip_prefix(&folder)?, file)))
            .collect();
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let only_tests: Vec<_> = files.iter().flat_map(Source::modules_of_tests).collect();
        for module in files.iter().filter_map(Source::module).filter(|module| !only_tests.contains(module)) {
            names.entry(module.to_owned()).or_default();
        }
        // What the crate's root shows under its own name, by the module that has it.
        let mut shown = BTreeMap::new();
        for root in files.iter().filter(|file| file.module().is_none()) {
            for module in names.keys() {
                let items = root.items_below(module);
                shown.extend(items.into_iter().map(|item| (item, module.clone())));
            }
        }
        // What the root has itself, and what that needs.
        for root in files.iter().filter(|file| file.module().is_none()) {
            shown.extend(root.own_items().into_iter().map(|item| (item, ROOT.to_owned())));
            let needed: BTreeSet<_> = names.keys().filter(|module| root.needs(module)).cloned().collect();
            names.entry(ROOT.to_owned()).or_default().extend(needed);
        }
        for file in files.iter().filter(|file| !file.is_test()) {
            let Some(module) = file.module().filter(|module| names.contains_key(*module)) else { continue };
            for name in file.named_at_root() {
                let to = if names.contains_key(&name) { Some(&name) } else { shown.get(&name) };
                if let Some(to) = to.filter(|to| *to != module).cloned() {
                    names.entry(module.to_owned()).or_default().insert(to);
                }
            }
        }
        Self { names }
    }

    /// The modules that can be reached from themselves, each with its shortest way.
    fn in_cycles(&self) -> BTreeMap<String, Vec<String>> {
        let modules = self.names.keys();
        modules.filter_map(|module| Some((module.clone(), self.way_back(module)?))).collect()
    }

    fn way_back(&self, module: &str) -> Option<Vec<String>> {
        let mut ways = vec![vec![module.to_owned()]];
        let mut seen = BTreeSet::new();
        let mut at = 0;
        while let Some(way) = ways.get(at).cloned() {
            at += 1;
            for next in way.last().and_then(|last| self.names.get(last)).into_iter().flatten() {
                let longer: Vec<_> = way.iter().chain([next]).cloned().collect();
                if next == module {
                    return Some(longer);
                }
                if seen.insert(next) {
                    ways.push(longer);
                }
            }
        }
        None
    }
}

/// A source file: its place below `src`, and its code without tests.
struct Source {
    /// The modules that lead to it, without its crate.
    place: Vec<String>,
    code: String,
}

impl Source {
    fn of(path: &str, file: &TextFile) -> Self {
        let mut place: Vec<_> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
        place.pop_if(|last| last == "mod");
        if matches!(&place[..], [root] if root == "lib" || root == "main") {
            place.clear();
        }
        let code = code_only(&file.text);
        let end = start_of_tests(&code).unwrap_or(code.len());
        Self { place, code: code[..end].to_owned() }
    }

    fn module(&self) -> Option<&str> {
        self.place.first().map(String::as_str)
    }

    fn is_test(&self) -> bool {
        self.place.iter().any(|part| part == "tests")
    }

    /// The first names after the crate's root, in all paths.
    fn named_at_root(&self) -> Vec<String> {
        let to_root = "super::".repeat(self.place.len());
        let mut found = self.names_after("crate::");
        if !to_root.is_empty() {
            // A longer row of `super` does not compile, and a shorter one stays inside the module.
            found.extend(self.names_after(&to_root));
        }
        found
    }

    /// The modules that this root declares for its tests.
    fn modules_of_tests(&self) -> Vec<&str> {
        let lines = || self.code.lines().map(str::trim);
        let tests = lines().zip(lines().skip(1)).filter(|(first, _)| is_for_tests(first));
        tests.filter_map(|(_, next)| next.strip_prefix("mod ")?.strip_suffix(';')).collect()
    }

    /// The items that this file defines itself.
    fn own_items(&self) -> Vec<String> {
        let kinds = ["struct ", "enum ", "trait ", "type ", "fn ", "const ", "static "];
        kinds.iter().flat_map(|kind| self.names_after(kind)).collect()
    }

    /// Whether the items of this root need `module`: a `pub use` alone does not.
    fn needs(&self, module: &str) -> bool {
        let path = format!("{module}::");
        let mut statements = self.code.split_inclusive([';', '{', '}']).map(str::trim_start);
        statements.any(|statement| {
            let is_shown = statement.starts_with("pub use ") || statement.starts_with("pub(crate) use ");
            !is_shown && !starts_in(statement, &path).is_empty()
        })
    }

    /// The items of `module` that a `use` of this file names.
    fn items_below(&self, module: &str) -> Vec<String> {
        let path = format!("{module}::");
        let uses = self.starts_of("use ").flat_map(|at| {
            let tree = self.code[at..].split(';').next().unwrap_or_default();
            let rest = tree.trim_start_matches("crate::").strip_prefix(&path);
            rest.into_iter().flat_map(words).collect::<Vec<_>>()
        });
        uses.collect()
    }

    fn names_after(&self, prefix: &str) -> Vec<String> {
        let trees = self.starts_of(prefix).map(|at| &self.code[at..]);
        trees.flat_map(first_names).collect()
    }

    /// Where the text after `prefix` begins, wherever that begins a word.
    fn starts_of(&self, prefix: &str) -> impl Iterator<Item = usize> {
        starts_in(&self.code, prefix).into_iter()
    }
}

fn starts_in(code: &str, prefix: &str) -> Vec<usize> {
    let starts = code.match_indices(prefix).filter_map(|(at, _)| {
        let before = code[..at].chars().next_back();
        let is_start = !before.is_some_and(|c| is_word(c) || c == ':');
        is_start.then_some(at + prefix.len())
    });
    starts.collect()
}

/// Whether this line says that the next item is for tests only.
fn is_for_tests(line: &str) -> bool {
    line.starts_with("#[cfg(") && words(line).any(|word| word == "test")
}

/// Where the tests of a file begin, which are its last part by convention.
fn start_of_tests(code: &str) -> Option<usize> {
    let mut at = 0;
    let mut lines = code.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let begins = lines.peek().is_some_and(|next| next.trim_end().ends_with("mod tests {"));
        if begins && is_for_tests(line) {
            return Some(at);
        }
        at += line.len();
    }
    None
}

fn words(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c| !is_word(c)).filter(|word| !word.is_empty()).map(str::to_owned)
}

/// The names that a path or a group of paths begins with.
fn first_names(tree: &str) -> Vec<String> {
    let Some(group) = tree.strip_prefix('{') else { return words(tree).take(1).collect() };
    let (mut depth, mut items, mut item) = (0_usize, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => items.push(std::mem::take(&mut item)),
            _ => {}
        }
        if depth == 0 && c != ',' {
            item.push(c);
        }
    }
    items.push(item);
    items.iter().flat_map(|item| words(item).take(1).collect::<Vec<_>>()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;

    fn workspace(files: &[(&str, &str)]) -> Workspace {
        let file = |(path, text): &(&str, &str)| TextFile {
            path: format!("crates/sample/src/{path}"),
            text: (*text).to_owned(),
        };
        Workspace {
            packages: vec![Package {
                name: "sample".to_owned(),
                directory: "crates/sample".to_owned(),
                ..Package::default()
            }],
            files: files.iter().map(file).collect(),
            ..Workspace::default()
        }
    }

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        messages(&check(&workspace(files)))
    }

    #[test]
    fn a_cycle_is_found_with_its_way() {
        let files = [
            ("lib.rs", "mod a;\nmod b;\nmod c;\n"),
            ("a.rs", "use crate::b::Thing;\n"),
            ("b/mod.rs", "mod inner;\n"),
            ("b/inner.rs", "use super::super::c;\n"),
            ("c.rs", "fn f() { crate::a::g(); }\n"),
        ];
        let messages = found(&files);
        assert_eq!(messages.len(), 3, "{messages:?}");
        assert!(messages[0].contains("`a` depends on itself (a → b → c → a)"), "{messages:?}");
    }

    #[test]
    fn a_name_that_the_root_shows_leads_to_its_module() {
        let files = [
            ("lib.rs", "pub use a::{Thing, deep::{Other as Another}};\nmod a;\nmod b;\n"),
            ("a.rs", "use crate::b::x;\n"),
            ("b.rs", "use crate::{Another, x};\n"),
        ];
        assert_eq!(found(&files).len(), 2);
    }

    #[test]
    fn the_root_is_a_module_too() {
        let files =
            [("lib.rs", "mod a;\nuse a::helper;\npub struct Thing;\n"), ("a.rs", "use crate::Thing;\n")];
        let messages = found(&files);
        assert!(messages.iter().any(|message| message.contains("(a → lib → a)")), "{messages:?}");
    }

    #[test]
    fn one_direction_tests_comments_and_inner_paths_are_no_cycle() {
        let files = [
            ("lib.rs", "pub use b::B;\nmod a;\nmod b;\n#[cfg(test)]\nmod texts;\n"),
            ("a/mod.rs", "mod x;\nuse crate::{b::{self, c}, d, texts};\n"),
            ("a/x.rs", "use super::y;\n"),
            (
                "b.rs",
                "// crate::a\nfn f() -> &str { \"crate::a\" }\n#[cfg(test)]\nmod tests {\n    use crate::a;\n}\n",
            ),
            ("b/tests.rs", "use crate::a;\n"),
            ("b/unix.rs", "#[cfg(all(test, unix))]\nmod tests {\n    use crate::a;\n}\n"),
            ("texts.rs", "use crate::b;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }
}
