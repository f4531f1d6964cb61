//! Runs programs to their end.

use std::process::{Command, Stdio};

/// Runs a program to its end and returns its standard output. The error is what it printed to standard error.
pub fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(format!("{program}: {}", text(&output.stderr)))
    }
}
