//! Whether a request's path stays below the base path of the upstream's URL.

use semel::core::scope::normal_path;
use std::borrow::Cow;

/// Whether a path leaves `base` through `..` segments, which services resolve. Below `/v1`, `/../v1/charges` would be
/// `/charges` for Semel, and so escape the rule for it.
pub fn leads_out(base: &str, path: &str) -> bool {
    match normal_path(path) {
        Cow::Owned(normal) if !base.is_empty() => {
            let base_normal = normal_path(base);
            normal_path(&format!("{base}{path}")) != format!("{}{normal}", base_normal.trim_end_matches('/'))
        }
        // A path that is its own normal form has no such segments.
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_climbs_out_of_the_base_is_found() {
        for path in ["/..", "/../v1/charges", "/%2e%2E/x", "/a/../../x", "//../x", "/a/%2e./..", "/../v1"] {
            assert!(leads_out("/v1", path), "{path}");
            assert!(!leads_out("", path), "{path}: there is nothing to lead out of");
        }
        for path in
            ["/", "*", "/charges", "/a/../b", "/a/b/../..", "/.", "//charges", "/%63harges", "/..;/x", "/..."]
        {
            assert!(!leads_out("/v1", path), "{path}");
        }
        assert!(!leads_out("/%76//1/x/..", "/a/../b") && leads_out("/%76//1/x/..", "/../b"));
    }
}
