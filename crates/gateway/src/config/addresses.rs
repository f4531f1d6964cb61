//! Addresses that get in each other's way: what would only show when the first request comes.

use super::table::{Span, Table};
use semel_admin::Address;
use semel_net::target::Target;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where each address is set, in the file or by a flag or a variable.
pub(super) struct AddressSpans {
    pub(super) upstream: Option<Span>,
    pub(super) admin: Option<Span>,
    pub(super) listen: Option<Span>,
}

/// Reports a mistake about two addresses: at the first that a flag or a variable sets, otherwise at `at`.
fn report(table: &Table<'_, '_>, spans: [Option<&Span>; 2], at: Option<&Span>, problem: String, fix: String) {
    let given = spans.into_iter().flatten().find(|span| table.document.is_given(span));
    table.document.mistake(given.or(at), problem, fix);
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
        report(
            table,
            [written.admin.as_ref(), written.listen.as_ref()],
            written.admin.as_ref(),
            problem,
            fix,
        );
    }
    let Some(target) = target else { return };
    let Some(upstream) = resolved(target) else { return };
    let gateway_addresses = [
        (Some(listen), "address that this gateway listens on", &written.listen),
        (admin, "gateway's own admin address", &written.admin),
    ];
    for (address, description, span) in gateway_addresses {
        if address.is_some_and(|address| overlap(address, upstream)) {
            let problem = format!(
                "the upstream {target} is the {description}: every request would be sent to the gateway itself"
            );
            let fix = "write the URL of the service, or listen on another port".to_owned();
            report(
                table,
                [written.upstream.as_ref(), span.as_ref()],
                written.upstream.as_ref(),
                problem,
                fix,
            );
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
