//! The file itself: whether it is there, whose it is, and whether it is whole.

use super::{Finding, Report, Schema};
use crate::stores::Url;
use semel::core::store::{Error, Inspection, Kind, SchemaVersion, StoreSize};
use std::path::Path;

/// How many lines of damage are told.
const LINES_MAX: usize = 5;

/// The store, where it can be looked at.
pub(super) async fn open(
    url: &Url,
    report: &mut Report,
    found: &mut Vec<Finding>,
) -> Option<Box<dyn Inspection>> {
    if url.backend().is_in_process() {
        found.push(Finding::error(
            "store-not-here",
            format!("{url} lives in the process that made it, and there is nothing to look at from here"),
            "ask the gateway's admin address",
        ));
        return None;
    }
    if let Ok(false) = url.exists().await {
        found.push(Finding::error(
            "store-missing",
            format!("{url} does not exist"),
            "look at the path and the working directory; `semel serve` and `semel schema apply` create it",
        ));
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
            let (what, code) = match have {
                0 => (format!("the {} has no tables of Semel's", noun(url)), "schema-missing"),
                _ => (
                    format!("the {} has schema {have}, and this version works with {wanted}", noun(url)),
                    "schema-old",
                ),
            };
            found.push(Finding::error(code, what, format!("semel schema apply --store {url}")));
        }
        Err(error) if error.kind() == Kind::Unfit => found.push(Finding::error(
            "schema-unfit",
            error.to_string(),
            format!("use the version that has written the {0}, or another {0}", noun(url)),
        )),
        Err(error) => found.push(unopened(url, &error)),
    }
    None
}

/// What people call the place of the records.
pub(super) fn noun(url: &Url) -> &'static str {
    if url.files().is_empty() { "store" } else { "file" }
}

/// How damage is repaired.
fn restored(url: &Url) -> &'static str {
    if url.files().is_empty() {
        "stop the gateways, and restore the store from a backup of its server"
    } else {
        "stop the gateways, and restore the file together with its -wal from a backup"
    }
}

fn unopened(url: &Url, error: &Error) -> Finding {
    let mend = match error.kind() {
        Kind::ReadOnly => "look as the user that the gateway runs as",
        Kind::Unfit if url.files().is_empty() => {
            "do what the message says; where the data is damaged, stop the gateways and restore the store from a backup of its server"
        }
        Kind::Unfit => restored(url),
        _ => "look again; somebody may hold the store, or it cannot be reached",
    };
    Finding::error("store-unreadable", format!("the store cannot be looked at: {error}"), mend)
}

/// It holds other people's answers, and the hashing secret.
#[cfg(unix)]
fn readable_by_others(path: &Path) -> Option<Finding> {
    use std::os::unix::fs::MetadataExt as _;
    let mode = std::fs::metadata(path).ok()?.mode();
    (mode & 0o077 != 0).then(|| {
        let path = path.display();
        Finding::warning(
            "file-open-to-others",
            format!(
                "{path} can be used by others (mode {:03o}): it holds answers and the hashing secret",
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

/// Has all of it read.
pub(super) async fn verify(url: &Url, look: &dyn Inspection, found: &mut Vec<Finding>) -> Result<(), Error> {
    let lines = look.verify().await?;
    if lines.is_empty() {
        return Ok(());
    }
    let told: Vec<_> = lines.iter().take(LINES_MAX).map(String::as_str).collect();
    let more = if lines.len() > LINES_MAX {
        format!(" (and {} more)", lines.len() - LINES_MAX)
    } else {
        String::new()
    };
    let (code, mend) = if url.files().is_empty() {
        ("store-damaged", format!("{}; keys that are somebody else's are removed by hand", restored(url)))
    } else {
        let mend = "stop the gateways, copy the file together with its -wal, and restore it from a backup";
        ("file-damaged", mend.to_owned())
    };
    let what = format!("the {} contradicts itself: {}{more}", noun(url), told.join("; "));
    found.push(Finding::error(code, what, mend));
    Ok(())
}
