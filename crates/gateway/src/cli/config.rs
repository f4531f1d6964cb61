//! `semel config`. It reads a file in the same way as `serve`.

use super::cli_error::CliError;
use super::table::{Cell, Column, Screen, Table, Tone, WhenNarrow};
use super::{secret_parser, serve};
use crate::bounded_read::{FileKind, ReadError, read_text};
use crate::config::effective::{self, Setting, Source};
use crate::config::{self, Config, ConfigError, Overrides};
use crate::serve::say;
use clap::Subcommand;
use semel_net::target::Target;
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The file that `init` writes.
const SHORT: &str = include_str!("../config/init.toml");
/// The default service in it.
const UPSTREAM: &str = "http://127.0.0.1:3000";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Print the default configuration file, which explains every setting
    Default,
    /// Write a short configuration file for one service. An existing file is never overwritten
    Init {
        /// The file to write; - prints it instead
        #[arg(default_value = "semel.toml")]
        file: PathBuf,
        /// The service to protect, by its URL
        #[arg(long, value_name = "URL", env = "SEMEL_UPSTREAM", value_parser = secret_parser::upstream())]
        upstream: Option<Target>,
    },
    /// Report every mistake in a configuration file, with its line and how to fix it
    Check {
        /// The file to check
        file: PathBuf,
        /// The service, if `semel serve` gets it by flag or variable and the file does not name it
        #[arg(long, value_name = "URL", env = "SEMEL_UPSTREAM", value_parser = secret_parser::upstream())]
        upstream: Option<Target>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the settings that a gateway with this file and environment uses, and where each comes from
    ///
    /// Settings that `semel serve` refuses are reported instead. Passwords and query values in URLs and hashes of tokens are masked.
    /// Flags of `semel serve` override what is shown here.
    Show {
        /// The file. Without it, defaults and environment variables are shown
        #[arg(env = "SEMEL_CONFIG")]
        file: Option<PathBuf>,
        /// Leave out settings that have their default
        #[arg(long)]
        changed: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn main(command: &Command) -> Result<ExitCode, CliError> {
    match command {
        Command::Default => say(config::DEFAULT.trim_end()),
        Command::Init { file, upstream } => init(file, upstream.as_ref())?,
        Command::Check { file, upstream, json } => return check(file, upstream.as_ref(), *json),
        Command::Show { file, changed, json } => show(file.as_deref(), *changed, *json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn init(file: &Path, upstream: Option<&Target>) -> Result<(), CliError> {
    let upstream = upstream.map_or_else(|| UPSTREAM.to_owned(), ToString::to_string);
    let text = short(&upstream);
    // The same mistakes as `config check` would find, before there is a file.
    config::read(&text, &Overrides::default(), &|_| None).map_err(|mistakes| {
        let mistakes: Vec<_> = mistakes
            .iter()
            .map(|ConfigError { problem, fix, .. }| format!("{problem}\n    fix: {fix}"))
            .collect();
        CliError::failed(format!("nothing was written: {}", mistakes.join("\n")))
    })?;
    if file == Path::new("-") {
        say(text.trim_end());
        return Ok(());
    }
    let name = file.display();
    create(file, &text).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            CliError::refused(format!("{name} exists already and was not changed; name another file"))
        }
        _ => CliError::failed(format!("{name} cannot be written: {error}")),
    })?;
    say(&format!("wrote {name}, for the service at {upstream}"));
    say(&format!("start the gateway with: semel serve --config {name}"));
    Ok(())
}

/// The short file for this service.
fn short(upstream: &str) -> String {
    let url = upstream.trim_end_matches('/').replace('\\', "\\\\").replace('"', "\\\"");
    SHORT.replacen("UPSTREAM", &url, 1)
}

/// Writes a new file, or leaves nothing.
fn create(file: &Path, text: &str) -> std::io::Result<()> {
    let mut created = std::fs::OpenOptions::new().write(true).create_new(true).open(file)?;
    created.write_all(text.as_bytes()).inspect_err(|_| {
        // Half a file would have to be removed by hand before another try. The first error says what is wrong.
        let _ = std::fs::remove_file(file);
    })
}

/// A mistake that is not visible in the file alone: a flag or a variable may name the service.
fn check_upstream(config: &Config) -> Result<(), Vec<ConfigError>> {
    if config.target.is_some() {
        return Ok(());
    }
    let problem = "no upstream is set, so there is no service to protect".to_owned();
    let fix =
        "write `url` under [upstream], or add --upstream URL if `semel serve` gets it that way".to_owned();
    Err(vec![ConfigError { problem, fix, ..ConfigError::default() }])
}

/// Mistakes that a running gateway would have met at its start, on this machine.
fn check_startup(config: &Config) -> Result<(), Vec<ConfigError>> {
    let mistakes = config.check_startup();
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

fn check(file: &Path, upstream: Option<&Target>, is_json: bool) -> Result<ExitCode, CliError> {
    let text = text(file)?;
    let over = upstream.map_or_else(Overrides::default, |target| {
        Overrides::default().given("upstream", &target.to_string(), "--upstream (or SEMEL_UPSTREAM)")
    });
    let read = config::read(&text, &over, &config::environment);
    let checked = read.and_then(|config| {
        let mistakes: Vec<_> = [check_upstream(&config), check_startup(&config)]
            .into_iter()
            .filter_map(Result::err)
            .flatten()
            .collect();
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    });
    if is_json {
        let (mistakes, warnings) = match &checked {
            Ok(config) => (Vec::new(), config.warnings()),
            Err(mistakes) => (mistakes.iter().map(document).collect(), Vec::new()),
        };
        let name = file.display().to_string();
        say(&json!({ "file": name, "mistakes": mistakes, "warnings": warnings }).to_string());
        return Ok(if checked.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let config = checked.map_err(|mistakes| CliError::failed(render_mistakes(file, &mistakes)))?;
    let operations = match config.operations.len() {
        1 => "1 operation".to_owned(),
        operations => format!("{operations} operations"),
    };
    let target = config.target.as_ref().map(ToString::to_string).unwrap_or_default();
    say(&format!("{}: no mistakes; {operations}; in front of {target}", file.display()));
    for warning in config.warnings() {
        say(&format!("  warning: {warning}"));
    }
    for operation in &config.operations {
        if let Some(callers) = operation.callers() {
            say(&format!("  {}: {callers}", operation.title()));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn document(mistake: &ConfigError) -> serde_json::Value {
    let (line, column) = mistake.at.map(|at| (at.line, at.column)).unzip();
    let given_by = mistake.given_by.as_deref();
    json!({ "line": line, "column": column, "givenBy": given_by, "what": mistake.problem, "fix": mistake.fix })
}

fn show(file: Option<&Path>, is_changed: bool, is_json: bool) -> Result<(), CliError> {
    let text = file.map(text).transpose()?.unwrap_or_default();
    let environment = Path::new("the environment");
    // Only what `semel serve` accepts has a meaning.
    let failed = |file, mistakes: Vec<ConfigError>| CliError::failed(render_mistakes(file, &mistakes));
    let over = serve::from_environment().map_err(|mistake| failed(environment, vec![mistake]))?;
    config::read(&text, &over, &config::environment)
        .and_then(|config| check_startup(&config))
        .map_err(|mistakes| failed(file.unwrap_or(environment), mistakes))?;
    let mut settings = effective::settings(&text, &over);
    settings.retain(|setting| !is_changed || setting.source != Source::Default);
    if is_json {
        let settings = settings.iter().map(|setting| {
            let Setting { table, key, value, source } = setting;
            json!({ "table": table, "key": key, "value": value, "source": source.to_string() })
        });
        say(&json!({ "settings": settings.collect::<Vec<_>>() }).to_string());
    } else {
        say(&lines(&settings, Screen::of_stdout()).join("\n"));
    }
    Ok(())
}

/// The settings in the form of a file, each with its source.
fn lines(settings: &[Setting], screen: Screen) -> Vec<String> {
    let columns = vec![
        Column::text("SETTING", WhenNarrow::Keep),
        Column::text("VALUE", WhenNarrow::Shorten),
        Column::text("FROM", WhenNarrow::Keep),
    ];
    let mut rows = Vec::new();
    let mut table = "";
    for setting in settings {
        if setting.table != table {
            table = &setting.table;
            rows.push(vec![Cell::new(table).tone(Tone::Strong), Cell::new(""), Cell::new("")]);
        }
        let tone = if setting.source == Source::Default { Tone::Quiet } else { Tone::Plain };
        rows.push(vec![
            Cell::new(format!("  {}", setting.key)),
            Cell::new(&setting.value).tone(tone),
            Cell::new(setting.source.to_string()).tone(tone),
        ]);
    }
    Table::new(screen, columns).lines(&rows)
}

/// The text of a configuration file.
pub(super) fn text(file: &Path) -> Result<String, ReadError> {
    read_text(file, FileKind::Config)
}

/// All mistakes, for people.
pub(super) fn render_mistakes(file: &Path, mistakes: &[ConfigError]) -> String {
    let count =
        if mistakes.len() == 1 { "a mistake".to_owned() } else { format!("{} mistakes", mistakes.len()) };
    let name = file.display().to_string();
    let mut places: Vec<_> = mistakes.iter().map(|mistake| mistake.place(&name)).collect();
    places.sort_unstable();
    places.dedup();
    let has = if places.len() == 1 { "has" } else { "have" };
    let lines: Vec<_> = mistakes.iter().map(|mistake| mistake.message(&name)).collect();
    format!("{} {has} {count}\n{}", places.join(" and "), lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_file_has_no_mistakes_and_names_the_service() {
        let text = short(UPSTREAM);
        let config = config::read(&text, &Overrides::default(), &|_| None).expect("no mistakes");
        assert_eq!(config.target.map(|target| target.to_string()).as_deref(), Some(UPSTREAM));
        // The settings that it only shows are right, too.
        let all =
            text.replace("\n#statuses", "\nstatuses").replace("\n#[[", "\n[[").replace("\n#name", "\nname");
        let all = all.replace("\n#path", "\npath").replace("\n#key", "\nkey");
        let config = config::read(&all, &Overrides::default(), &|_| None).expect("no mistakes");
        assert_eq!(config.operations.len(), 1);
    }

    /// A file with a setting of every kind that is shown in another way.
    const SHOWN: &str = "[upstream]\nurl = \"http://127.0.0.1:3000\"\n\n[store]\nurl = \"postgres://app:s3cret@db/semel\"\n\n\
        [[admin.token]]\nname = \"ops\"\nroles = [\"read\"]\n\
        hash = \"sha256:f717cc288f8244cd16e83dac18a2583f289edb13c096663087f5436e18bde736\"\n\n\
        [[operation]]\nname = \"charge\"\npath = \"/charges\"\nttl = \"7d\"\n";

    #[test]
    fn the_settings_are_printed_as_the_file_says() {
        let over = Overrides::default().given("listen", ":8081", "SEMEL_LISTEN");
        let settings = effective::settings(SHOWN, &over);
        let shown = lines(&settings, Screen { width: Some(80), has_colour: false }).join("\n");
        assert!(!shown.contains("s3cret") && !shown.contains("f717cc28"), "{shown}");
        crate::texts::assert_is("config-show", &shown);
        crate::texts::assert_fits("config-show", &shown, 80);
    }

    #[test]
    fn mistakes_are_printed_as_the_file_says() {
        let text = "[upstream]\nurl = \"ftp://127.0.0.1\"\n\n[listen]\naddress = 8080\nadress = \"x\"\n\n\
            [defaults]\nkey = true\nttl = 30\nwait = \"2 seconds\"\nrequest_max = 10\nclass = \"local\"\n\n\
            [quotas]\nnew_in_total = 100\n\n[[operation]]\npath = \"charges\"\ntll = \"7d\"\n";
        let mistakes = config::read(text, &Overrides::default(), &|_| None).expect_err("mistakes");
        assert!(mistakes.len() >= 8, "{mistakes:?}");
        crate::texts::assert_is("config-check", &render_mistakes(Path::new("semel.toml"), &mistakes));
    }
}
