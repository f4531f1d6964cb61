//! Where records are: behind a running gateway's admin address, or in a store.
//!
//! A token is never a flag, because every process on the machine can read command lines.

use super::cli_error::CliError;
use super::config::{render_mistakes, text};
use super::secret_parser;
use super::user;
use crate::admin_client::{AdminClient, Configured, Local};
use crate::bounded_read::{FileKind, read};
use crate::config::{self, Config, Overrides};
use crate::stores;
use http::Method;
use semel_admin::client::{Remote, Reply, Url};
use semel_telemetry::logging;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The default admin address of a gateway.
const ADMIN: &str = "http://127.0.0.1:9090";
const ADMIN_VARIABLE: &str = "SEMEL_ADMIN_URL";
const TOKEN_VARIABLE: &str = "SEMEL_ADMIN_TOKEN";

/// A running gateway.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Gateway {
    /// The admin address of a running gateway, or `SEMEL_ADMIN_URL` [default: `http://127.0.0.1:9090`]
    #[arg(long, value_name = "URL", value_parser = secret_parser::admin(), global = true, help_heading = "Where")]
    admin: Option<Url>,
    /// A file with the token for it; `SEMEL_ADMIN_TOKEN` is the token itself
    #[arg(long, value_name = "FILE", global = true, help_heading = "Where")]
    token_file: Option<PathBuf>,
    /// Trust these certificate authorities for an https address, PEM, instead of the system's
    #[arg(long, value_name = "FILE", global = true, help_heading = "Where")]
    ca: Option<PathBuf>,
}

/// A running gateway, or the store itself.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct Target {
    #[command(flatten)]
    gateway: Gateway,
    /// Open the store itself, such as `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `redis://HOST`, also while
    /// gateways run on it: this process is then one more node, which sweeps nothing
    #[arg(long, value_name = "URL", global = true, conflicts_with_all = ["admin", "token_file", "ca"], help_heading = "Where")]
    store: Option<stores::Url>,
    /// With --store: the gateway's configuration file, if it sets the hashing secret or sealing keys
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "admin", help_heading = "Where")]
    config: Option<PathBuf>,
}

/// The flags of [`Target`], for a command that does not use them: hidden from its help, and refused by
/// [`Target::check_unused`]. Every command below `semel records` accepts them otherwise.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct UnusedTarget {
    #[arg(long, value_parser = secret_parser::admin(), hide = true)]
    admin: Option<Url>,
    #[arg(long, hide = true)]
    token_file: Option<PathBuf>,
    #[arg(long, hide = true)]
    ca: Option<PathBuf>,
    #[arg(long, hide = true)]
    store: Option<stores::Url>,
    #[arg(long, hide = true)]
    config: Option<PathBuf>,
}

impl Gateway {
    /// The gateway, ready for requests.
    pub(super) fn client(&self) -> Result<AdminClient, CliError> {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let url = match (&self.admin, variable(ADMIN_VARIABLE)) {
            (Some(url), _) => url.clone(),
            (None, Some(text)) => {
                text.parse().map_err(|why| CliError::usage(format!("{ADMIN_VARIABLE}: {why}")))?
            }
            (None, None) => ADMIN.parse().map_err(CliError::usage)?,
        };
        let token = match &self.token_file {
            Some(file) => Some(token(file)?),
            None => variable(TOKEN_VARIABLE),
        };
        if token.is_some() && url.is_in_clear() {
            eprintln!("warning: the token is sent to {url} without TLS and can be read on the network");
        }
        let authorities = self.ca.as_deref().map(|file| read(file, FileKind::Certificates)).transpose()?;
        let remote = Remote::new(url, token.as_deref().map(str::trim), authorities.as_deref());
        Ok(AdminClient::Remote(remote.map_err(CliError::usage)?))
    }
}

impl Target {
    /// Refuses flags that a command with its own store flags does not read.
    pub(super) fn check_unused(&self) -> Result<(), CliError> {
        let Self { gateway: Gateway { admin, token_file, ca }, store, config } = self;
        let given = [
            (admin.is_some(), "--admin"),
            (token_file.is_some(), "--token-file"),
            (ca.is_some(), "--ca"),
            (store.is_some(), "--store"),
            (config.is_some(), "--config"),
        ];
        match given.into_iter().find(|(is_given, _)| *is_given) {
            Some((_, flag)) => Err(CliError::usage(format!(
                "{flag} cannot be used here: name the stores with --from and --to"
            ))),
            None => Ok(()),
        }
    }

    /// Whether the store itself is opened, not a gateway.
    pub(super) fn is_store(&self) -> bool {
        self.store.is_some()
    }

    /// Whether a file says which keys seal what is stored from here.
    pub(super) fn is_configured(&self) -> bool {
        self.config.is_some()
    }

    /// The admin API, ready for requests.
    pub(super) async fn client(&self, with_bodies: bool) -> Result<AdminClient, CliError> {
        let Some(url) = &self.store else {
            if self.config.is_some() {
                return Err(CliError::usage(
                    "--config works only with --store: a running gateway uses its own \
                    configuration",
                ));
            }
            return self.gateway.client();
        };
        // This process logs what it does itself; otherwise the gateway logs it.
        logging::begin(logging::Form::Text, logging::Level::Info, None);
        let configured = self.config.as_deref().map(configured).transpose()?.unwrap_or_default();
        let local = Local::open(url, configured, &user::name(), with_bodies).await?;
        Ok(AdminClient::Local(Box::new(local)))
    }
}

/// Sends a request, and turns refusals into errors.
pub(super) async fn ask(
    client: &AdminClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
    is_json: bool,
) -> Result<Value, CliError> {
    let Reply { status, retry_after, document } = client.ask(method, path, body).await?;
    if (200..300).contains(&status) {
        // The API always answers with an object.
        return if document.is_object() { Ok(document) } else { Err(foreign()) };
    }
    if is_json {
        super::say_document(&document);
    }
    let member = |name: &str| document[name].as_str().map(semel_text::printable::printable);
    let why =
        member("detail").or_else(|| member("title")).unwrap_or_else(|| format!("the response was {status}"));
    let code = member("code").map(|code| format!(" ({code})")).unwrap_or_default();
    let later = retry_after.map(|seconds| format!(" Ask again in {seconds} s.")).unwrap_or_default();
    let why = format!("{why}{later}{code}");
    Err(match status {
        400 | 413 => CliError::usage(why),
        404 if member("code").as_deref() == Some("OPERATION_NOT_FOUND") => CliError::not_found(why),
        409 => CliError::refused(why),
        401 => CliError::failed(format!("{why} Put it into {TOKEN_VARIABLE}, or a file for --token-file.")),
        _ => CliError::failed(why),
    })
}

/// Requests a record, or an action on one.
pub(super) async fn ask_record(
    client: &AdminClient,
    method: Method,
    path: &str,
    body: Option<&Value>,
    is_json: bool,
) -> Result<Value, CliError> {
    let record = ask(client, method, path, body, is_json).await?;
    if record["operationId"].is_string() { Ok(record) } else { Err(foreign()) }
}

/// The response is JSON, but not from the admin API.
pub(super) fn foreign() -> CliError {
    CliError::failed("the response is not from the admin API; is this an admin address?")
}

/// What a configuration file says about the records of its gateways.
fn configured(file: &Path) -> Result<Configured, CliError> {
    let config = config_of(file)?;
    let routes = Some((config.routes()?, config.upstream.head_bytes_max));
    Ok(Configured { sealing: config.sealing, hashing: config.storage.hashing, routes })
}

/// A configuration file, as gateways read it.
pub(super) fn config_of(file: &Path) -> Result<Config, CliError> {
    let read = config::read(&text(file)?, &Overrides::default(), &config::environment);
    read.map_err(|mistakes| CliError::failed(render_mistakes(file, &mistakes)))
}

fn token(file: &Path) -> Result<String, CliError> {
    let token = String::from_utf8(read(file, FileKind::Token)?)
        .map_err(|_| CliError::usage(format!("{} contains no token", file.display())))?;
    if token.trim().is_empty() {
        return Err(CliError::usage(format!("{} is empty; it should contain a token", file.display())));
    }
    Ok(token)
}
