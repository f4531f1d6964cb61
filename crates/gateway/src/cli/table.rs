//! Tables for people, which fit the terminal. Stored data cannot change what the terminal shows.

use crate::terminal;
use owo_colors::{OwoColorize as _, Style};
use semel_text::printable::printable;

/// Between two columns.
const GAP: usize = 2;
/// The minimum width of a column that is cut.
const CUT_MIN: usize = 12;

/// The terminal that a table is printed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Screen {
    /// The width of a line; unlimited if it is not a terminal.
    pub(super) width: Option<usize>,
    pub(super) has_colour: bool,
}

impl Screen {
    pub(super) fn of_stdout() -> Self {
        Self { width: terminal::width(), has_colour: terminal::has_colour() }
    }

    /// The text in the colour of its tone, if colours are on.
    pub(super) fn tinted(self, text: &str, tone: Tone) -> String {
        let style = match tone {
            Tone::Plain => return text.to_owned(),
            Tone::Quiet => Style::new().dimmed(),
            Tone::Strong => Style::new().bold(),
            Tone::Good => Style::new().green(),
            Tone::Doubtful => Style::new().yellow(),
            Tone::Bad => Style::new().red(),
            Tone::Attention => Style::new().bold().red(),
        };
        if self.has_colour { text.style(style).to_string() } else { text.to_owned() }
    }
}

/// What a cell means, which decides its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Quiet,
    Strong,
    Good,
    Doubtful,
    Bad,
    /// Somebody has to act.
    Attention,
}

/// One cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(super) fn new(text: impl AsRef<str>) -> Self {
        Self { text: printable(text.as_ref()), tone: Tone::Plain }
    }

    pub(super) fn tone(mut self, tone: Tone) -> Self {
        self.tone = tone;
        self
    }
}

/// What happens to a column when there is no room for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhenNarrow {
    /// It stays as it is.
    Keep,
    /// It is cut at its end.
    Shorten,
    /// It is left out; the highest number goes first.
    Omit(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) when_narrow: WhenNarrow,
    pub(super) is_number: bool,
}

impl Column {
    pub(super) const fn text(name: &'static str, when_narrow: WhenNarrow) -> Self {
        Self { name, when_narrow, is_number: false }
    }

    pub(super) const fn number(name: &'static str, when_narrow: WhenNarrow) -> Self {
        Self { name, when_narrow, is_number: true }
    }
}

/// Columns, and their widths so far: a table may be printed in parts.
#[derive(Debug, Clone)]
pub(super) struct Table {
    columns: Vec<Column>,
    widths: Vec<usize>,
    screen: Screen,
    has_head: bool,
}

impl Table {
    pub(super) fn new(screen: Screen, columns: Vec<Column>) -> Self {
        let widths = columns.iter().map(|column| column.name.chars().count()).collect();
        Self { columns, widths, screen, has_head: false }
    }

    /// The rows, with the columns' names above the first ones. Lines have no trailing spaces.
    pub(super) fn lines(&mut self, rows: &[Vec<Cell>]) -> Vec<String> {
        for row in rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = cell.text.chars().count().max(*width);
            }
        }
        let (kept, widths) = self.fitted();
        let mut lines = Vec::new();
        if !self.has_head {
            self.has_head = true;
            let head: Vec<_> =
                self.columns.iter().map(|column| Cell::new(column.name).tone(Tone::Quiet)).collect();
            lines.push(self.line(&head, &kept, &widths));
        }
        lines.extend(rows.iter().map(|row| self.line(row, &kept, &widths)));
        lines
    }

    /// The columns for which there is room, and their widths.
    fn fitted(&self) -> (Vec<usize>, Vec<usize>) {
        let mut kept: Vec<_> = (0..self.columns.len()).collect();
        let mut widths = self.widths.clone();
        let Some(width) = self.screen.width else { return (kept, widths) };
        let total = |kept: &[usize], widths: &[usize]| {
            kept.iter().map(|at| widths[*at]).sum::<usize>() + GAP * kept.len().saturating_sub(1)
        };
        // Columns are cut first, down to a useful width, before any is left out.
        let cut = |kept: &[usize], widths: &mut [usize]| {
            for at in kept.iter().copied().filter(|at| self.columns[*at].when_narrow == WhenNarrow::Shorten) {
                let over = total(kept, widths).saturating_sub(width);
                widths[at] = widths[at].saturating_sub(over).max(CUT_MIN.min(widths[at]));
            }
        };
        cut(&kept, &mut widths);
        while total(&kept, &widths) > width {
            let rank = |at: &usize| match self.columns[*at].when_narrow {
                WhenNarrow::Omit(rank) => Some((rank, *at)),
                WhenNarrow::Keep | WhenNarrow::Shorten => None,
            };
            let Some((_, goes)) = kept.iter().filter_map(rank).max() else { break };
            kept.retain(|at| *at != goes);
            widths.clone_from(&self.widths);
            cut(&kept, &mut widths);
        }
        (kept, widths)
    }

    fn line(&self, row: &[Cell], kept: &[usize], widths: &[usize]) -> String {
        let mut line = String::new();
        for (index, at) in kept.iter().enumerate() {
            let (Some(cell), width) = (row.get(*at), widths[*at]) else { continue };
            let text = shortened(&cell.text, width);
            let room = " ".repeat(width.saturating_sub(text.chars().count()));
            let text = self.screen.tinted(&text, cell.tone);
            if index > 0 {
                line.push_str(&" ".repeat(GAP));
            }
            let is_last = index + 1 == kept.len();
            match self.columns[*at].is_number {
                true => line.extend([&room, &text].map(String::as_str)),
                false if is_last => line.push_str(&text),
                false => line.extend([&text, &room].map(String::as_str)),
            }
        }
        line.truncate(line.trim_end_matches(' ').len());
        line
    }
}

/// The text in at most `width` characters.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column::text("ID", WhenNarrow::Keep),
        Column::text("OPERATION", WhenNarrow::Shorten),
        Column::number("ATTEMPT", WhenNarrow::Omit(1)),
        Column::text("CALLER", WhenNarrow::Omit(2)),
    ];

    fn lines(width: Option<usize>, rows: &[[&str; 4]]) -> Vec<String> {
        let rows: Vec<Vec<_>> = rows.iter().map(|row| row.map(Cell::new).to_vec()).collect();
        Table::new(Screen { width, has_colour: false }, COLUMNS.to_vec()).lines(&rows)
    }

    #[test]
    fn columns_are_aligned_and_numbers_to_the_right() {
        assert_eq!(
            lines(None, &[["a", "POST /charges", "1", "x"], ["bb", "y", "10", "zz"]]),
            [
                "ID  OPERATION      ATTEMPT  CALLER",
                "a   POST /charges        1  x",
                "bb  y                   10  zz",
            ]
        );
    }

    #[test]
    fn a_table_is_cut_before_columns_are_left_out() {
        let row = ["id", "POST /accounts/4711/charges", "1", "caller"];
        for width in [80, 47, 40, 35, 30, 24, 16] {
            for line in lines(Some(width), &[row]) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
        assert_eq!(lines(Some(40), &[row])[1], "id  POST /accounts/471…        1  caller");
        assert_eq!(lines(Some(24), &[row])[0], "ID  OPERATION");
        assert_eq!(lines(Some(5), &[row])[1], "id  POST /accou…", "required columns stay");
    }

    #[test]
    fn parts_of_a_table_share_their_columns_and_have_one_head() {
        let mut table = Table::new(Screen { width: None, has_colour: false }, COLUMNS.to_vec());
        let row = |texts: [&str; 4]| vec![texts.map(Cell::new).to_vec()];
        assert_eq!(table.lines(&row(["a", "b", "1", "c"])).len(), 2);
        assert_eq!(table.lines(&row(["a", "b", "1", "c"])), ["a   b                1  c"]);
    }

    #[test]
    fn stored_text_cannot_control_the_terminal() {
        let [_, line] = &lines(None, &[["a\u{1b}[2J", "b\r\n", "1\u{202e}", "\u{9b}1m"]])[..] else {
            panic!("two lines")
        };
        assert!(semel_text::printable::is_all_printable(line), "{line:?}");
    }
}
