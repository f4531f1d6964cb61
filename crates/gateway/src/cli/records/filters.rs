//! Which records are meant: the filters that `list`, `watch` and `resolve` share.

use super::super::cli_error::CliError;
use crate::invalid_value::InvalidValue;
use semel::archive::rfc3339;
use semel::core::record::StateName;
use semel::core::store::Callers;
use semel::core::time::Time;
use semel_admin::moment::parse;
use semel_text::percent;
use std::fmt::Write as _;

/// The filters of what is listed or watched: a state besides the others.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct StateAndFilters {
    /// Only records in this state
    #[arg(long, value_name = "STATE", ignore_case = true, help_heading = "Filters", value_parser = StateName::ALL.map(StateName::as_str))]
    state: Option<String>,
    #[command(flatten)]
    pub(super) others: Filters,
}

impl StateAndFilters {
    /// As [`Filters::query`].
    pub(super) fn query(&self, now: Time, since: Option<Time>) -> Result<String, CliError> {
        let mut query = self.others.query(now, since)?;
        if let Some(state) = &self.state {
            push(&mut query, "state", &state.to_ascii_uppercase());
        }
        Ok(query)
    }
}

/// Filters of the admin API. Everything named must hold.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Filters {
    /// Only records of this operation: its name, or method and path as in `POST /charges`
    #[arg(long, value_name = "NAME", help_heading = "Filters")]
    pub(super) operation: Option<String>,
    /// Only records of the caller whose hash starts with these digits: at least 8 of the 64, as tables, logs and metrics show them. If
    /// the hashes of several callers start so, they are named
    #[arg(long, value_name = "HASH", value_parser = caller_beginning, help_heading = "Filters")]
    pub(super) caller: Option<String>,
    /// Only records of this key. The gateway or store hashes it
    #[arg(long, value_name = "KEY", conflicts_with = "key_hash", help_heading = "Filters")]
    pub(super) key: Option<String>,
    /// Only records of the key with this hash (all 64 digits)
    #[arg(long, value_name = "HASH", value_parser = hash, help_heading = "Filters")]
    pub(super) key_hash: Option<String>,
    /// Only records last written at this time or later: 2026-11-15T19:05:00Z, or how long ago, such as 2h
    #[arg(long, value_name = "WHEN", help_heading = "Filters")]
    pub(super) since: Option<String>,
    /// Only records last written before this time
    #[arg(long, value_name = "WHEN", help_heading = "Filters")]
    pub(super) until: Option<String>,
    /// Only records whose operation ID starts with these digits (at least 4)
    #[arg(long, value_name = "ID", value_parser = super::beginning, help_heading = "Filters")]
    pub(super) id: Option<String>,
    /// Only records whose outcome is about this type of resource, in the words of the service: order
    #[arg(long, value_name = "TYPE", help_heading = "Filters")]
    pub(super) resource_type: Option<String>,
    /// Only records whose outcome is about the resource with this ID
    #[arg(long, value_name = "ID", help_heading = "Filters")]
    pub(super) resource_id: Option<String>,
    /// Only records whose outcome has this error code, such as `OUT_OF_STOCK`
    #[arg(long, value_name = "CODE", help_heading = "Filters")]
    pub(super) error_code: Option<String>,
}

fn hash(text: &str) -> Result<String, InvalidValue> {
    let is_hash = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hash.then(|| text.to_owned()).ok_or_else(|| {
        InvalidValue::without_fix(
            "a key hash has 64 hexadecimal digits. Tables and logs show only the first 8; `semel records show` and \
             `semel records list --all --json` show all of them",
        )
    })
}

fn caller_beginning(text: &str) -> Result<String, InvalidValue> {
    Callers::beginning(text).map(|_| text.to_ascii_lowercase()).ok_or_else(|| {
        InvalidValue::without_fix(
            "write the first digits of the caller's hash: 8 to 64 hexadecimal digits, as tables, logs and metrics show them",
        )
    })
}

impl Filters {
    /// Whether no filter is set.
    pub(super) fn is_empty(&self) -> bool {
        self.texts().iter().all(|(_, value)| value.is_none()) && self.since.is_none() && self.until.is_none()
    }

    fn texts(&self) -> [(&'static str, Option<&String>); 8] {
        [
            ("id", self.id.as_ref()),
            ("operation", self.operation.as_ref()),
            ("callerHash", self.caller.as_ref()),
            ("key", self.key.as_ref()),
            ("keyHash", self.key_hash.as_ref()),
            ("resourceType", self.resource_type.as_ref()),
            ("resourceId", self.resource_id.as_ref()),
            ("errorCode", self.error_code.as_ref()),
        ]
    }

    /// The filters as the query of the admin API, each with a leading `&`. `since` replaces `--since`, if given.
    pub(super) fn query(&self, now: Time, since: Option<Time>) -> Result<String, CliError> {
        let moment = |text: &Option<String>| -> Result<Option<Time>, CliError> {
            text.as_ref().map(|text| parse(text, now)).transpose().map_err(CliError::usage)
        };
        let since = since.map_or_else(|| moment(&self.since), |since| Ok(Some(since)))?;
        let until = moment(&self.until)?;
        let mut query = String::new();
        for (name, value) in self.texts() {
            if let Some(value) = value {
                push(&mut query, name, value);
            }
        }
        for (name, time) in [("updatedFrom", since), ("updatedBefore", until)] {
            if let Some(time) = time {
                push(&mut query, name, &rfc3339::text(time));
            }
        }
        Ok(query)
    }
}

/// Adds a parameter to a query.
pub(super) fn push(query: &mut String, name: &str, value: &str) {
    let _ = write!(query, "&{name}={}", percent::encode(value));
}
