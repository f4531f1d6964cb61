//! What went wrong with a file.

use std::io::{self, ErrorKind};
use std::path::Path;

/// An error about a file, with the file's path.
pub fn describe(path: &Path, error: &io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => {
            "; another user may have created it, so continue as that user or as root"
        }
        _ => "",
    };
    format!("{}: {error}{hint}", path.display())
}
