//! Why a gateway does not start, or cannot use a new configuration.

use crate::stores::{self, Url};
use semel::BuildError;
use semel::archive;
use semel::quota::QuotasError;
use semel::secrets::{self, Phase};
use semel_admin::OptionsError;
use semel_http::RouteSettingsError;
use semel_identity::IdentityError;
use semel_net::client::AuthoritiesError;
use semel_proxy::listen;
use std::net::SocketAddr;
use thiserror::Error;

/// Why a gateway does not start, or cannot use a new configuration.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address for clients, or a TLS file, cannot be used.
    #[error(transparent)]
    Listen(#[from] listen::Error),
    /// The admin address is in use.
    #[error(
        "the admin address {0} is in use, perhaps by another gateway on this machine. Choose another one with --admin ADDRESS \
         (or `address` under [admin]), or none with --admin off"
    )]
    AdminAddressInUse(SocketAddr),
    /// The admin address cannot be bound for another reason.
    #[error("the admin address: {0}")]
    AdminListen(#[source] listen::Error),
    /// The admin address must not be opened.
    #[error("the admin address {0} cannot be opened: {1}")]
    AdminAddress(SocketAddr, #[source] OptionsError),
    /// The admin API cannot be served with these options.
    #[error(transparent)]
    AdminOptions(#[from] OptionsError),
    /// Rules ask for client certificates, and the listener does not.
    #[error(
        "callers are identified by client certificates, but the listener asks for none: set `client_ca` under [listen] and \
         restart"
    )]
    NoClientCertificates,
    /// An operation's limits make no sense.
    #[error(transparent)]
    Rates(#[from] QuotasError),
    /// No certificate of the upstream, or of a probe's service, could be verified.
    #[error(transparent)]
    Authorities(#[from] AuthoritiesError),
    /// Rules for callers are unsafe.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Callers(Vec<IdentityError>),
    /// A rule for an operation's callers is not among the started ones.
    #[error("the rule for an operation's callers was not started")]
    CallersNotStarted,
    /// The routes do not fit together, or need sealing keys that the engine does not have.
    #[error(transparent)]
    Routes(#[from] RouteSettingsError),
    /// The routes do not fit the running engine.
    #[error("{0}. Keys of [sealing] are read only at start")]
    RoutesOfReload(#[source] RouteSettingsError),
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] stores::OpenError),
    /// Records use the announced hashing secret already.
    #[error(
        "the next hashing secret can no longer be withdrawn: its phase is {0}, and records use it. Write it as \
         hashing_secret_next again, and let the replacement finish"
    )]
    SecretInUse(Phase),
    /// The announced hashing secret was not withdrawn.
    #[error("the announced hashing secret was not withdrawn: {0}")]
    SecretNotWithdrawn(#[source] secrets::Error),
    /// Nobody said how much the clocks of machines on this store can differ.
    #[error(
        "{0}: machines that share this store do not share a clock; set [clock] skew to the most that their clocks can differ by"
    )]
    NoSkew(Url),
    /// The archive cannot be opened.
    #[error(transparent)]
    Archive(#[from] archive::Error),
    /// The store's hashing secret is not configured.
    #[error(
        "{0} cannot be used: {1}, as hashing_secret, or as hashing_secret_next if it was only announced. To withdraw an announced \
         one, write hashing_secret_next = \"withdraw\" under [store]; this works as long as no record uses it"
    )]
    NoSecret(Url, #[source] BuildError),
    /// The engine cannot use the store.
    #[error("{0} cannot be used: {1}")]
    Engine(Url, #[source] BuildError),
}
