//! Standard output as a terminal: how wide its lines are, and whether it may have colours.

use std::io::IsTerminal as _;

/// The width of a line; `None` if standard output is not a terminal.
#[cfg(unix)]
pub(crate) fn width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let columns = rustix::termios::tcgetwinsize(&stdout).map_or(0, |size| size.ws_col);
    Some(if columns == 0 { 80 } else { columns.into() })
}

/// The width of a line; `None` if standard output is not a terminal.
#[cfg(not(unix))]
pub(crate) fn width() -> Option<usize> {
    std::io::stdout().is_terminal().then_some(80)
}

/// Whether standard output may have colours: it is a terminal, not a dumb one, and `NO_COLOR` is not set.
pub(crate) fn has_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|terminal| terminal == "dumb");
    std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
}
