//! The flags of `semel once`.

use crate::invalid_value::InvalidValue;
use crate::stores;
use clap::ValueEnum;
use semel::Class;
use semel_text::{duration, size};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const AFTER_HELP: &str = "\
Examples:
  semel once 'report-{date}' --store sqlite:/var/lib/jobs/once.db -- ./report
  semel once 'schema-{sha256:up.sql}' --store postgres://jobs@db/semel -- \\
      psql -v ON_ERROR_STOP=1 -f up.sql
  semel once 'payout-{date}' --store sqlite:once.db --again-on 75 -- ./payout

Exit codes: the program's own, also on a replay, and
  75   nothing ran; try again later
  76   nobody knows whether the program took effect
  77   refused: the key has another command line, has expired, or is not valid
  126  nothing ran: the program cannot be started
  127  nothing ran: the program was not found
  2    the command line of semel is wrong
The program may use them too; --report tells them apart.";

/// A hundred years: stores have dates up to a limit.
const SPAN_MAX: Duration = Duration::from_hours(36_500 * 24);
/// The most of one stream that is stored: as much as of a response, in total.
const KEEP_BYTES_MAX: usize = 5 << 20;
/// The longest run. The engine's deadline comes after it.
const TIMEOUT_MAX: Duration = Duration::from_hours(366 * 24);

#[derive(Debug, Clone, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(in crate::cli) struct Args {
    /// The key: the same key runs the program once. `{date}` is the store's UTC date (2026-11-19), `{hour}` its hour
    /// (2026-11-19T23), `{sha256:FILE}` a file's hash; write `{{` and `}}` for braces
    #[arg(value_name = "KEY")]
    pub(super) key: String,
    /// Where the record is kept: `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `redis://HOST`. There is no default:
    /// a second store would run everything again
    #[arg(long, value_name = "URL")]
    pub(super) store: stores::Url,
    /// A gateway's configuration file, if it sets the hashing secret, sealing keys or quotas for this store
    #[arg(long, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// These exit codes mean that nothing took effect: the next call runs the program again
    #[arg(long, value_name = "CODES", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    pub(super) again_on: Vec<u8>,
    /// How long the program may run. After that it gets SIGTERM, 10 s later SIGKILL, and the outcome is unknown
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "1h")]
    pub(super) timeout: Duration,
    /// How long to wait while another call runs the program; with 0s the exit code is 75 at once
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "0s")]
    pub(super) wait: Duration,
    /// What a crash of this process means: the outcome is unknown, or the program may run again
    #[arg(long, value_name = "CLASS", default_value = "external")]
    pub(super) class: ProgramClass,
    /// With --class downstream: how long the program recognises repeats
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "24h")]
    pub(super) dedup_window: Duration,
    /// How long after a crash of this process the key still counts as running
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "30s")]
    pub(super) lease: Duration,
    /// How long later calls get the exit code and the output again
    #[arg(long, value_name = "TIME", value_parser = limit, default_value = "30d")]
    pub(super) ttl: Duration,
    /// How long after that later calls are refused, instead of running the program again
    #[arg(long, value_name = "TIME", value_parser = span, default_value = "3650d")]
    pub(super) tombstone: Duration,
    /// How much of the end of the program's standard output is stored, and of its standard error; 0 stores nothing
    #[arg(long, value_name = "SIZE", value_parser = keep, default_value = "64KiB")]
    pub(super) keep: usize,
    /// Write a JSON document about this call to this file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
    /// On a replay, print the program's output only
    #[arg(long)]
    pub(super) quiet: bool,
    /// The program and its arguments. The key is bound to them: with others it is refused
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// What is known about the program's effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgramClass {
    /// After a crash of this process, the outcome is unknown until somebody settles it
    External,
    /// The program recognises repeats by `SEMEL_OPERATION_ID`: after a crash, another call runs it again
    Downstream,
}

impl From<ProgramClass> for Class {
    fn from(class: ProgramClass) -> Self {
        match class {
            ProgramClass::External => Self::External,
            ProgramClass::Downstream => Self::Downstream,
        }
    }
}

fn up_to(span: Duration, max: Duration) -> Result<Duration, InvalidValue> {
    if span <= max {
        Ok(span)
    } else {
        Err(InvalidValue::without_fix(format!("it is too long; at most {}", duration::text(max))))
    }
}

fn span(text: &str) -> Result<Duration, InvalidValue> {
    up_to(duration::parse(text).map_err(InvalidValue::of_sentence)?, SPAN_MAX)
}

fn limit(text: &str) -> Result<Duration, InvalidValue> {
    up_to(duration::parse_limit(text).map_err(InvalidValue::of_sentence)?, SPAN_MAX)
}

fn timeout(text: &str) -> Result<Duration, InvalidValue> {
    up_to(duration::parse_limit(text).map_err(InvalidValue::of_sentence)?, TIMEOUT_MAX)
}

fn keep(text: &str) -> Result<usize, InvalidValue> {
    let bytes = if text == "0" { 0 } else { size::parse(text).map_err(InvalidValue::of_sentence)? };
    if bytes <= KEEP_BYTES_MAX {
        Ok(bytes)
    } else {
        let most = size::text(KEEP_BYTES_MAX);
        Err(InvalidValue::without_fix(format!("it is too large; at most {most}, as for a stored response")))
    }
}
