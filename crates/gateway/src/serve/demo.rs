//! `semel serve --demo`: the usual gateway in front of the demo's payment service, on a temporary store.

use super::{Gateway, ServeError, signals};
use crate::config::{Admin, Plan};
use crate::demo::{payments, story};
use crate::{stores, terminal};
use semel_admin as admin;
use semel_net::target::{Target, TargetError};
use semel_proxy::listen;
use std::ffi::OsString;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf, is_separator};
use std::process::ExitCode;
use std::time::Duration;
use thiserror::Error;
use tokio::sync::oneshot;

/// Only this machine reaches it.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// How long the demo takes to stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the demo ended early.
#[derive(Debug, Error)]
pub enum DemoError {
    /// Its own service cannot start.
    #[error("the demo's payment service cannot start: {0}")]
    Payments(#[source] io::Error),
    /// Its store has no folder.
    #[error("no folder for the demo's store: {0}")]
    Folder(#[source] io::Error),
    /// Its service cannot be an upstream.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The gateway cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The story cannot be printed.
    #[error("the demo failed: {0}")]
    Story(#[source] io::Error),
}

/// Plays the story, then serves until the process is asked to stop; with `is_short`, it ends after the story.
pub async fn run(address: SocketAddr, is_short: bool) -> Result<ExitCode, DemoError> {
    let payments = payments::start().await.map_err(DemoError::Payments)?;
    let folder = Folder::new().map_err(DemoError::Folder)?;
    let gateway = Gateway::open(plan(address, payments.address(), &folder.0)?).await?;
    let has_colour = terminal::has_colour();
    let stage = story::Stage {
        program: program(std::env::args_os().next()),
        gateway: gateway.address(),
        admin: gateway.admin_address(),
        upstream: payments.address(),
        ledger: payments.ledger().clone(),
        engine: gateway.engine().clone(),
        pace: story::Pace::of_stdout(),
        has_colour,
        keeps_running: !is_short,
    };
    let (stop, stopped) = oneshot::channel::<()>();
    let served = tokio::spawn(gateway.run(async { drop(stopped.await) }));
    let mut out = io::stdout();
    let printed = tokio::select! {
        printed = story::play(stage, &mut out) => Some(printed),
        () = signals::shutdown_requested() => None,
    };
    let code = match printed {
        Some(Ok(balance)) if is_short => ExitCode::from(u8::from(!balance.is_balanced())),
        Some(Ok(_)) => {
            // If nobody reads the output, nobody will try the commands either.
            if out.flush().is_ok() {
                signals::shutdown_requested().await;
            }
            ExitCode::SUCCESS
        }
        Some(Err(error)) => return Err(DemoError::Story(error)),
        None => ExitCode::FAILURE,
    };
    drop(stop);
    let _ = served.await;
    Ok(code)
}

/// What a reader types to run this program, by how it was started: a path as it was typed, because the program need not
/// be in PATH; otherwise its name.
fn program(started_as: Option<OsString>) -> String {
    let path = started_as.and_then(|name| name.into_string().ok());
    // A control character could do something to the terminal.
    let path = path.filter(|path| path.contains(is_separator) && !path.contains(char::is_control));
    path.map_or_else(|| "semel".to_owned(), |path| quoted(&path))
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "/._-+:@%,".contains(letter);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn plan(address: SocketAddr, payments: SocketAddr, folder: &Path) -> Result<Plan, TargetError> {
    Ok(Plan {
        listen: listen::Options { address, drain: DRAIN, ..listen::Options::default() },
        // On a free port: the demo may run beside a gateway that uses the default address.
        admin: Some(Admin {
            options: admin::Options { address: ADMIN, ..admin::Options::default() },
            tls: None,
        }),
        store: stores::Url::embedded(&folder.join("demo.db")),
        ..Plan::new(Target::parse(&format!("http://{payments}"))?)
    })
}

/// A folder that is removed with the demo.
struct Folder(PathBuf);

impl Folder {
    fn new() -> io::Result<Self> {
        let mut number = 0_u32;
        loop {
            let path = std::env::temp_dir().join(format!("semel-demo-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If it cannot be removed, a few kilobytes of temporary files remain.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_named_as_it_was_started() {
        let named = |started_as: &str| program(Some(started_as.into()));
        assert_eq!(named("target/release/semel"), "target/release/semel");
        assert_eq!(named("/opt/my tools/semel"), "'/opt/my tools/semel'");
        assert_eq!(named("./it's/semel"), r"'./it'\''s/semel'");
        assert_eq!(named("semel"), "semel");
        assert_eq!(named("./\u{1b}[2J/semel"), "semel");
        assert_eq!(program(None), "semel");
    }
}
