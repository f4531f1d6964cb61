//! A process that reads outcomes from a store as a killed process left it. It writes nothing, because a sync
//! would make durable what it only read.

use crate::client;
use crate::clock;
use crate::journal::{Journal, Kind, Line, Tail};
use crate::worker::WorkerOptions;
use crate::workspace::{self, Failure};
use semel::core::record::State;
use std::collections::BTreeMap;

/// How many of the newest keys are read.
const NEWEST: usize = 200;

/// Records every outcome that it finds, prints a line, and waits to be killed.
pub(crate) async fn run(options: WorkerOptions) -> Result<(), Failure> {
    let WorkerOptions { workspace, run, life, .. } = &options;
    let mut begun = BTreeMap::new();
    for (index, line) in Tail::from_the_start().lines(&workspace.ledger())?.into_iter().enumerate() {
        if line.kind == Kind::Begin {
            begun.insert(line.key, (index, line.operation_id));
        }
    }
    let mut newest: Vec<_> = begun.into_iter().map(|(key, (index, id))| (index, key, id)).collect();
    newest.sort_unstable_by(|one, other| other.cmp(one));
    newest.truncate(NEWEST);
    let answers = Journal::append_to(&workspace.answers())?;
    let store = workspace::open(&workspace.address).await?;
    for (_, key, operation_id) in newest {
        let asked = clock::now();
        let (now, item) = store.find(operation_id.parse()?).await?;
        let Some(record) = item.as_ref().and_then(|item| item.record()) else { continue };
        let (State::Succeeded { outcome, expires_at } | State::FailedReplayable { outcome, expires_at }) =
            record.state()
        else {
            continue;
        };
        if *expires_at > now {
            let line = Line { operation_id, asked, ..Line::new(Kind::Replay, run, &key) };
            answers.note(&client::acknowledged(line, outcome, Some(*expires_at)))?;
        }
    }
    println!("ready");
    tokio::time::sleep(*life).await;
    // It is not closed, because that would sync.
    std::process::exit(0)
}
