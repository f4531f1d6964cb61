//! A second implementation in another language, written only from the READMEs, agrees with the vectors.

use std::path::{Path, PathBuf};
use std::process::Command;

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors")
}

/// Runs the other implementation on the vectors in a folder: whether it agreed, and what it printed. `None` without
/// Python, which a full test run does not allow.
fn check(folder: &Path) -> Option<(bool, String)> {
    let mut command = Command::new("python3");
    match command.arg("-B").arg(folder.join("check")).output() {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            Some((output.status.success(), String::from_utf8(text).unwrap()))
        }
        Err(error) => {
            let required = std::env::var_os("SEMEL_TEST_TOOLS").is_some_and(|tools| tools == "required");
            assert!(!required, "python3: {error}");
            eprintln!("skipped: python3 is not installed");
            None
        }
    }
}

#[test]
fn a_second_implementation_agrees_with_every_vector() {
    let Some((agreed, text)) = check(&vectors()) else { return };
    assert!(agreed, "{text}");
    // It may leave out only the vectors whose coding Python cannot decode.
    let left_out: Vec<&str> = text.lines().filter(|line| line.starts_with("not checked")).collect();
    assert!(left_out.iter().all(|line| line.contains(" with br,") || line.contains(" with zstd,")), "{text}");
    let agreeing: usize = text.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(agreeing > 900, "{text}");
}

#[test]
fn a_vector_that_is_wrong_is_found() {
    let copy = std::env::temp_dir().join(format!("semel-vectors-{}", std::process::id()));
    for folder in ["check", "fingerprint", "ids", "inbox", "keys"] {
        std::fs::create_dir_all(copy.join(folder)).unwrap();
        for file in std::fs::read_dir(vectors().join(folder)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), copy.join(folder).join(file.file_name())).unwrap();
            }
        }
    }
    let wrong = copy.join("ids/ids.json");
    let text = std::fs::read_to_string(&wrong).unwrap();
    std::fs::write(&wrong, text.replacen("\"command_id\": \"4", "\"command_id\": \"5", 1)).unwrap();
    let answer = check(&copy);
    std::fs::remove_dir_all(&copy).unwrap();
    let Some((agreed, text)) = answer else { return };
    assert!(!agreed && text.contains("command_id") && text.contains(" 1 differ"), "{text}");
}
