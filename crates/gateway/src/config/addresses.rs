//! Addresses that get in each other's way: what would only show when the first request comes.

use super::Overrides;
use super::table::{Span, Table};
use semel_admin::Address;
use semel_net::target::Target;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where each address comes from: its position in the file, or the flag or environment variable that overrides it.
pub(super) struct AddressSpans {
    pub(super) upstream: Option<Span>,
    pub(super) upstream_given_by: Option<String>,
    pub(super) admin: Option<Span>,
    pub(super) admin_given_by: Option<String>,
    pub(super) listen_given_by: Option<String>,
}

impl AddressSpans {
    /// Where the addresses come from; `upstream` is the position of the service in the file, if that applies.
    pub(super) fn of(over: &Overrides, upstream: Option<Span>, admin: &Table<'_, '_>) -> Self {
        Self {
            upstream,
            upstream_given_by: over.target.is_some().then(|| over.given_by("upstream")),
            admin: admin.span_of("address").filter(|_| over.admin.is_none()),
            admin_given_by: over.admin.is_some().then(|| over.given_by("admin")),
            listen_given_by: over.listen.is_some().then(|| over.given_by("listen")),
        }
    }
}

/// Reports a mistake about two addresses, at the one that is overridden, if one is.
fn report(
    table: &Table<'_, '_>,
    given_by: [Option<&String>; 2],
    at: Option<&Span>,
    problem: String,
    fix: String,
) {
    match given_by.into_iter().flatten().next() {
        Some(given_by) => table.document.mistake_in(given_by, problem, fix),
        None => table.document.mistake(at, problem, fix),
    }
}

/// Reports an upstream that is the gateway itself, and two listeners on one address.
pub(super) fn check(
    table: &Table<'_, '_>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    target: Option<&Target>,
    written: &AddressSpans,
) {
    if let Some(admin) = admin.filter(|admin| overlap(*admin, listen)) {
        let problem = format!("the admin address {admin} is the address that clients use ({listen})");
        let fix =
            format!("give one of them another port, or write \"{}\" for the admin address", Address::Off);
        let given_by = [written.admin_given_by.as_ref(), written.listen_given_by.as_ref()];
        report(table, given_by, written.admin.as_ref(), problem, fix);
    }
    let Some(target) = target else { return };
    let Some(upstream) = resolved(target) else { return };
    let gateway_addresses = [
        (Some(listen), "address that this gateway listens on", &written.listen_given_by),
        (admin, "gateway's own admin address", &written.admin_given_by),
    ];
    for (address, description, given_by) in gateway_addresses {
        if address.is_some_and(|address| overlap(address, upstream)) {
            let problem = format!(
                "the upstream {target} is the {description}: every request would be sent to the gateway itself"
            );
            let fix = "write the URL of the service, or listen on another port".to_owned();
            let given_by = [written.upstream_given_by.as_ref(), given_by.as_ref()];
            report(table, given_by, written.upstream.as_ref(), problem, fix);
        }
    }
}

/// The upstream's address, if its URL contains one. No name is resolved.
fn resolved(target: &Target) -> Option<SocketAddr> {
    let host = target.host().trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = if host.eq_ignore_ascii_case("localhost") {
        Ipv4Addr::LOCALHOST.into()
    } else {
        host.parse().ok()?
    };
    // Connecting to "any address" connects to this machine.
    let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
    Some((address, target.port()).into())
}

/// Whether both cannot be listened on at once, or a request to one arrives at the other.
fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let covers = |one: SocketAddr, other: SocketAddr| {
        one.ip().is_unspecified() && (one.is_ipv6() || other.ip().to_canonical().is_ipv4())
    };
    let is_same = one.ip().to_canonical() == other.ip().to_canonical();
    one.port() != 0 && one.port() == other.port() && (is_same || covers(one, other) || covers(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_overlap_where_one_covers_the_other() {
        let overlap = |one: &str, other: &str| {
            overlap(one.parse().expect("an address"), other.parse().expect("an address"))
        };
        assert!(overlap("127.0.0.1:80", "127.0.0.1:80") && overlap("0.0.0.0:80", "127.0.0.1:80"));
        assert!(overlap("[::]:80", "127.0.0.1:80") && overlap("10.0.0.1:80", "0.0.0.0:80"));
        assert!(!overlap("127.0.0.1:80", "127.0.0.1:81") && !overlap("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!overlap("127.0.0.1:0", "127.0.0.1:0"), "the system chooses two ports");
    }
}
