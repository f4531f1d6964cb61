//! Turns a `Location` header into a path of the service, if it is one.

use http::uri::{Authority, PathAndQuery};
use semel_net::target::{Target, Transport};
use semel_proxy::upstream::leads_out;

/// The path below `target` that `location` names, as in a request to the gateway; none if it is elsewhere. An absolute
/// URL must lead to the service itself, or to `host`, by which the client knows it.
pub(super) fn below(location: &str, target: &Target, host: Option<&str>) -> Option<PathAndQuery> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = match location.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => (Some(scheme.to_ascii_lowercase()), rest),
        _ => match location.strip_prefix("//") {
            Some(rest) => (None, rest),
            // A path that is not relative to the root could only be guessed.
            None => return location.starts_with('/').then(|| cut(location, target)).flatten(),
        },
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let upstream_scheme = if target.transport() == Transport::Https { "https" } else { "http" };
    let usual = match scheme.as_deref() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) => return None,
        None => target.port(),
    };
    let found = host_and_port(authority, usual)?;
    let is_own = scheme.is_none_or(|scheme| scheme == upstream_scheme)
        && found.0.eq_ignore_ascii_case(&bracketed(target.host()))
        && found.1 == target.port();
    let is_known = || {
        let (name, port) = host_and_port(host?, usual)?;
        Some(found.0.eq_ignore_ascii_case(&name) && found.1 == port)
    };
    if !is_own && is_known() != Some(true) {
        return None;
    }
    if path.starts_with('/') { cut(path, target) } else { cut(&format!("/{path}"), target) }
}

/// Removes the base path, which is added to every request.
fn cut(path: &str, target: &Target) -> Option<PathAndQuery> {
    let below = path.strip_prefix(target.base()).filter(|below| below.starts_with('/'));
    let path: PathAndQuery = below.unwrap_or(path).parse().ok()?;
    (!leads_out(target.base(), path.path())).then_some(path)
}

/// Host and port; none if there are credentials, or if they are invalid.
fn host_and_port(authority: &str, usual: u16) -> Option<(String, u16)> {
    if authority.contains('@') {
        return None;
    }
    let authority: Authority = authority.parse().ok()?;
    Some((authority.host().to_owned(), authority.port_u16().unwrap_or(usual)))
}

fn bracketed(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(location: &str, target: &str, host: Option<&str>) -> Option<String> {
        let target = Target::parse(target).expect("a target");
        below(location, &target, host).map(|path| path.to_string())
    }

    #[test]
    fn a_path_of_the_service_is_one_however_it_is_written() {
        let at = |location| path(location, "http://pay.internal:3000", Some("api.example"));
        for location in [
            "/charges/7?x=1",
            "/charges/7?x=1#top",
            "http://pay.internal:3000/charges/7?x=1",
            "HTTP://PAY.internal:3000/charges/7?x=1",
            "//pay.internal:3000/charges/7?x=1",
            "https://api.example/charges/7?x=1",
            "http://api.example:80/charges/7?x=1",
        ] {
            assert_eq!(at(location).as_deref(), Some("/charges/7?x=1"), "{location}");
        }
        assert_eq!(at("http://api.example").as_deref(), Some("/"));
        assert_eq!(path("http://[::1]:3000/x", "http://[::1]:3000", None).as_deref(), Some("/x"));
    }

    #[test]
    fn a_place_anywhere_else_is_none() {
        let at = |location| path(location, "http://pay.internal:3000", Some("api.example"));
        for location in [
            "http://evil.example/charges/7",
            "//evil.example/charges/7",
            "http://pay.internal/charges/7",
            "https://pay.internal:3000/charges/7",
            "http://pay.internal:3000@evil.example/charges/7",
            "http://api.example@evil.example/",
            "http://api.example:81/charges/7",
            "ftp://pay.internal:3000/charges/7",
            "http:///charges/7",
            "charges/7",
            "./7",
            "?x=1",
            "",
            "/a b",
            "javascript:alert(1)",
        ] {
            assert_eq!(at(location), None, "{location}");
        }
        assert_eq!(path("http://169.254.169.254/latest", "http://pay.internal", None), None);
    }

    #[test]
    fn the_base_path_is_not_put_before_itself() {
        let at = |location| path(location, "http://pay.internal/v1", None);
        assert_eq!(at("/v1/charges/7").as_deref(), Some("/charges/7"));
        assert_eq!(at("http://pay.internal/v1/charges/7").as_deref(), Some("/charges/7"));
        assert_eq!(at("/charges/7").as_deref(), Some("/charges/7"));
        assert_eq!(at("/v10/charges/7").as_deref(), Some("/v10/charges/7"));
        assert_eq!(at("/v1/a/../charges/7").as_deref(), Some("/a/../charges/7"));
        assert_eq!([at("/v1/../admin"), at("/%2e%2e/admin?x=1")], [None, None], "out of the base");
    }
}
