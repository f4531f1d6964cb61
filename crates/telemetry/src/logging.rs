//! Sets up the log. Keys, tokens and bodies are never logged.

use crate::trace::Spans;
use semel_text::printable::printable_json;
use std::io::{self, IsTerminal as _};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The target of the lines of the request log, which are written at every level.
pub const REQUEST_LOG: &str = "semel::requests";

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Form {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Which lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
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
    let has_colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = lines(form, has_colour, io::stderr);
    // Spans are not log lines, at any level. The request log was requested explicitly, so it is written at every
    // level.
    let level = LevelFilter::from(level);
    let is_written = move |metadata: &Metadata<'_>| {
        let is_request = metadata.target() == REQUEST_LOG;
        (*metadata.level() <= level || is_request) && !Spans::follows(metadata)
    };
    let written = lines.with_filter(filter_fn(is_written).with_max_level_hint(level.max(LevelFilter::INFO)));
    let followed = spans.map(|spans| spans.with_filter(filter_fn(Spans::follows)));
    let _ = tracing_subscriber::registry().with(written).with(followed).try_init();
}

/// Log lines in this form, on what `output` returns.
fn lines<S, W>(
    form: Form,
    has_colour: bool,
    output: impl Fn() -> W + Send + Sync + 'static,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: io::Write + 'static,
{
    match form {
        Form::Text => fmt::layer().with_ansi(has_colour).with_writer(output).boxed(),
        Form::Json => fmt::layer().json().with_writer(move || EscapedJson(output())).boxed(),
    }
}

/// Escapes what a JSON string may contain unescaped and what changes how a terminal shows the text around it, such as
/// U+202E. The library escapes it in text lines only.
struct EscapedJson<W>(W);

impl<W: io::Write> io::Write for EscapedJson<W> {
    /// The library writes each line with one call.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let is_plain = |byte: &u8| matches!(byte, b'\n' | b' '..=b'~');
        if lines.iter().all(is_plain) {
            self.0.write_all(lines)?;
            return Ok(lines.len());
        }
        // A line break is between two documents, never in one.
        let text = String::from_utf8_lossy(lines);
        let escaped: Vec<_> = text.split('\n').map(printable_json).collect();
        self.0.write_all(escaped.join("\n").as_bytes())?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::{Arc, Mutex, PoisonError};

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What `run` writes to the log.
    pub(crate) fn captured(form: Form, run: impl FnOnce()) -> String {
        let output = Output::default();
        let writer = output.clone();
        let lines = lines(form, false, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), run);
        let bytes = output.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("text")
    }

    /// What is written about two reasons.
    fn logged(form: Form, reasons: [&str; 2]) -> String {
        captured(form, || {
            for reason in reasons {
                tracing::info!(reason, "an operator released a key");
            }
        })
    }

    #[test]
    fn characters_that_change_the_text_around_them_are_escaped() {
        let reasons = ["a\u{202e}b\u{9b}\u{e0041}\u{7f}é", "plain \"words\""];
        for form in [Form::Text, Form::Json] {
            let text = logged(form, reasons);
            assert!(
                text.chars().all(|letter| letter == '\n' || semel_text::printable::is_printable(letter)),
                "{text:?}"
            );
            assert!(text.contains("202e") && text.contains('é'), "{text}");
        }
        let text = logged(Form::Json, reasons);
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for (line, reason) in lines.iter().zip(reasons) {
            assert_eq!(line["fields"]["reason"], reason, "{line}");
        }
    }
}
