//! How a command fails.

/// Why a command did not succeed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The usage is wrong: exit code 2, with the help text.
    Usage(String),
    /// The command failed, for this reason: exit code 1.
    Stopped(String),
    /// The command has already reported the problem: exit code 1, nothing more to print.
    Reported,
}

/// Refuses arguments for a command that takes none.
pub(crate) fn expect_no_arguments(arguments: &[String]) -> Result<(), Failure> {
    match arguments.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Usage(format!("this command takes no arguments, but got `{first}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_that_would_be_ignored_is_refused() {
        assert!(matches!(expect_no_arguments(&["--fast".to_owned()]), Err(Failure::Usage(_))));
        assert_eq!(expect_no_arguments(&[]), Ok(()));
    }
}
