//! Addresses that get in each other's way: what would only show when the first request comes.

use super::table::{Span, Table};
use crate::admin::Address;
use crate::cli::address::overlap;
use crate::upstream::Target;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// The position of each address in the file; none if it comes from a flag or an environment variable.
pub(super) struct AddressSpans {
    pub(super) upstream: Option<Span>,
    pub(super) admin: Option<Span>,
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
        let what = format!("the admin address {admin} is the address that clients use ({listen})");
        let fix =
            format!("give one of them another port, or write \"{}\" for the admin address", Address::Off);
        table.document.mistake(written.admin.as_ref(), what, fix);
    }
    let Some(target) = target else { return };
    let Some(upstream) = resolved(target) else { return };
    let own =
        [(Some(listen), "address that this gateway listens on"), (admin, "gateway's own admin address")];
    for (own, what) in own {
        if own.is_some_and(|own| overlap(own, upstream)) {
            let what = format!(
                "the upstream {target} is the {what}: every request would be sent to the gateway itself"
            );
            let fix = "write the URL of the service, or listen on another port";
            table.document.mistake(written.upstream.as_ref(), what, fix);
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
