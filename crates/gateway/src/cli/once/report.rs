//! The document that `--report` writes.

use super::conclusion::Conclusion;
use semel::core::record::StateName;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

pub(super) fn document(conclusion: &Conclusion, key: Option<&str>) -> Value {
    json!({
        "happened": conclusion.happened.name(),
        "key": key,
        "operationId": conclusion.operation_id.map(|id| id.to_string()),
        "attempt": conclusion.attempt,
        "exitCode": conclusion.program_code,
        "state": conclusion.state.map(StateName::as_str),
        "reason": conclusion.reason,
    })
}

/// Replaces the file at once: its readers never see a part of it.
pub(super) fn write(path: &Path, document: &Value) -> io::Result<()> {
    let mut name = path.file_name().map(OsString::from).ok_or(io::ErrorKind::IsADirectory)?;
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(format!("{document:#}\n").as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, path));
    if replaced.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&new);
    }
    replaced
}
