//! `semel serve --demo`: the gateway in front of the payment service that comes along.
//!
//! What lives here: which store and which terms the demo runs on, and how it ends. What must never: a part of the story, or a
//! gateway that is not the one everybody runs.

use super::{Gateway, Plan, signals};
use crate::demo::{payments, story};
use crate::{listen, stores, upstream};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tokio::sync::oneshot;

/// How long a demo takes to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Tells the story, then serves on until the process is asked to end; not where `is_short`.
pub async fn run(address: SocketAddr, is_short: bool) -> Result<ExitCode, String> {
    let payments = payments::start().await;
    let payments = payments.map_err(|error| format!("the demo's payment service cannot start: {error}"))?;
    let folder = Folder::new().map_err(|error| format!("no folder for the demo's store: {error}"))?;
    let gateway = Gateway::open(plan(address, payments.address(), &folder.0)?).await?;
    let has_colour = story::stdout_has_colour();
    let stage = story::Stage {
        gateway: gateway.address(),
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
    let told = tokio::select! {
        told = story::tell(stage, &mut out) => Some(told),
        () = signals::asked_to_end() => None,
    };
    let code = match told {
        Some(Ok(balance)) if is_short => ExitCode::from(u8::from(!balance.is_even())),
        Some(Ok(_)) => {
            // Nobody reads any more: nobody will try anything either.
            if out.flush().is_ok() {
                signals::asked_to_end().await;
            }
            ExitCode::SUCCESS
        }
        Some(Err(error)) => return Err(format!("the story cannot be told: {error}")),
        None => ExitCode::FAILURE,
    };
    drop(stop);
    let _ = served.await;
    Ok(code)
}

fn plan(address: SocketAddr, payments: SocketAddr, folder: &Path) -> Result<Plan, String> {
    let target = upstream::Target::parse(&format!("http://{payments}"));
    Ok(Plan {
        listen: listen::Options { address, drain: DRAIN, ..listen::Options::default() },
        // It may run beside a gateway that has the usual address.
        admin: None,
        store: stores::Url::embedded(&folder.join("demo.db")),
        ..Plan::new(target.map_err(|error| error.to_string())?)
    })
}

/// A folder that is gone when the demo is.
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
        // What cannot be removed is a few kilobytes among other temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
