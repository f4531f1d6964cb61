//! How a command fails: its exit code and its reason.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

/// The exit codes, for every command's `--help`.
pub(super) const EXIT_CODES: &str = "Exit codes: 0 done; 1 failed, or nobody could be reached; 2 the command line is wrong; \
                                     3 there is no such record; 4 refused: the record does not allow it";

/// Why a command failed.
#[derive(Debug)]
pub(super) struct CliError {
    code: u8,
    why: Box<dyn Error + Send + Sync>,
}

impl CliError {
    /// It failed, or the server could not be reached.
    pub(super) fn failed(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: 1, why: why.into() }
    }

    /// The command line is wrong.
    pub(super) fn usage(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: 2, why: why.into() }
    }

    /// There is no such record.
    pub(super) fn not_found(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: 3, why: why.into() }
    }

    /// The record does not allow it.
    pub(super) fn refused(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { code: 4, why: why.into() }
    }

    /// Its exit code.
    pub(super) fn code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// Any other error: it failed.
impl<E: Error + Send + Sync + 'static> From<E> for CliError {
    fn from(why: E) -> Self {
        Self::failed(why)
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)
    }
}
