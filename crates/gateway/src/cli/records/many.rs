//! Resolving many records the same way.
//!
//! What lives here: which ones, the question whether they are meant, and a report about each. What must never: a record that is
//! resolved without having been shown, or one whose refusal hides that of another.

use super::super::cli_error::CliError;
use super::super::confirm::confirm;
use super::super::say_document;
use super::super::table::Screen;
use super::super::target::{ask, foreign};
use super::filters::{Filters, push};
use super::list::{records_table, row};
use super::pages::{Page, page};
use super::settle::describe_result;
use crate::admin_client::AdminClient;
use crate::serve::say;
use http::Method;
use semel::SystemClock;
use semel::core::id::OperationId;
use semel::core::store::Clock as _;
use semel_admin::client::Reply;
use semel_http::Failure;
use semel_text::printable::printable;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a gateway that is asked too fast is given, and how often.
const WAIT_MAX: Duration = Duration::from_secs(30);
const TRIES: usize = 5;

/// The `UNKNOWN` records that match, `limit` at most.
pub(super) async fn matching(
    client: &AdminClient,
    filters: &Filters,
    limit: usize,
    is_json: bool,
) -> Result<Vec<Value>, CliError> {
    let mut query = filters.query(SystemClock.now(), None)?;
    push(&mut query, "state", "UNKNOWN");
    let (mut found, mut after) = (Vec::new(), None::<String>);
    while found.len() < limit {
        let Page { records, next, .. } =
            page(client, &query, limit - found.len(), after.as_deref(), is_json).await?;
        found.extend(records);
        after = next;
        if after.is_none() {
            break;
        }
    }
    if found.is_empty() {
        return Err(CliError::not_found("no UNKNOWN record matches"));
    }
    if after.is_some() && !is_json {
        eprintln!(
            "there are more than {limit}; these are the first. Use --limit for more, or run this again"
        );
    }
    Ok(found)
}

/// The records with these ids, each found before any is resolved.
pub(super) async fn named(
    client: &AdminClient,
    ids: &[String],
    is_json: bool,
) -> Result<Vec<Value>, CliError> {
    let mut found: Vec<Value> = Vec::new();
    for beginning in ids {
        let id = super::find_operation_id(client, beginning, is_json).await?;
        let record = ask(client, Method::GET, &format!("/v1/records/{id}"), None, is_json).await?;
        if !found.iter().any(|known| known["operationId"] == record["operationId"]) {
            found.push(record);
        }
    }
    Ok(found)
}

/// Shows the records, asks, resolves each, and reports each.
pub(super) async fn resolve(
    client: &AdminClient,
    found: &[Value],
    verdict: &Value,
    is_yes: bool,
    is_json: bool,
) -> Result<(), CliError> {
    let (screen, now) = (Screen::of_stdout(), SystemClock.now());
    if !is_json {
        let rows: Vec<_> = found.iter().map(|record| row(record, now, screen)).collect();
        say(&records_table(screen).lines(&rows).join("\n"));
        say("");
    }
    let outcome = verdict["outcome"].as_str().unwrap_or_default();
    if outcome == "not-applied"
        && let Some(warning) = warning_of_timeouts(found)
    {
        eprintln!("{warning}");
    }
    confirm(&format!("Resolve these {} records as {outcome}?", found.len()), is_yes)?;
    let (mut resolved, mut refused) = (Vec::new(), Vec::new());
    let mut invalid = 0;
    for record in found {
        let id: OperationId =
            record["operationId"].as_str().and_then(|id| id.parse().ok()).ok_or_else(foreign)?;
        let Reply { status, document, .. } = sent(client, id, &about_shown(verdict, record)).await?;
        if (200..300).contains(&status) {
            if !is_json {
                say(&describe_result(id, "resolve", &document));
            }
            resolved.push(document);
        } else {
            let why =
                document["detail"].as_str().map_or_else(|| format!("it was answered {status}"), printable);
            if !is_json {
                say(&format!("{id} was not resolved: {why}"));
            }
            invalid += usize::from(matches!(status, 400 | 413));
            refused.push(json!({ "operationId": id.to_string(), "code": document["code"], "detail": why }));
        }
    }
    let (done, left) = (resolved.len(), refused.len());
    if is_json {
        say_document(&json!({ "resolved": resolved, "refused": refused }));
    }
    if left > 0 {
        let summary = format!("{done} of {} records were resolved; {left} were not", done + left);
        // What is wrong with the command line is wrong for each of them.
        return Err(if invalid == left { CliError::usage(summary) } else { CliError::refused(summary) });
    }
    if !is_json {
        say(&match done {
            1 => "1 record was resolved".to_owned(),
            _ => format!("{done} records were resolved"),
        });
    }
    Ok(())
}

/// What to consider before attempts that only timed out are declared as not applied.
fn warning_of_timeouts(found: &[Value]) -> Option<String> {
    let has_timed_out = |record: &&Value| {
        record["doubt"]["reason"].as_str().is_some_and(|reason| reason.starts_with(Failure::TimedOut.why()))
    };
    let count = found.iter().filter(has_timed_out).count();
    (count > 0).then(|| {
        format!(
            "warning: {count} of these {} attempts only timed out. The service received the requests and may have completed them after \
             the timeout, so a timeout does not prove that nothing happened. Look up each operation ID in the service first: the next \
             retry runs the request again.",
            found.len()
        )
    })
}

/// The verdict, about the attempt that was shown and no other: one may have begun since.
fn about_shown(verdict: &Value, record: &Value) -> Value {
    let mut verdict = verdict.clone();
    verdict["fence"] = record["fence"].clone();
    verdict
}

/// Sends the verdict, and waits where the gateway says that it is asked too fast.
async fn sent(client: &AdminClient, id: OperationId, verdict: &Value) -> Result<Reply, CliError> {
    let path = format!("/v1/records/{id}/resolve");
    for _ in 1..TRIES {
        let reply = client.ask(Method::POST, &path, Some(verdict)).await?;
        match (reply.status, reply.retry_after) {
            (429, Some(seconds)) => tokio::time::sleep(Duration::from_secs(seconds).min(WAIT_MAX)).await,
            _ => return Ok(reply),
        }
    }
    Ok(client.ask(Method::POST, &path, Some(verdict)).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_only_timed_out_are_warned_of() {
        let doubted = |reason: &str| json!({ "doubt": { "how": "owner", "reason": reason } });
        let (late, broken) = (doubted("no response in time"), doubted("answered 502"));
        assert_eq!(warning_of_timeouts(std::slice::from_ref(&broken)), None);
        let warning = warning_of_timeouts(&[late.clone(), broken, late]).expect("two timed out");
        assert!(warning.starts_with("warning: 2 of these 3 attempts only timed out."), "{warning}");
    }

    #[test]
    fn a_verdict_about_many_names_the_attempt_of_each() {
        let verdict = json!({ "outcome": "not-applied", "reason": "x" });
        let sent = about_shown(&verdict, &json!({ "operationId": "a", "fence": 7 }));
        assert_eq!(sent, json!({ "outcome": "not-applied", "reason": "x", "fence": 7 }));
    }
}
