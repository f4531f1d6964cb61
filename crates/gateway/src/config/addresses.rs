//! Addresses that get in each other's way: what would only show when the first request comes.

use super::table::{Span, Table};
use crate::admin::Address;
use crate::cli::address::overlap;
use crate::upstream::Target;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where each address was written; none for what a flag or a variable says.
pub(super) struct Written {
    pub(super) upstream: Option<Span>,
    pub(super) admin: Option<Span>,
}

/// The gateway must not stand in front of itself, and has two addresses.
pub(super) fn check(
    table: &Table<'_, '_>,
    listen: SocketAddr,
    admin: Option<SocketAddr>,
    target: Option<&Target>,
    written: &Written,
) {
    if let Some(admin) = admin.filter(|admin| overlap(*admin, listen)) {
        let what = format!("the admin address {admin} is the address that clients use ({listen})");
        let mend =
            format!("give one of them another port, or write \"{}\" for the admin address", Address::Off);
        table.page.mistake(written.admin.as_ref(), what, mend);
    }
    let Some(target) = target else { return };
    let Some(upstream) = resolved(target) else { return };
    let own =
        [(Some(listen), "address that this gateway listens on"), (admin, "gateway's own admin address")];
    for (own, what) in own {
        if own.is_some_and(|own| overlap(own, upstream)) {
            let what =
                format!("the upstream {target} is the {what}: every request would go round in circles");
            let mend = "write the URL of the service, or listen on another port";
            table.page.mistake(written.upstream.as_ref(), what, mend);
        }
    }
}

/// Where the upstream is, as far as its URL says without asking anybody.
fn resolved(target: &Target) -> Option<SocketAddr> {
    let host = target.host().trim_start_matches('[').trim_end_matches(']');
    let address: IpAddr = if host.eq_ignore_ascii_case("localhost") {
        Ipv4Addr::LOCALHOST.into()
    } else {
        host.parse().ok()?
    };
    // To connect to "any address" is to connect to this machine.
    let address = if address.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { address };
    Some((address, target.port()).into())
}
