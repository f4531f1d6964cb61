//! Where log lines go.
//!
//! What lives here: the one subscriber. What must never: a key, a token or a body in a log line.

use std::io::IsTerminal as _;
use tracing_subscriber::filter::LevelFilter;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Which lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
#[expect(missing_docs, reason = "named after the levels that everybody knows")]
pub enum Level {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl From<Level> for LevelFilter {
    fn from(level: Level) -> Self {
        match level {
            Level::Error => Self::ERROR,
            Level::Warn => Self::WARN,
            Level::Info => Self::INFO,
            Level::Debug => Self::DEBUG,
        }
    }
}

/// Sends log lines to standard error from now on. The second call in a process changes nothing.
pub fn begin(form: Form, level: Level) {
    let lines = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let _ = match form {
        Form::Text => lines.try_init(),
        Form::Json => lines.json().try_init(),
    };
}
