//! Records, a page at a time.

use super::super::cli_error::CliError;
use super::super::target::{ask, foreign};
use super::filters::push;
use crate::admin_client::AdminClient;
use http::Method;
use serde_json::Value;

/// The most records that one page has.
pub(super) const PAGE_MAX: usize = 500;

/// A page of the admin API.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) records: Vec<Value>,
    /// Records of which only the operation ID and the reason are known.
    pub(super) unreadable: Vec<Value>,
    /// Where the next page begins, if there is one. A page may be empty and have a next one.
    pub(super) next: Option<String>,
}

/// Asks for a page of at most `limit` records. `query` is one of [`filters`](super::filters).
pub(super) async fn page(
    client: &AdminClient,
    query: &str,
    limit: usize,
    after: Option<&str>,
    is_json: bool,
) -> Result<Page, CliError> {
    let mut path = format!("/v1/records?limit={}{query}", limit.min(PAGE_MAX));
    if let Some(after) = after {
        push(&mut path, "after", after);
    }
    let mut page = ask(client, Method::GET, &path, None, is_json).await?;
    let mut take_array = |name: &str| page.get_mut(name)?.as_array_mut().map(std::mem::take);
    let records = take_array("records").ok_or_else(foreign)?;
    let unreadable = take_array("unreadable").unwrap_or_default();
    Ok(Page { records, unreadable, next: page["next"].as_str().map(str::to_owned) })
}
