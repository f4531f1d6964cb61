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

/// Replaces the file at once: its readers never see a part of it. What is not a file, such as a device or a pipe, is
/// written to as it is.
pub(super) fn write(path: &Path, document: &Value) -> io::Result<()> {
    let text = format!("{document:#}\n");
    // The file behind a link, and not the link, is replaced.
    let path = match fs::canonicalize(path) {
        Ok(found) if !found.is_file() => {
            return File::options().write(true).open(found)?.write_all(text.as_bytes());
        }
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound && !path.is_symlink() => path.to_owned(),
        Err(error) => return Err(error),
    };
    let mut name = path.file_name().map(OsString::from).ok_or(io::ErrorKind::IsADirectory)?;
    name.push(format!(".{}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, &path));
    if replaced.is_err() {
        // It may not exist.
        let _ = fs::remove_file(&new);
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;
    use semel_test_support::ScratchDir;
    use std::os::unix::fs::{FileTypeExt as _, symlink};

    #[test]
    fn only_files_are_replaced() {
        let folder = ScratchDir::new("report");
        let (file, link, dangling) = (folder.join("file"), folder.join("link"), folder.join("dangling"));
        write(&file, &json!(1)).expect("a new file");
        symlink(&file, &link).expect("a link");
        write(&link, &json!(2)).expect("the file behind the link");
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("text"), "2\n");
        symlink(folder.join("missing"), &dangling).expect("a link");
        assert!(write(&dangling, &json!(3)).is_err() && dangling.is_symlink());
        let device = folder.join("device");
        symlink("/dev/null", &device).expect("a link");
        write(&device, &json!(4)).expect("a device takes it");
        assert!(fs::metadata("/dev/null").expect("it exists").file_type().is_char_device());
    }
}
