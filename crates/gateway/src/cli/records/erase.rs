//! `semel records erase`.

use super::super::cli_error::CliError;
use super::super::confirm::confirm;
use super::super::say_document;
use super::super::table::Screen;
use super::super::target::ask_record;
use super::tone;
use crate::admin_client::AdminClient;
use crate::serve::say;
use clap::ValueEnum;
use http::Method;
use semel_text::printable::printable;
use serde_json::json;

#[derive(Debug, Clone, clap::Args)]
pub(super) struct Erase {
    /// The operation ID, or enough of its first digits that no other ID starts with them
    #[arg(value_name = "OPERATION_ID", value_parser = super::beginning)]
    id: String,
    /// How much to erase
    #[arg(long, value_name = "WHAT", default_value = "response")]
    what: Extent,
    /// Why. It stays in the record's history, so write no personal data
    #[arg(long, value_name = "TEXT", value_parser = semel_admin::reason::parse)]
    reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Extent {
    /// The stored response and its labels; retries get 409 `IDEMPOTENCY_RESPONSE_NOT_RETAINED`
    Response,
    /// Everything but a tombstone; retries get 410 until the key would have been free anyway
    Record,
}

impl Erase {
    pub(super) async fn run(&self, client: &AdminClient, is_json: bool) -> Result<(), CliError> {
        let id = super::find_operation_id(client, &self.id, is_json).await?;
        let (extent, then) = match self.what {
            Extent::Response => ("response", "retries learn that it happened, but not what was answered"),
            Extent::Record => ("record", "retries get 410 until the key would have been free anyway"),
        };
        confirm(&format!("Erase the {extent} of {id}? This cannot be undone."), self.yes)?;
        let request = json!({ "what": extent, "reason": self.reason });
        let path = format!("/v1/records/{id}/erase");
        let record = ask_record(client, Method::POST, &path, Some(&request), is_json).await?;
        if is_json {
            say_document(&record);
            return Ok(());
        }
        let state = record["state"].as_str().unwrap_or_default();
        let then = if state == "FAILED_NOT_REPLAYABLE" {
            "the next request with the key is the next attempt"
        } else {
            then
        };
        say(&format!(
            "{id} is {}: its {extent} is erased; {then}",
            Screen::of_stdout().tinted(state, tone(state))
        ));
        if let Some(places) = record["mayRemain"].as_str() {
            say(&format!("copies may remain {}", printable(places)));
        }
        say(
            "running gateways can replay it from memory for up to a minute; archives and backups keep what they have",
        );
        Ok(())
    }
}
