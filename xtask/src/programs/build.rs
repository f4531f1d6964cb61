//! Builds the test programs, and learns from cargo where they are.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::Program;

/// Builds the test programs that `command`, a `cargo test` with its arguments, would run. Cargo's messages are passed
/// on. Fails if one cannot be built.
pub(crate) fn build(mut command: Command, root: &Path) -> io::Result<Vec<Program>> {
    command.args(["--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the tests cannot be built"));
    }
    Ok(programs(&String::from_utf8_lossy(&output.stdout), root))
}

fn programs(messages: &str, root: &Path) -> Vec<Program> {
    messages.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?, root)).collect()
}

/// The test program that a message of cargo reports as built, if it does.
fn program(message: &Value, root: &Path) -> Option<Program> {
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    let file = message["executable"].as_str().filter(|_| is_test)?;
    let target = &message["target"];
    let (name, kind) = (target["name"].as_str()?, target["kind"][0].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let package = folder.strip_prefix(root).unwrap_or(folder).display().to_string();
    let name = match kind {
        "lib" => "unit tests".to_owned(),
        "bin" => format!("unit tests of the program {name}"),
        "test" => name.to_owned(),
        other => format!("{other} {name}"),
    };
    Some(Program { package, name, file: file.into(), folder: folder.to_path_buf(), arguments: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGES: &str = r#"{"reason":"compiler-artifact","package_id":"serde","manifest_path":"/other/Cargo.toml","target":{"kind":["lib"],"name":"serde"},"profile":{"test":false},"executable":null}
not JSON
{"reason":"compiler-artifact","manifest_path":"/semel/crates/core/Cargo.toml","target":{"kind":["lib"],"name":"semel_core"},"profile":{"test":true},"executable":"/semel/target/core-1"}
{"reason":"compiler-artifact","manifest_path":"/semel/crates/gateway/Cargo.toml","target":{"kind":["bin"],"name":"semel"},"profile":{"test":false},"executable":"/semel/target/semel"}
{"reason":"compiler-artifact","manifest_path":"/semel/crates/gateway/Cargo.toml","target":{"kind":["bin"],"name":"semel"},"profile":{"test":true},"executable":"/semel/target/semel-2"}
{"reason":"compiler-artifact","manifest_path":"/semel/crates/gateway/Cargo.toml","target":{"kind":["test"],"name":"library"},"profile":{"test":true},"executable":"/semel/target/library-3"}
{"reason":"build-finished","success":true}"#;

    #[test]
    fn only_test_programs_are_run() {
        let found: Vec<_> = programs(MESSAGES, Path::new("/semel"))
            .iter()
            .map(|program| (program.to_string(), program.file.display().to_string()))
            .collect();
        let expected = [
            ("unit tests of crates/core", "/semel/target/core-1"),
            ("unit tests of the program semel of crates/gateway", "/semel/target/semel-2"),
            ("library of crates/gateway", "/semel/target/library-3"),
        ];
        assert_eq!(found, expected.map(|(name, file)| (name.to_owned(), file.to_owned())));
    }
}
