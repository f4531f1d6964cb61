//! Asking before something that cannot be undone.

use super::cli_error::CliError;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Asks `question` on the terminal, unless `--yes` was given. Without a terminal, nothing is done.
pub(super) fn confirm(question: &str, is_yes: bool) -> Result<(), CliError> {
    if is_yes {
        return Ok(());
    }
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(CliError::usage(
            "this needs a confirmation, and standard input is not a terminal: add --yes",
        ));
    }
    let mut err = std::io::stderr().lock();
    // If the question cannot be shown, the answer below is not a yes.
    let _ = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    read.map_err(|error| CliError::failed(format!("standard input cannot be read: {error}")))?;
    if is_yes_word(&answer) { Ok(()) } else { Err(CliError::failed("not confirmed; nothing was changed")) }
}

fn is_yes_word(answer: &str) -> bool {
    ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_yes_is_a_yes() {
        assert!(is_yes_word("y\n") && is_yes_word(" YES \n"));
        for no in ["", "\n", "n\n", "yep\n", "ye\n", "1\n"] {
            assert!(!is_yes_word(no), "{no:?}");
        }
    }
}
