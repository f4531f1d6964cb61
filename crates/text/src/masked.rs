//! URLs without what may be a secret, for screens and logs.

/// A URL, or the path of one, without credentials and without the values of its query. Other text is unchanged.
pub fn url(text: &str) -> String {
    let (before, query) = text.split_once('?').map_or((text, None), |(before, query)| (before, Some(query)));
    let Some((scheme, rest)) = before.split_once("://") else {
        // The URL of a probe may be a path.
        let is_path = before.trim_start_matches('"').starts_with('/');
        return if is_path {
            format!("{before}{}", query.map(masked_query).unwrap_or_default())
        } else {
            text.to_owned()
        };
    };
    let (authority, path) = rest.split_at(rest.find(['/', '#']).unwrap_or(rest.len()));
    let host = authority
        .rsplit_once('@')
        .map_or_else(|| authority.to_owned(), |(_, host)| format!("(masked)@{host}"));
    format!("{scheme}://{host}{path}{}", query.map(masked_query).unwrap_or_default())
}

/// The query with its `?`: names are shown, and values that are placeholders.
fn masked_query(query: &str) -> String {
    let end = if query.ends_with('"') { "\"" } else { "" };
    let pairs = query.trim_end_matches('"').split('&').map(|pair| match pair.split_once('=') {
        Some((_, value)) if value.starts_with('{') && value.ends_with('}') => pair.to_owned(),
        Some((name, _)) => format!("{name}=(masked)"),
        None => "(masked)".to_owned(),
    });
    format!("?{}{end}", pairs.collect::<Vec<_>>().join("&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_and_query_values_are_masked_and_placeholders_are_not() {
        for (text, shown) in [
            ("https://a:b@h:1/p?key=c&d&id={id}", "https://(masked)@h:1/p?key=(masked)&(masked)&id={id}"),
            ("/p?key=c", "/p?key=(masked)"),
            ("\"/p?key=c\"", "\"/p?key=(masked)\""),
            ("http://h/p", "http://h/p"),
            ("what? no=url", "what? no=url"),
        ] {
            assert_eq!(url(text), shown);
        }
    }
}
