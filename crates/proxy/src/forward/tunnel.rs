//! An upgraded connection: bytes are copied in both directions until both sides are done. Protected requests cannot be
//! upgraded.

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// The target of log lines, which stays the same wherever this code stands.
const LOG: &str = "semel_gateway::forward::tunnel";

/// Copies bytes between a client and the upstream as soon as both have switched protocols.
pub(super) fn dig(client: OnUpgrade, upstream: OnUpgrade) {
    tokio::spawn(async move {
        let (client, upstream) = match tokio::try_join!(client, upstream) {
            Ok(both) => both,
            Err(error) => {
                tracing::debug!(target: LOG, %error, "one side of a tunnel did not switch");
                return;
            }
        };
        let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
        if let Err(error) = tokio::io::copy_bidirectional(&mut client, &mut upstream).await {
            tracing::debug!(target: LOG, %error, "a tunnel was closed with an error");
        }
    });
}
