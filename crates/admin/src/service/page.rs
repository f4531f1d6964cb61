//! The page for operators: a static page that calls the API from the browser. It contains no data, because everybody
//! who reaches the address can load it.

use axum::response::{Html, IntoResponse, Response};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use http::HeaderValue;
use http::header::CONTENT_SECURITY_POLICY;
use sha2::{Digest as _, Sha256};
use std::sync::LazyLock;

const PAGE: &str = include_str!("page.html");

/// Only this script may run, and it may connect only to this address.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let script = PAGE.split_once("<script>").and_then(|(_, rest)| rest.split_once("</script>"));
    let hash = BASE64_STANDARD.encode(Sha256::digest(script.map_or("", |(script, _)| script)));
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{hash}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
});

/// The page as it is sent.
pub(super) fn response() -> Response {
    ([(CONTENT_SECURITY_POLICY, POLICY.clone())], Html(PAGE)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_escapes_data() {
        for part in
            ["http:", "https:", "src=", "@import", "innerHTML", "insertAdjacentHTML", "document.write"]
        {
            assert!(!PAGE.contains(part), "{part}");
        }
        assert_eq!(PAGE.matches("<script>").count(), 1);
        // Every text of a record goes through one function, with the rule of `semel_text::printable`.
        assert!(PAGE.contains(r"replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu,"));
        assert!(
            PAGE.contains("{ textContent: printable(text),")
                && PAGE.contains("textContent = printable(text || ")
        );
        assert!(
            POLICY.to_str().is_ok_and(|policy| policy.contains("'sha256-") && !policy.contains("'sha256-'"))
        );
    }
}
