//! Rule: unused dependencies are removed. It needs no installed tool.

use super::lexer::{code_only, is_word};
use super::violation::Violation;
use crate::workspace::{Dependency, Kind, Package, Workspace};

pub(crate) fn check(workspace: &Workspace) -> Vec<Violation> {
    let mut found = Vec::new();
    for package in &workspace.packages {
        let sources = Sources::of(package, workspace);
        let unused = package.dependencies.iter().filter(|dependency| !sources.name(dependency));
        found.extend(unused.map(|dependency| unused_dependency(package, dependency)));
    }
    let declared = || workspace.packages.iter().flat_map(|package| &package.dependencies);
    for entry in &workspace.table {
        if !declared().any(|dependency| dependency.name == entry.name) {
            let advice = format!("no crate uses `{}`: remove it from [workspace.dependencies]", entry.name);
            found.push(Violation::at("Cargo.toml", entry.line, advice));
        }
    }
    found
}

fn unused_dependency(package: &Package, dependency: &Dependency) -> Violation {
    let location = match dependency.kind {
        Kind::Normal => "src/",
        Kind::Build => "build.rs",
        Kind::Dev => "any source",
    };
    let advice = format!("`{}` is not named in {location}: remove it, or move it", dependency.name);
    Violation::at(package.manifest(), 0, advice)
}

/// A package's code: its sources, its build script, and everything including tests, benchmarks and examples.
struct Sources {
    product: Vec<String>,
    build: Vec<String>,
    all: Vec<String>,
}

impl Sources {
    fn of(package: &Package, workspace: &Workspace) -> Self {
        let code_under = |prefix: String| -> Vec<String> {
            let files = workspace.rust_files().filter(|file| file.path.starts_with(&prefix));
            files.map(|file| code_only(&file.text)).collect()
        };
        Self {
            product: code_under(format!("{}/src/", package.directory)),
            build: code_under(format!("{}/build.rs", package.directory)),
            all: code_under(format!("{}/", package.directory)),
        }
    }

    fn name(&self, dependency: &Dependency) -> bool {
        let sources = match dependency.kind {
            Kind::Normal => &self.product,
            Kind::Build => &self.build,
            Kind::Dev => &self.all,
        };
        let identifier = dependency.name.replace('-', "_");
        sources.iter().any(|code| names(code, &identifier))
    }
}

/// Whether a path in the code begins with this crate. Variables of that name and modules inside other paths
/// do not count.
fn names(code: &str, identifier: &str) -> bool {
    code.match_indices(identifier).any(|(start, _)| {
        let (before, after) = (&code[..start], &code[start + identifier.len()..]);
        let begins = match before.strip_suffix("::") {
            Some(outer) => !outer.ends_with(|c| is_word(c) || c == '>'),
            None => !before.ends_with(is_word),
        };
        let imported = ["use ", "extern crate "].iter().any(|keyword| before.ends_with(keyword));
        let ends_import = after.starts_with(';') || after.starts_with(" as ");
        begins && (after.starts_with("::") || (imported && ends_import))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::violation::messages;
    use crate::workspace::{Entry, TextFile};

    fn found(name: &str, kind: Kind, path: &str, text: &str) -> Vec<String> {
        let dependency = Dependency { package: name.to_owned(), name: name.to_owned(), kind };
        let package = Package {
            name: "semel-core".to_owned(),
            directory: "crates/core".to_owned(),
            dependencies: vec![dependency],
            ..Package::default()
        };
        let files = vec![TextFile { path: path.to_owned(), text: text.to_owned() }];
        messages(&check(&Workspace { packages: vec![package], files, ..Workspace::default() }))
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        let messages =
            found("sha2", Kind::Normal, "crates/core/src/lib.rs", "// sha2::Sha256\nlet s = \"sha2::\";");
        assert_eq!(messages, ["crates/core/Cargo.toml: `sha2` is not named in src/: remove it, or move it"]);
    }

    #[test]
    fn a_variable_or_module_of_that_name_does_not_count() {
        for text in
            ["let bytes = 1;", "f(bytes);", "crate::bytes::f();", "my_bytes::f();", "use crate::bytes;"]
        {
            assert_eq!(found("bytes", Kind::Normal, "crates/core/src/lib.rs", text).len(), 1, "{text}");
        }
    }

    #[test]
    fn every_way_to_name_a_crate_counts() {
        for text in
            ["use bytes::Bytes;", "f(::bytes::X)", "use bytes;", "use bytes as b;", "#[derive(bytes::A)]"]
        {
            assert!(found("bytes", Kind::Normal, "crates/core/src/lib.rs", text).is_empty(), "{text}");
        }
        let brotli =
            found("brotli-decompressor", Kind::Normal, "crates/core/src/a.rs", "brotli_decompressor::f()");
        assert!(brotli.is_empty());
    }

    #[test]
    fn each_kind_must_be_named_where_it_belongs() {
        let text = "use criterion::Criterion;";
        assert_eq!(found("criterion", Kind::Normal, "crates/core/benches/b.rs", text).len(), 1);
        assert!(found("criterion", Kind::Dev, "crates/core/benches/b.rs", text).is_empty());
        assert_eq!(found("criterion", Kind::Build, "crates/core/src/lib.rs", text).len(), 1);
        assert!(found("criterion", Kind::Build, "crates/core/build.rs", text).is_empty());
        assert_eq!(found("criterion", Kind::Dev, "crates/core-two/src/lib.rs", text).len(), 1);
    }

    #[test]
    fn a_table_entry_that_no_crate_declares_is_found() {
        let table = vec![Entry { name: "sha2".to_owned(), line: 21, is_ours: false }];
        let messages = messages(&check(&Workspace { table, ..Workspace::default() }));
        assert_eq!(
            messages,
            ["Cargo.toml:21: no crate uses `sha2`: remove it from [workspace.dependencies]"]
        );
    }
}
