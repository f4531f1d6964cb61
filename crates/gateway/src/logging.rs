//! Sets up the log. Keys, tokens and bodies are never logged.

use crate::serve::requests;
use crate::trace::Spans;
use std::io::IsTerminal as _;
use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The format of log lines.
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

/// Sends log lines to standard error, and spans to `spans`. A second call in a process changes nothing.
pub fn begin(form: Form, level: Level, spans: Option<Spans>) {
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none());
    let lines = match form {
        Form::Text => lines.boxed(),
        Form::Json => lines.json().boxed(),
    };
    // Spans are not log lines, at any level. The request log was requested explicitly, so it is written at every
    // level.
    let level = LevelFilter::from(level);
    let is_written = move |what: &Metadata<'_>| {
        let is_request = what.target() == requests::TARGET;
        (*what.level() <= level || is_request) && !Spans::follows(what)
    };
    let written = lines.with_filter(filter_fn(is_written).with_max_level_hint(level.max(LevelFilter::INFO)));
    let followed = spans.map(|spans| spans.with_filter(filter_fn(Spans::follows)));
    let _ = tracing_subscriber::registry().with(written).with(followed).try_init();
}
