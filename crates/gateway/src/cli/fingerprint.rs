//! `semel fingerprint`: why was my retry refused? It compares requests exactly as the gateway does.

use super::cli_error::CliError;
use crate::bounded_read::{FileKind, read_or_stdin};
use crate::difference;
use semel::core::fingerprint::{Limits, Request, Selection};
use semel::core::scope::{Operation, normal_method, normal_path};
use serde_json::json;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const EXIT_CODES: &str = "Exit codes: 0 there is one body, or both are the same request; 1 they are not; 2 the bodies cannot be read, or the command line is wrong";

#[derive(Debug, clap::Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Args {
    /// The request's body; - reads standard input
    file: PathBuf,
    /// Another body, to see where the two differ and why a retry was refused
    other: Option<PathBuf>,
    /// The content type of the body
    #[arg(long, value_name = "TYPE", default_value = "application/json")]
    content_type: String,
    /// The content encoding of the body: gzip, deflate, br or zstd
    #[arg(long, value_name = "CODING")]
    content_encoding: Option<String>,
    /// The request's method, in any letter case
    #[arg(long, default_value = "POST")]
    method: String,
    /// The request's path, in any spelling, with the query string if there is one
    #[arg(long, default_value = "/")]
    path: String,
    /// The operation's name, if it is not method and path
    #[arg(long, value_name = "NAME")]
    operation: Option<String>,
    /// Compare only the value at this JSON pointer; can be given several times
    #[arg(long, value_name = "POINTER")]
    include: Vec<String>,
    /// Leave out the value at this JSON pointer; can be given several times
    #[arg(long, value_name = "POINTER")]
    exclude: Vec<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Compares two bodies: exit code 0 if they are the same request (or there is only one), 1 if not, 2 if they cannot be
/// read, as `diff` and `cmp` do.
pub(super) fn main(arguments: &Args) -> Result<ExitCode, CliError> {
    let first = Read::of(&arguments.file, arguments)?;
    let Some(other) = &arguments.other else {
        crate::serve::say(&first.render(arguments.json));
        return Ok(ExitCode::SUCCESS);
    };
    let second = Read::of(other, arguments)?;
    let is_same = first.hash == second.hash;
    crate::serve::say(&compared(&first, &second, arguments.json));
    Ok(ExitCode::from(u8::from(!is_same)))
}

/// A body, as the gateway reads it.
struct Read {
    hash: String,
    canonical: Vec<u8>,
}

impl Read {
    fn of(file: &Path, arguments: &Args) -> Result<Self, CliError> {
        let body = read_or_stdin(file, FileKind::RequestBody).map_err(CliError::usage)?;
        let selection = Selection::default()
            .including(&arguments.include)
            .and_then(|selection| selection.excluding(&arguments.exclude))
            .map_err(CliError::usage)?;
        let (path, query) = match arguments.path.split_once('?') {
            Some((path, query)) => (path, Some(query.as_bytes())),
            None => (arguments.path.as_str(), None),
        };
        let (method, path) = (normal_method(&arguments.method), normal_path(path));
        let operation = Operation::route(&method, &path).to_string();
        let codings: Vec<_> = arguments.content_encoding.iter().map(String::as_bytes).collect();
        let request = Request {
            query,
            content_type: &[arguments.content_type.as_bytes()],
            content_encoding: &codings,
            ..Request::new(&method, arguments.operation.as_ref().unwrap_or(&operation), &path, &body)
        };
        let limits = Limits::default();
        let failed = |error| CliError::usage(format!("{} has no fingerprint: {error}", file.display()));
        let hash = request.fingerprint(&selection, &limits).map_err(failed)?;
        let canonical = request.canonical_body(&selection, &limits).map_err(failed)?;
        Ok(Self { hash: hash.to_hex(), canonical })
    }

    fn render(&self, is_json: bool) -> String {
        let canonical = String::from_utf8_lossy(&self.canonical);
        if is_json {
            return json!({ "fingerprint": self.hash, "canonical": canonical }).to_string();
        }
        format!("{canonical}\n\nfingerprint {}", self.hash)
    }
}

fn compared(first: &Read, second: &Read, is_json: bool) -> String {
    let is_same = first.hash == second.hash;
    let differences = difference::differences(&first.canonical, &second.canonical);
    if is_json {
        let differences: Vec<_> = differences
            .iter()
            .map(|difference| {
                json!({
                    "at": difference.at.to_string(), "first": difference.first, "second": difference.second,
                })
            })
            .collect();
        return json!({
            "same": is_same, "fingerprints": [first.hash, second.hash], "differences": differences,
        })
        .to_string();
    }
    if is_same {
        return format!("the same request\n\nfingerprint {}", first.hash);
    }
    let mut render = String::from("not the same request: with one key, the second is refused\n");
    for difference in &differences {
        let shown = |side: &Option<String>| side.clone().unwrap_or_else(|| "(not there)".to_owned());
        let _ = write!(
            render,
            "\n{}\n  first   {}\n  second  {}",
            difference.at,
            shown(&difference.first),
            shown(&difference.second)
        );
    }
    if differences.len() == difference::PLACES_MAX {
        render.push_str("\n\nand perhaps more");
    }
    render
}
