//! `semel records erase`.

use super::super::confirm::confirm;
use super::super::place::ask_record;
use super::super::stop::Stop;
use super::super::table::{Screen, clean};
use super::tone;
use crate::admin_client::Desk;
use crate::serve::say;
use clap::ValueEnum;
use http::Method;
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
    #[arg(long, value_name = "TEXT")]
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
    pub(super) async fn run(&self, desk: &Desk, is_json: bool) -> Result<(), Stop> {
        let id = super::whole(desk, &self.id, is_json).await?;
        let (what, then) = match self.what {
            Extent::Response => ("response", "retries learn that it happened, but not what was answered"),
            Extent::Record => ("record", "retries get 410 until the key would have been free anyway"),
        };
        confirm(&format!("Erase the {what} of {id}? This cannot be undone."), self.yes)?;
        let request = json!({ "what": what, "reason": self.reason });
        let path = format!("/v1/records/{id}/erase");
        let record = ask_record(desk, Method::POST, &path, Some(&request), is_json).await?;
        if is_json {
            say(&record.to_string());
            return Ok(());
        }
        let state = record["state"].as_str().unwrap_or_default();
        let then = if state == "FAILED_NOT_REPLAYABLE" {
            "the next request with the key is the next attempt"
        } else {
            then
        };
        say(&format!(
            "{id} is {}: its {what} is erased; {then}",
            Screen::of_stdout().tinted(state, tone(state))
        ));
        if let Some(places) = record["mayRemain"].as_str() {
            say(&format!("copies may remain {}", clean(places)));
        }
        say(
            "running gateways can replay it from memory for up to a minute; archives and backups keep what they have",
        );
        Ok(())
    }
}
