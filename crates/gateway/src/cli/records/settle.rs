//! `semel records resolve` and `semel records release`.
//!
//! What lives here: an operator's word, from flags to the document that the admin API takes. What must never: an action
//! without a reason.

use super::super::cli_error::CliError;
use super::super::say_document;
use super::super::table::Screen;
use super::super::target::{Target, ask_record};
use super::filters::Filters;
use super::{many, tone};
use crate::admin_client::AdminClient;
use crate::bounded_read::{FileKind, read_or_stdin};
use crate::invalid_value::InvalidValue;
use crate::serve::say;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use clap::ValueEnum;
use http::Method;
use semel::core::id::OperationId;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Resolve {
    /// The operation ID, or enough of its first digits that no other ID starts with them. Give several, or none and a filter, to
    /// resolve many records the same way
    #[arg(value_name = "ID", value_parser = super::beginning)]
    ids: Vec<String>,
    /// What you found out
    #[arg(long, value_name = "WHAT")]
    outcome: Outcome,
    /// How you found out. It is kept in the history
    #[arg(long, value_name = "TEXT", value_parser = semel_admin::reason::parse)]
    reason: String,
    #[command(flatten)]
    filters: Filters,
    /// With one ID: only the attempt with this fence, as `semel records show` prints it. Refused if another attempt has begun
    #[arg(long, value_name = "NUMBER")]
    fence: Option<u64>,
    /// With filters: resolve at most this many records
    #[arg(long, value_name = "NUMBER", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=500))]
    limit: u32,
    /// Do not ask for confirmation before resolving several records
    #[arg(long)]
    yes: bool,
    /// The response that every retry gets, as JSON with status, headers and body or `bodyBase64`; - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with_all = ["status", "header", "body"])]
    response: Option<PathBuf>,
    /// Or the response in parts: its status
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(200..600))]
    status: Option<u16>,
    /// One of its headers, as in `Location: /charges/7`; may be given several times
    #[arg(long, value_name = "LINE", requires = "status", value_parser = header)]
    header: Vec<(String, String)>,
    /// Its body, byte for byte; - reads standard input
    #[arg(long, value_name = "FILE", requires = "status")]
    body: Option<PathBuf>,
    /// With --store: store the response unsealed. Only if no gateway on the store seals responses; otherwise give --config
    #[arg(long)]
    unsealed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Outcome {
    /// It happened. Without a response, retries learn that it did, and that the response was not kept
    Applied,
    /// It did not happen and will not: the next request with the key runs
    NotApplied,
    /// It was refused for good, with a response of status 400 or more
    Failed,
}

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Release {
    /// The operation ID, or enough of its first digits that no other ID starts with them
    #[arg(value_name = "OPERATION_ID", value_parser = super::beginning)]
    id: String,
    /// Why. It is kept in the history
    #[arg(long, value_name = "TEXT", value_parser = semel_admin::reason::parse)]
    reason: String,
}

fn header(line: &str) -> Result<(String, String), InvalidValue> {
    let malformed = || InvalidValue::without_fix("write it as NAME: VALUE");
    let (name, value) = line.split_once(':').ok_or_else(malformed)?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

impl Resolve {
    /// What can be refused before anything is opened.
    pub(super) fn check(&self, target: &Target) -> Result<(), CliError> {
        match (self.ids.is_empty(), self.filters.is_empty()) {
            (true, true) => {
                return Err(CliError::usage("name the records: operation IDs, or at least one filter"));
            }
            (false, false) => return Err(CliError::usage("give either operation IDs or filters, not both")),
            _ => {}
        }
        if self.fence.is_some() && self.ids.len() != 1 {
            return Err(CliError::usage(
                "--fence goes with one operation ID; of several, only the attempts that are shown are resolved",
            ));
        }
        let has_response = self.response.is_some() || self.status.is_some();
        if self.outcome == Outcome::NotApplied && has_response {
            return Err(CliError::usage("not-applied takes no response: the next request with the key runs"));
        }
        if self.outcome == Outcome::Failed && !has_response {
            return Err(CliError::usage(
                "failed needs the response that every retry gets: --response FILE, or --status NUMBER",
            ));
        }
        if self.outcome == Outcome::Failed && self.status.is_some_and(|status| status < 400) {
            return Err(CliError::usage("failed needs a status of 400 or more"));
        }
        if self.unsealed && (target.is_configured() || !target.is_store()) {
            return Err(CliError::usage(
                "--unsealed is for --store without --config: a file says what is sealed, and a gateway knows",
            ));
        }
        if has_response && target.is_store() && !target.is_configured() && !self.unsealed {
            return Err(CliError::usage(
                "the response would be stored as it is, whatever the gateways on this store seal: give --config FILE for their \
                 keys, or --unsealed where they have none",
            ));
        }
        Ok(())
    }

    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        let outcome = self.outcome.to_possible_value();
        let outcome = outcome.as_ref().map_or("", |value| value.get_name());
        let mut verdict = json!({ "outcome": outcome, "reason": self.reason });
        if let Some(response) = self.response()? {
            if let AdminClient::Local(local) = client {
                local.check_sealing().await.map_err(CliError::usage)?;
            }
            verdict["response"] = response;
        }
        if let [id] = &*self.ids {
            if let Some(fence) = self.fence {
                verdict["fence"] = fence.into();
            }
            return change_record(
                client,
                super::find_operation_id(client, id, is_json).await?,
                "resolve",
                &verdict,
                is_json,
            )
            .await;
        }
        let found = if self.ids.is_empty() {
            many::matching(client, &self.filters, self.limit as usize, is_json).await?
        } else {
            many::named(client, &self.ids, is_json).await?
        };
        many::resolve(client, &found, &verdict, self.yes, is_json).await
    }

    fn response(&self) -> Result<Option<Value>, CliError> {
        if let Some(file) = &self.response {
            let document = serde_json::from_slice(&read_or_stdin(file, FileKind::Response)?);
            return document.map(Some).map_err(|error| {
                CliError::usage(format!("{} is not a response in JSON: {error}", file.display()))
            });
        }
        let Some(status) = self.status else { return Ok(None) };
        let mut response = json!({ "status": status, "headers": self.header });
        if let Some(file) = &self.body {
            match String::from_utf8(read_or_stdin(file, FileKind::Response)?) {
                Ok(text) => response["body"] = text.into(),
                Err(error) => response["bodyBase64"] = BASE64_STANDARD.encode(error.as_bytes()).into(),
            }
        }
        Ok(Some(response))
    }
}

impl Release {
    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        change_record(
            client,
            super::find_operation_id(client, &self.id, is_json).await?,
            "release",
            &json!({ "reason": self.reason }),
            is_json,
        )
        .await
    }
}

async fn change_record(
    client: &AdminClient,
    id: OperationId,
    action: &str,
    body: &Value,
    is_json: bool,
) -> Result<(), CliError> {
    let path = format!("/v1/records/{id}/{action}");
    let record = ask_record(client, Method::POST, &path, Some(body), is_json).await?;
    if is_json {
        say_document(&record);
        return Ok(());
    }
    say(&describe_result(id, action, &record));
    Ok(())
}

/// What a record is now, and what that means for retries.
pub(super) fn describe_result(id: OperationId, action: &str, record: &Value) -> String {
    let state = record["state"].as_str().unwrap_or_default();
    let consequence = match (action, state) {
        ("release", _) => "the next request with the key is the next attempt, whatever its payload",
        (_, "FAILED_NOT_REPLAYABLE") => "the next request with the key is the next attempt",
        _ if record["response"]["retained"] == true => "every retry gets the response",
        _ => "retries learn that it happened, and that its response was not kept",
    };
    let state = Screen::of_stdout().tinted(state, tone(state));
    format!("{id} is {state}: {consequence}")
}
