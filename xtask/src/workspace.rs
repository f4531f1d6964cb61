//! The workspace as the rules see it: its packages, its dependency table and the text of its files, read
//! once.

use std::path::Path;

use serde_json::Value;

use crate::cargo;

/// Everything that the rules check.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) packages: Vec<Package>,
    /// The entries of `[workspace.dependencies]`.
    pub(crate) table: Vec<Entry>,
    /// Every text file that git tracks or would track.
    pub(crate) files: Vec<TextFile>,
}

/// A member of the workspace.
#[derive(Debug, Default)]
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, without a trailing slash.
    pub(crate) directory: String,
    pub(crate) dependencies: Vec<Dependency>,
    /// The root files of its libraries and programs.
    pub(crate) roots: Vec<String>,
    /// The names of the programs in its folder `tests`.
    pub(crate) test_programs: Vec<String>,
}

impl Package {
    /// The file that declares its dependencies.
    pub(crate) fn manifest(&self) -> String {
        format!("{}/Cargo.toml", self.directory)
    }
}

/// A declared dependency.
#[derive(Debug)]
pub(crate) struct Dependency {
    /// The package that it refers to.
    pub(crate) package: String,
    /// Its name in the manifest.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// What a dependency is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Normal,
    Build,
    Dev,
}

/// One line of the dependency table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// Whether it is one of our own crates.
    pub(crate) is_ours: bool,
}

/// A file's path, relative to the root, and its text.
#[derive(Debug)]
pub(crate) struct TextFile {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl TextFile {
    /// Whether it is Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }
}

impl Workspace {
    /// Reads everything.
    pub(crate) fn load() -> Result<Self, String> {
        let mut metadata = cargo::cargo();
        metadata.args(["metadata", "--format-version", "1", "--no-deps"]);
        let packages = parse_metadata(&cargo::capture(metadata)?, &cargo::root())?;
        let files = text_files()?;
        let manifest = files.iter().find(|file| file.path == "Cargo.toml");
        let table = manifest.map(|file| parse_table(&file.text)).unwrap_or_default();
        if packages.is_empty() || table.is_empty() {
            return Err("found no packages or no [workspace.dependencies]: nothing to check".to_owned());
        }
        Ok(Self { packages, table, files })
    }

    /// The Rust sources.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = &TextFile> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

fn text_files() -> Result<Vec<TextFile>, String> {
    let mut list = cargo::git();
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let listed = cargo::capture(list)?;
    let mut paths: Vec<&str> = listed.split('\0').filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let read = |path: &str| {
        // A binary file, or one that is deleted but still in the index, has no lines to check.
        let text = std::fs::read_to_string(cargo::root().join(path)).ok()?;
        Some(TextFile { path: path.to_owned(), text })
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

fn parse_metadata(json: &str, root: &Path) -> Result<Vec<Package>, String> {
    let metadata: Value = serde_json::from_str(json).map_err(|error| format!("cargo metadata: {error}"))?;
    list(&metadata["packages"]).map(|package| parse_package(package, root)).collect()
}

fn parse_package(package: &Value, root: &Path) -> Result<Package, String> {
    let relative = |value: &Value| {
        let path = Path::new(value.as_str()?).strip_prefix(root).ok()?;
        Some(path.to_string_lossy().replace('\\', "/"))
    };
    let name = text(&package["name"]);
    let manifest = relative(&package["manifest_path"]).ok_or(format!("{name} is outside the workspace"))?;
    let beside = ["test", "bench", "example", "custom-build"];
    let is_root = |target: &&Value| !list(&target["kind"]).any(|kind| beside.contains(&text(kind).as_str()));
    let is_test = |target: &&Value| list(&target["kind"]).any(|kind| kind == "test");
    Ok(Package {
        directory: manifest.trim_end_matches("Cargo.toml").trim_end_matches('/').to_owned(),
        dependencies: list(&package["dependencies"]).map(parse_dependency).collect(),
        roots: list(&package["targets"]).filter(is_root).filter_map(|t| relative(&t["src_path"])).collect(),
        test_programs: list(&package["targets"]).filter(is_test).map(|t| text(&t["name"])).collect(),
        name,
    })
}

fn parse_dependency(dependency: &Value) -> Dependency {
    let package = text(&dependency["name"]);
    let name = dependency["rename"].as_str().map_or_else(|| package.clone(), str::to_owned);
    let kind = match dependency["kind"].as_str() {
        Some("dev") => Kind::Dev,
        Some("build") => Kind::Build,
        _ => Kind::Normal,
    };
    Dependency { package, name, kind }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Reads `[workspace.dependencies]`, one entry per line, as this project writes it.
fn parse_table(manifest: &str) -> Vec<Entry> {
    let mut inside = false;
    let mut entries = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') {
            inside = line == "[workspace.dependencies]";
        } else if inside
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once('=')
        {
            entries.push(Entry {
                name: name.trim().to_owned(),
                line: index + 1,
                is_ours: value.contains("path ="),
            });
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [{
        "name": "semel-sql",
        "manifest_path": "/r/crates/sql/Cargo.toml",
        "dependencies": [
            {"name": "semel-core", "kind": null, "rename": null},
            {"name": "sha2", "kind": "dev", "rename": "sha"},
            {"name": "cc", "kind": "build", "rename": null}
        ],
        "targets": [
            {"kind": ["lib"], "src_path": "/r/crates/sql/src/lib.rs"},
            {"kind": ["test"], "name": "claims", "src_path": "/r/crates/sql/tests/claims.rs"}
        ]
    }]}"#;

    #[test]
    fn a_package_is_read_with_its_dependencies_and_roots() {
        let packages = parse_metadata(METADATA, Path::new("/r")).unwrap();
        let [sql] = packages.as_slice() else { panic!("{packages:?}") };
        assert_eq!((sql.name.as_str(), sql.directory.as_str()), ("semel-sql", "crates/sql"));
        assert_eq!(sql.roots, ["crates/sql/src/lib.rs"]);
        assert_eq!(sql.test_programs, ["claims"]);
        let seen: Vec<_> =
            sql.dependencies.iter().map(|d| (d.package.as_str(), d.name.as_str(), d.kind)).collect();
        let expected = [
            ("semel-core", "semel-core", Kind::Normal),
            ("sha2", "sha", Kind::Dev),
            ("cc", "cc", Kind::Build),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn the_table_ends_at_the_next_section() {
        let manifest = "[package]\nname = \"x\"\n[workspace.dependencies]\ncore = { path = \"c\" }\n\n# why\n\
                        sha2 = \"0.11\"\n[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
        let expected = [
            Entry { name: "core".to_owned(), line: 4, is_ours: true },
            Entry { name: "sha2".to_owned(), line: 7, is_ours: false },
        ];
        assert_eq!(parse_table(manifest), expected);
    }
}
