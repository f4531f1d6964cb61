//! The published specification as a page for people: the JSON document in HTML, with no promise that is not in the
//! document. It loads nothing from elsewhere.

use serde_json::Value;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// The members of an operation in order of importance; others follow under their own names.
const LABELS: &[(&str, &str)] = &[
    ("route", "Path"),
    ("methods", "Methods"),
    ("class", "Guarantee"),
    ("key.rule", "Idempotency key"),
    ("key.source.header", "Key header"),
    ("key.source.pointer", "Key field in the body"),
    ("retentionSeconds", "Responses are replayed for"),
    ("tombstoneSeconds", "Later retries are refused for another"),
    ("key.source", "Key source"),
    ("key.charactersMin", "Minimum key length"),
    ("key.charactersMax", "Maximum key length"),
    ("callers", "Callers are distinguished"),
    ("unknownOutcome.settledBy", "An unknown outcome is settled by"),
    ("unknownOutcome.repeatSeconds", "A retry can settle it for"),
    ("unknownOutcome.retryable", "Retrying helps while the outcome is unknown"),
    ("waitMilliseconds", "A duplicate of a running request waits up to"),
    ("deadline.header", "Header with the milliseconds that you still wait"),
    ("deadline.millisecondsMin", "Nothing is run if less is left than"),
    ("deadline.forwarded", "The service learns how much is left"),
    ("attemptsMax", "Maximum attempts"),
    ("requestBytesMax", "Maximum request body"),
    ("keptResponseBytesMax", "Maximum stored response"),
    ("retained", "Stored of a response"),
    ("mismatchStatus", "Status for a key reused with another payload"),
    ("mode", "Mode"),
    ("whileStoreIsDown", "While the store is down, requests are"),
    ("notAppliedStatuses.http", "HTTP statuses that mean that nothing happened (503 only with Retry-After)"),
    ("notAppliedStatuses.grpc", "gRPC statuses that mean that nothing happened"),
    ("notAppliedStatuses.assumption", "These statuses are"),
];

/// How many of them are always shown. The rest is shown on demand.
const ESSENTIAL: usize = 8;

/// The page. Each error has an anchor, to which the `type` of a problem points.
pub(crate) fn html(document: &Value) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Semel: safe retries for this service</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n<main>\n"
    );
    page.push_str(
        "<header><p class=\"product\">Semel</p><h1>Safe retries for this service</h1>\n\
         <p>How to send a request again without repeating its effect. Programs get this page as JSON from the same address.</p>\n\
         <nav><a href=\"#client\">For clients</a> <a href=\"#operations\">Operations</a> <a href=\"#errors\">Errors</a></nav></header>\n",
    );
    client(&mut page, document);
    page.push_str("<h2 id=\"operations\">Operations</h2>\n");
    let rest =
        if list(&document["operations"]).nth(1).is_some() { "All other requests" } else { "All requests" };
    for each in list(&document["operations"]) {
        operation(&mut page, each, rest);
    }
    page.push_str("<h2 id=\"errors\">Errors</h2>\n<p>Errors are <code>application/problem+json</code>. <code>code</code> is the name below, and \
                   <code>retryable</code> says whether a retry can help. gRPC clients find both in the metadata.</p>\n");
    for each in list(&document["errors"]) {
        let member = |name: &str| escaped(&shown(name, &each[name]));
        let _ = writeln!(
            page,
            "<section class=\"error\" id=\"{code}\"><h3><a href=\"#{code}\">{code}</a> <span>{}</span></h3>\
             <p><b>{}.</b> {}</p></section>",
            member("statuses"),
            member("title"),
            member("advice"),
            code = member("code"),
        );
    }
    page.push_str("</main>\n</html>\n");
    page
}

fn client(page: &mut String, document: &Value) {
    let status = escaped(&shown("status", &document["status"]));
    let callers = escaped(&shown("callers", &document["callers"]));
    let has_exceptions = list(&document["operations"]).any(|operation| operation["callers"].is_string());
    let is_observed = list(&document["operations"]).any(|operation| operation["mode"] == "shadow");
    let observed = if is_observed {
        "\n<li>Operations in mode <code>shadow</code> are observed only: nothing of this holds for them, and a request that is sent \
         again runs again.</li>"
    } else {
        ""
    };
    let otherwise = if has_exceptions { "; some operations below differ" } else { "" };
    let _ = writeln!(
        page,
        "<h2 id=\"client\">For clients</h2>\n<ol>\n\
         <li>Generate one key per operation and send it with every attempt, in this header unless the operation names another \
         source:\
         <pre>Idempotency-Key: \"8e03978e-40d5-43dd-bc93-6894a57f9324\"</pre>The quotes are optional.</li>\n\
         <li>No response? Send the same request again. It does not run twice: you get the first response, \
         byte for byte, with <code>Idempotency-Replayed: true</code>.</li>\n\
         <li>Do not reuse a key for another payload. Such a request is refused.</li>\n</ol>\n<ul>\n\
         <li><code>Idempotency-Expires</code> says how long the response can be replayed. If it is present, the outcome is stored.</li>\n\
         <li><code>Operation-Id</code> is in every response to a request with a key. To see what became of it, send \
         <code>GET {status}</code> with your own credentials.</li>\n\
         <li>A key belongs to its caller. Callers are distinguished {callers}{otherwise}.</li>{observed}\n</ul>"
    );
}

/// `rest` is the title of the operation for every path that no other one has.
fn operation(page: &mut String, operation: &Value, rest: &str) {
    let (name, route) = (operation["name"].as_str(), operation["route"].as_str());
    let title = name.or(route).unwrap_or(rest);
    let _ = write!(page, "<section class=\"operation\"><h3>{}</h3>\n<table>", escaped(title));
    let mut members = Vec::new();
    flatten("", operation, &mut members);
    let is_title = |path: &str| path == "name" || path == "route" && name.is_none();
    members.retain(|(path, _)| !is_title(path));
    let known = LABELS.iter().filter_map(|(path, label)| {
        let at = members.iter().position(|(member, _)| member == path)?;
        Some(((*label).to_owned(), members[at].clone()))
    });
    let is_known = |path: &str| LABELS.iter().any(|(known, _)| *known == path);
    let others =
        members.iter().filter(|(path, _)| !is_known(path)).map(|member| (worded(&member.0), member.clone()));
    let rows: Vec<_> = known.chain(others).collect();
    let is_essential = |label: &str| LABELS[..ESSENTIAL].iter().any(|(_, known)| *known == label);
    let (essential, rest): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(label, _)| is_essential(label));
    write_rows(page, &essential);
    page.push_str("\n</table>");
    if !rest.is_empty() {
        page.push_str("\n<details><summary>All settings</summary>\n<table>");
        write_rows(page, &rest);
        page.push_str("\n</table></details>");
    }
    page.push_str("</section>\n");
}

fn write_rows(page: &mut String, rows: &[(String, (String, &Value))]) {
    for (label, (path, value)) in rows {
        let _ = write!(page, "\n<tr><th>{}<td>{}", escaped(label), escaped(&shown(path, value)));
    }
}

/// The members of an object and its nested objects, by path. Unset ones are left out.
fn flatten<'v>(path: &str, value: &'v Value, into: &mut Vec<(String, &'v Value)>) {
    match value {
        Value::Null => {}
        Value::Object(members) => {
            for (name, value) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, value, into);
            }
        }
        value => into.push((path.to_owned(), value)),
    }
}

/// `keptBytesMax` as words.
fn worded(path: &str) -> String {
    let mut words = String::new();
    for letter in path.chars() {
        match letter {
            '.' => words.push_str(", "),
            letter if letter.is_uppercase() => {
                words.push(' ');
                words.extend(letter.to_lowercase());
            }
            letter if words.is_empty() => words.extend(letter.to_uppercase()),
            letter => words.push(letter),
        }
    }
    words
}

/// A value for people; its unit is the end of its name.
fn shown(path: &str, value: &Value) -> String {
    let number = value.as_u64();
    match (path, value, number) {
        ("class", Value::String(class), _) => guarantee(class),
        ("unknownOutcome.settledBy", Value::Array(ways), _) => ways
            .iter()
            .map(|way| settled_by(way.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join("; else "),
        (_, Value::Bool(is_so), _) => if *is_so { "yes" } else { "no" }.to_owned(),
        (_, _, Some(count)) if path.contains("characters") => format!("{count} characters"),
        (_, _, Some(count)) if path.ends_with("Milliseconds") => span(count),
        (_, _, Some(count)) if path.ends_with("Seconds") => span(count.saturating_mul(1000)),
        (_, _, Some(count)) if path.ends_with("BytesMax") => size(count),
        (_, Value::String(text), _) => text.clone(),
        (_, Value::Array(values), _) => {
            values.iter().map(|value| shown("", value)).collect::<Vec<_>>().join(", ")
        }
        _ => value.to_string(),
    }
}

fn guarantee(class: &str) -> String {
    let more = match class {
        "external" => "at most once per key; if nobody can prove what happened, the response says so",
        "downstream" => "once per key, as long as the system that runs it recognises repeats",
        "local" => "once per key",
        other => return format!("none: requests are {other}"),
    };
    format!("{class}: {more}")
}

fn settled_by(way: &str) -> &str {
    match way {
        "repeat" => "the next request with its key",
        "look-up" => "an automatic lookup in the system that runs it",
        "operator" => "an operator",
        way => way,
    }
}

fn span(millis: u64) -> String {
    let units = [(86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")];
    let fits = |(unit, _): &&(u64, &str)| millis >= *unit && millis.is_multiple_of(*unit);
    match units.iter().find(fits) {
        Some((unit, name)) if millis / unit == 1 => format!("1 {name}"),
        Some((unit, name)) => format!("{} {name}s", millis / unit),
        None => format!("{millis} ms"),
    }
}

fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let fit = units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let plural = if bytes == 1 { "" } else { "s" };
    fit.map_or_else(|| format!("{bytes} byte{plural}"), |(unit, name)| format!("{} {name}", bytes / unit))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn durations_sizes_and_names_are_readable() {
        assert_eq!(
            [1, 1500, 2000, 60_000, 86_400_000].map(span),
            ["1 ms", "1500 ms", "2 seconds", "1 minute", "1 day"]
        );
        assert_eq!([1, 1 << 10, 10 << 20].map(size), ["1 byte", "1 KiB", "10 MiB"]);
        assert_eq!(worded("whileStoreIsDown"), "While store is down");
        assert_eq!(worded("notApplied.http"), "Not applied, http");
    }

    #[test]
    fn unknown_members_are_shown_and_unset_ones_are_not() {
        let document = json!({ "operations": [{
            "name": "charges", "route": null, "newThing": ["a", 7], "key": { "rule": "required" }
        }] });
        let page = html(&document);
        assert!(page.contains("<h3>charges</h3>") && page.contains("<tr><th>New thing<td>a, 7"), "{page}");
        assert!(page.contains("<tr><th>Idempotency key<td>required") && !page.contains("<th>Path"), "{page}");
    }

    #[test]
    fn every_operation_shows_its_path_once() {
        let page = html(&json!({ "operations": [
            { "name": "refund", "route": "/refunds" }, { "name": null, "route": "/charges" }, { "route": null },
        ] }));
        assert!(page.contains("<h3>refund</h3>\n<table>\n<tr><th>Path<td>/refunds"), "{page}");
        assert!(page.contains("<h3>/charges</h3>\n<table>\n</table>"), "{page}");
        assert!(page.contains("<h3>All other requests</h3>"), "{page}");
        assert!(html(&json!({ "operations": [{ "route": null }] })).contains("<h3>All requests</h3>"));
    }

    #[test]
    fn a_routes_text_is_escaped() {
        let page = html(&json!({ "operations": [{ "route": "/<script>\"&" }] }));
        assert!(page.contains("/&lt;script&gt;&quot;&amp;") && !page.contains("<script"), "{page}");
    }

    #[test]
    fn the_page_loads_nothing_external() {
        let page = html(&json!({}));
        assert!(
            !page.contains("http:")
                && !page.contains("https:")
                && !page.contains("src=")
                && !page.contains("@import")
        );
    }
}
