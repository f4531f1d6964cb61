//! Guesses the template of a path.
//!
//! Distinguishes names from IDs in unknown paths. Only for reports; no decision depends on it.

/// The most segments; the rest is `{*rest}`.
const SEGMENTS_MAX: usize = 8;
/// The longest name.
const NAME_CHARS_MAX: usize = 32;

/// The path with `{id}` for each segment that looks like an ID: it has a digit (except `v1`), is long, or has
/// characters that names do not have. A second one is `{id2}`, and so on. The result is a valid pattern.
pub(crate) fn of(path: &str) -> String {
    let mut template = String::new();
    let mut ids = 0;
    let segments = path.strip_prefix('/').unwrap_or(path).split('/');
    for (at, segment) in segments.enumerate() {
        if at == SEGMENTS_MAX {
            template.push_str("/{*rest}");
            break;
        }
        template.push('/');
        if is_name(segment) {
            template.push_str(segment);
            continue;
        }
        ids += 1;
        template.push_str("{id");
        if ids > 1 {
            template.push_str(&ids.to_string());
        }
        template.push('}');
    }
    template
}

fn is_name(segment: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '.' | ':');
    // A segment with a leading colon would be refused in a pattern.
    let is_short = segment.len() <= NAME_CHARS_MAX && !segment.starts_with(':');
    is_short && (segment.chars().all(is_letter) || is_version(segment))
}

/// `v1`, `v2.1`.
fn is_version(segment: &str) -> bool {
    let number = segment.strip_prefix(['v', 'V']);
    number.is_some_and(|number| number.len() <= 4 && number.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::super::pattern::RoutePattern;
    use super::*;
    use semel::core::scope::normal_path;

    #[test]
    fn names_stay_and_id_like_segments_are_replaced() {
        for (path, template) in [
            ("/", "/"),
            ("/charges", "/charges"),
            ("/v1/charges", "/v1/charges"),
            ("/accounts/4711/charges", "/accounts/{id}/charges"),
            ("/accounts/acct_1a2b/charges/ch_9", "/accounts/{id}/charges/{id2}"),
            ("/x/8e03978e-40d5-43dd-bc93-6894a57f9324", "/x/{id}"),
            ("/users/jo@example.org", "/users/{id}"),
            ("/users/%6ao", "/users/{id}"),
            ("/x/{y}", "/x/{id}"),
            ("/a/b/c/d/e/f/g/h/i/j", "/a/b/c/d/e/f/g/h/{*rest}"),
            ("/payments:capture", "/payments:capture"),
            ("/users/:me", "/users/{id}"),
            ("*", "/{id}"),
        ] {
            assert_eq!(of(path), template, "{path}");
            let pattern = RoutePattern::parse(template).expect("it can be configured");
            assert!(path == "*" || pattern.fits(&normal_path(path)), "{path}");
        }
        assert_eq!(of(&format!("/{}", "x".repeat(60_000))), "/{id}");
    }
}
