//! Prints the story: lines of at most 80 columns, with pauses, and with colours on a terminal.

use super::cast::money;
use crate::demo::client::{Client, Reply};
use owo_colors::{OwoColorize, Style};
use serde_json::Value;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

/// How long the pauses are, so that a reader can follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// After a request.
    pub line: Duration,
    /// Before an act.
    pub act: Duration,
}

impl Pace {
    /// For a reader at a terminal.
    pub const READING: Self = Self { line: Duration::from_millis(130), act: Duration::from_millis(700) };
    /// For a file, a pipe or a test: no pause at all.
    pub const BRISK: Self = Self { line: Duration::ZERO, act: Duration::ZERO };

    /// The pace that fits standard output.
    pub fn of_stdout() -> Self {
        if io::stdout().is_terminal() { Self::READING } else { Self::BRISK }
    }
}

/// Indents every line below the acts' numbers.
const MARGIN: &str = "   ";

pub(super) struct StoryWriter<'w, W> {
    out: &'w mut W,
    pace: Pace,
    has_colour: bool,
    acts: u32,
}

/// What a line means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Quiet,
    Strong,
    Good,
    Again,
    Doubtful,
    Bad,
}

impl Tone {
    fn style(self) -> Style {
        let style = Style::new();
        match self {
            Self::Plain => style,
            Self::Quiet => style.dimmed(),
            Self::Strong => style.bold(),
            Self::Good => style.green(),
            Self::Again => style.cyan(),
            Self::Doubtful => style.yellow(),
            Self::Bad => style.red(),
        }
    }
}

impl<'w, W: Write> StoryWriter<'w, W> {
    pub(super) fn new(out: &'w mut W, pace: Pace, has_colour: bool) -> Self {
        Self { out, pace, has_colour, acts: 0 }
    }

    /// The title of the story.
    pub(super) async fn title(&mut self, title: &str) -> io::Result<()> {
        let title = self.toned(title, Tone::Strong);
        writeln!(self.out, "{MARGIN}{title}\n")?;
        self.pause(self.pace.line).await
    }

    /// Begins an act.
    pub(super) async fn act(&mut self, heading: &str) -> io::Result<()> {
        self.pause(self.pace.act).await?;
        self.acts += 1;
        let heading = self.toned(&format!("{}  {heading}", self.acts), Tone::Strong);
        writeln!(self.out, "\n{heading}\n")?;
        self.pause(self.pace.line).await
    }

    /// A line of text.
    pub(super) fn say(&mut self, text: &str) -> io::Result<()> {
        self.say_as(text, Tone::Plain)
    }

    /// A line of text, in a tone.
    pub(super) fn say_as(&mut self, text: &str, tone: Tone) -> io::Result<()> {
        let text = self.toned(text, tone);
        let margin = if text.is_empty() { "" } else { MARGIN };
        writeln!(self.out, "{margin}{text}")
    }

    /// Bytes that are already formatted.
    pub(super) fn raw(&mut self, text: &[u8]) -> io::Result<()> {
        self.out.write_all(text)
    }

    /// A line whose last word has its own tone.
    pub(super) async fn point(&mut self, text: &str, last: &str, tone: Tone) -> io::Result<()> {
        let last = self.toned(last, tone);
        writeln!(self.out, "{MARGIN}{text}{last}")?;
        self.pause(self.pace.line).await
    }

    /// The columns of [`request`](Self::request).
    pub(super) fn columns(&mut self) -> io::Result<()> {
        let line = row("who", "key", "amount", "what happens", "ans");
        self.say_as(&format!("{line}wer         charge"), Tone::Quiet)
    }

    /// A request and its outcome.
    pub(super) async fn request(&mut self, client: &Client, action: &str, reply: &Reply) -> io::Result<()> {
        self.request_for(client, client.amount, action, reply).await
    }

    /// The same, for another amount than intended.
    pub(super) async fn request_for(
        &mut self,
        client: &Client,
        amount: u64,
        action: &str,
        reply: &Reply,
    ) -> io::Result<()> {
        let Described { status, result, tone, charge } = describe(reply);
        let line = row(client.customer, short(&client.key), &money(amount), action, &status);
        let last = if charge.is_empty() { result.to_owned() } else { format!("{result:<8} {charge}") };
        self.point(&format!("{line}  "), &last, tone).await
    }

    async fn pause(&mut self, duration: Duration) -> io::Result<()> {
        self.out.flush()?;
        if !duration.is_zero() {
            tokio::time::sleep(duration).await;
        }
        Ok(())
    }

    fn toned(&self, text: &str, tone: Tone) -> String {
        if !self.has_colour || tone == Tone::Plain || text.is_empty() {
            return text.to_owned();
        }
        text.style(tone.style()).to_string()
    }
}

fn row(client: &str, key: &str, amount: &str, action: &str, status: &str) -> String {
    format!("{client:<4} {key:<6} {amount:>6}  {action:<35} {status:>3}")
}

/// The first characters of a key.
fn short(key: &str) -> &str {
    key.get(..6).unwrap_or(key)
}

/// A response, described in a word.
struct Described {
    status: String,
    result: &'static str,
    tone: Tone,
    /// The id on the receipt.
    charge: String,
}

fn describe(reply: &Reply) -> Described {
    let Reply::Answer(answer) = reply else {
        return Described { status: "-".to_owned(), result: "lost", tone: Tone::Bad, charge: String::new() };
    };
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let member = |name: &str| body[name].as_str().unwrap_or_default();
    let is_success = (200..300).contains(&answer.status);
    let (result, tone) = match (answer.status, member("code")) {
        _ if is_success && answer.is_replay => ("replayed", Tone::Again),
        _ if is_success => ("ran", Tone::Good),
        (503, "") => ("not run", Tone::Doubtful),
        (_, "IDEMPOTENCY_OUTCOME_UNKNOWN") => ("unknown", Tone::Doubtful),
        (_, "IDEMPOTENCY_KEY_REUSED_WITH_DIFFERENT_REQUEST") => ("refused", Tone::Doubtful),
        (_, "UPSTREAM_FAILED" | "UPSTREAM_TIMEOUT") => ("in doubt", Tone::Doubtful),
        _ => ("failed", Tone::Bad),
    };
    let charge = if is_success { member("id").to_owned() } else { String::new() };
    Described { status: answer.status.to_string(), result, tone, charge }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::client::Answer;
    use bytes::Bytes;

    fn result(status: u16, is_replay: bool, body: &'static str) -> (&'static str, String) {
        let body = Bytes::from_static(body.as_bytes());
        let described = describe(&Reply::Answer(Answer { status, is_replay, operation_id: None, body }));
        (described.result, described.charge)
    }

    #[test]
    fn a_response_is_described_by_its_status_and_body() {
        let receipt = r#"{"id": "ch_7"}"#;
        assert_eq!(result(201, false, receipt), ("ran", "ch_7".to_owned()));
        assert_eq!(result(201, true, receipt), ("replayed", "ch_7".to_owned()));
        assert_eq!(result(503, false, r#"{"error": "busy"}"#).0, "not run");
        assert_eq!(result(503, false, r#"{"code": "IDEMPOTENCY_STORE_UNAVAILABLE"}"#).0, "failed");
        assert_eq!(result(409, false, r#"{"code": "IDEMPOTENCY_OUTCOME_UNKNOWN"}"#).0, "unknown");
        assert_eq!(result(409, false, r#"{"code": "IDEMPOTENCY_REQUEST_IN_PROGRESS"}"#).0, "failed");
        assert_eq!(result(500, true, "").0, "failed");
    }

    #[tokio::test]
    async fn colours_are_printed_only_on_request() {
        for has_colour in [false, true] {
            let mut out = Vec::new();
            let mut voice = StoryWriter::new(&mut out, Pace::BRISK, has_colour);
            voice.act("heading").await.expect("memory");
            voice.point("text ", "last", Tone::Good).await.expect("memory");
            voice.say("").expect("memory");
            assert_eq!(out.contains(&0x1b), has_colour);
            assert!(out.ends_with(b"\n\n"), "an empty line is empty");
        }
    }
}
