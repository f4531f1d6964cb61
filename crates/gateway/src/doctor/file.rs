//! The file itself: whether it is there, whose it is, and whether it is whole.

use super::{Finding, Report, Schema, advice};
use crate::stores::Url;
use semel::core::store::{Error, Inspection, Kind, SchemaVersion, StoreSize};
use std::path::Path;

/// How many lines of damage are reported.
const LINES_MAX: usize = 5;

/// The store, if it can be read.
pub(super) async fn open(
    url: &Url,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Option<Box<dyn Inspection>> {
    if url.backend().is_in_process() {
        found.push(Finding::error(
            "store-not-here",
            format!("{url} exists only in the process that opened it, so nothing can be checked from here"),
            "use the gateway's admin address",
        ));
        return None;
    }
    if let Ok(false) = url.exists().await {
        found.push(Finding::error("store-missing", format!("{url} does not exist"), advice::missing(url)));
        return None;
    }
    if let Err(error) = url.check_files() {
        found.push(Finding::error("store-unreadable", error.to_string(), advice::named_wrongly(url)));
        return None;
    }
    let look = url.inspect().await;
    let look = look.map_err(|error| found.push(unopened(url, &error))).ok()?;
    let StoreSize { data_bytes, log_bytes } = look.size();
    (report.file_bytes, report.log_bytes) = (data_bytes, log_bytes);
    found.extend(url.files().first().and_then(|path| readable_by_others(path)));
    let schema = look.schema().await;
    match schema {
        Ok(SchemaVersion { have, wanted }) => {
            report.schema = Some(Schema { have, wanted });
            if have == wanted {
                return Some(look);
            }
            let (problem, code) = match have {
                0 => (format!("the {} has no tables of Semel", noun(url)), "schema-missing"),
                _ => (
                    format!("the {} has schema {have}, but this version needs {wanted}", noun(url)),
                    "schema-old",
                ),
            };
            found.push(Finding::error(code, problem, format!("semel schema apply --store {url}")));
        }
        Err(error) if error.kind() == Kind::Unfit => found.push(Finding::error(
            "schema-unfit",
            error.to_string(),
            format!("use the version of Semel that wrote the {0}, or another {0}", noun(url)),
        )),
        Err(error) => found.push(unopened(url, &error)),
    }
    None
}

/// What to call the store: a file or a database.
fn noun(url: &Url) -> &'static str {
    if url.files().is_empty() { "store" } else { "file" }
}

fn unopened(url: &Url, error: &Error) -> Finding {
    let problem = format!("the store cannot be read: {error}");
    Finding::error("store-unreadable", problem, advice::unopened(url, error))
}

/// It contains responses of others, and the hashing secret.
#[cfg(unix)]
fn readable_by_others(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = std::fs::metadata(path).ok()?.mode();
    (mode & 0o077 != 0).then(|| {
        let path = path.display();
        Finding::warning(
            "file-open-to-others",
            format!(
                "other users can access {path} (mode {:03o}); it contains responses and the hashing secret",
                mode & 0o777
            ),
            format!("chmod 600 {path}"),
        )
    })
}

#[cfg(not(unix))]
fn readable_by_others(_: &Path) -> Option<Finding> {
    None
}

/// Reads all of it.
pub(super) async fn verify(url: &Url, look: &dyn Inspection, found: &mut Vec<Finding>) -> Result<(), Error> {
    let lines = look.verify().await?;
    if lines.is_empty() {
        return Ok(());
    }
    let listed: Vec<_> = lines.iter().take(LINES_MAX).map(String::as_str).collect();
    let more = if lines.len() > LINES_MAX {
        format!(" (and {} more)", lines.len() - LINES_MAX)
    } else {
        String::new()
    };
    let (code, fix) = if url.files().is_empty() {
        ("store-damaged", format!("{}; remove keys of other applications by hand", advice::restored(url)))
    } else {
        let fix = "stop the gateways, copy the file together with its -wal, and restore it from a backup";
        ("file-damaged", fix.to_owned())
    };
    let problem = format!("the {} is inconsistent: {}{more}", noun(url), listed.join("; "));
    found.push(Finding::error(code, problem, fix));
    Ok(())
}
