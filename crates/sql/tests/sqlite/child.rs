//! Separate processes: this program, started again for one role.

use crate::scratch::{NOW, claim_at, claimed, finished, id, insert, is_done, open, renewed, swap};
use semel_core::machine;
use semel_core::store::{Change, Kind, Store as _, Written};
use semel_core::time::Time;
use semel_sql::sqlite::{Options, Store};
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const PART: &str = "SEMEL_TEST_PART";
const FILE: &str = "SEMEL_TEST_FILE";
const NUMBER: &str = "SEMEL_TEST_NUMBER";

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Opens the file, which may not exist, and inserts one record.
    Open,
    /// Claims and renews the same commands as the others; reports what it won.
    Hammer,
    /// Writes without end; reports what was acknowledged.
    Load,
    /// Fills the disk, frees space, continues.
    Fill,
    /// Writes until the file may not grow any more.
    Grow,
    /// Opens a file that must not be written.
    ReadOnly,
    /// Opens a file by a relative name that looks like a URI, and changes the directory.
    Uri,
    /// Erases a response while somebody reads, and waits to be killed before it can remove the bytes.
    Erase,
}

const PARTS: [Part; 8] =
    [Part::Open, Part::Hammer, Part::Load, Part::Fill, Part::Grow, Part::ReadOnly, Part::Uri, Part::Erase];

/// The command that runs `part` on `file`, for the caller to start or to wrap.
pub(crate) fn command(part: Part, file: &Path, number: u64) -> Command {
    start_with(&[], part, file, number)
}

/// The same, started by the shell script `script`, which ends with `exec "$@"`.
pub(crate) fn in_shell(launcher: &[&str], script: &str, part: Part, file: &Path) -> Command {
    let command_line = [launcher, &["sh", "-c", script, "sh"]].concat();
    start_with(&command_line, part, file, 0)
}

fn start_with(launcher: &[&str], part: Part, file: &Path, number: u64) -> Command {
    let program = std::env::current_exe().expect("this program has a file");
    let mut command = match launcher.split_first() {
        None => Command::new(program),
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
    };
    command
        .args(["--exact", "child::run", "--ignored", "--nocapture"])
        .env(PART, format!("{part:?}"))
        .env(FILE, file)
        .env(NUMBER, number.to_string())
        .stdout(Stdio::piped());
    command
}

/// A running process, and its output.
pub(crate) struct ChildProcess {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl ChildProcess {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.spawn().expect("a process starts");
        let stdout = process.stdout.take().expect("it was asked for");
        Self { process, lines: BufReader::new(stdout).lines() }
    }

    /// The numbers of the next line that begins with `word`; `None` when the process has ended.
    pub(crate) fn next_numbers(&mut self, word: &str) -> Option<Vec<u64>> {
        let line = self.lines.by_ref().map_while(Result::ok).find_map(|line| {
            // A line that was cut off by a kill does not count.
            line.strip_prefix(word)?.trim().strip_suffix(" .").map(str::to_owned)
        })?;
        Some(line.split(' ').map(|number| number.parse().expect("a number")).collect())
    }

    /// Kills the process without warning.
    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it is ours to kill");
    }

    /// Waits for the end; returns whether it succeeded.
    pub(crate) fn ended(mut self) -> bool {
        while self.lines.next().is_some() {}
        self.process.wait().expect("it ends").success()
    }
}

#[test]
#[ignore = "a role in other tests, run in a separate process"]
fn run() {
    // With one thread, the test harness has printed the test's name and no line feed yet.
    println!();
    let asked = std::env::var(PART).expect("started by another test");
    let part = PARTS.into_iter().find(|part| format!("{part:?}") == asked).expect("a part");
    let file = PathBuf::from(std::env::var_os(FILE).expect("started by another test"));
    let number = std::env::var(NUMBER).expect("started by another test").parse().expect("a number");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async {
        match part {
            Part::Open => assert!(is_done(&insert(&open(&file), number, &claimed(number)).await)),
            Part::Hammer => hammer(&file, number).await,
            Part::Load => load(&file, number).await,
            Part::Fill => fill(&file).await,
            Part::Grow => grow(&file).await,
            Part::ReadOnly => read_only(&file),
            Part::Uri => uri(&file).await,
            Part::Erase => crate::erase::erase_and_wait(&file, number).await,
        }
    });
}

pub(crate) const KEYS: u64 = 40;
pub(crate) const ROUNDS: u64 = 25;

async fn hammer(file: &Path, process: u64) {
    let store = Arc::new(open(file));
    let tasks: Vec<_> = (0..KEYS)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut record = claim_at(number, (u128::from(process) << 64) + u128::from(number), NOW);
                match insert(&store, number, &record).await {
                    Written::Done { .. } => println!("wrote {number} 1 ."),
                    Written::Refused(found) => record = found.record().expect("a record").clone(),
                }
                for _ in 0..ROUNDS {
                    let now = Time::from_millis(NOW + record.version());
                    let next = machine::renew(&record, record.token(), now).expect("it may be").next;
                    match swap(&store, number, &record, &next).await {
                        Written::Done { .. } => {
                            println!("wrote {number} {} .", next.version());
                            record = next;
                        }
                        Written::Refused(found) => record = found.record().expect("a record").clone(),
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// Claims and finishes commands from `first` on, 32 at a time, until it is killed.
async fn load(file: &Path, first: u64) {
    let store = Arc::new(open(file));
    let tasks: Vec<_> = (0..32)
        .map(|lane| {
            let store = store.clone();
            tokio::spawn(async move {
                for number in (first + lane..).step_by(32) {
                    let record = claimed(number);
                    assert!(is_done(&insert(&store, number, &record).await));
                    println!("acknowledged {number} 1 .");
                    let done = finished(&record, vec![7; 300]);
                    assert!(is_done(&swap(&store, number, &record, &done).await));
                    println!("acknowledged {number} 2 .");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
}

/// On a small file system, with a file of 1 MiB beside it that can be removed.
async fn fill(file: &Path) {
    let ballast = file.with_file_name("ballast");
    // As much as store and log can take, so that there is room for both when it is gone.
    std::fs::write(&ballast, vec![1; 4 << 20]).expect("there is room for it");
    let store = open(file);
    let large = |number| finished(&claimed(number), vec![7; 50_000]);
    let mut acknowledged = 0;
    let error = loop {
        match store.write(id(acknowledged), Change::Insert(&large(acknowledged))).await {
            Ok(written) => assert!(is_done(&written)),
            Err(error) => break error,
        }
        acknowledged += 1;
        assert!(acknowledged < 10_000, "the disk has to be full by now");
    };
    assert!(acknowledged > 5, "some fit");
    assert_eq!(error.kind(), Kind::Full, "{error}");
    assert_eq!(
        store.get(id(acknowledged)).await.expect("reading continues").entry,
        None,
        "nothing was written"
    );
    let again = store.write(id(acknowledged), Change::Insert(&large(acknowledged))).await;
    assert_eq!(again.map_err(|error| error.kind()), Err(Kind::Full), "it stays full");

    std::fs::remove_file(&ballast).expect("room is made");
    // The log may first be moved into the file.
    for tries_left in (0..100).rev() {
        match store.write(id(acknowledged), Change::Insert(&large(acknowledged))).await {
            Ok(written) => {
                assert!(is_done(&written), "without being opened again");
                break;
            }
            Err(error) if error.kind() == Kind::Full && tries_left > 0 => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop(store);
    let store = open(file);
    for number in 0..=acknowledged {
        assert!(store.get(id(number)).await.expect("read").record() == Some(&large(number)), "{number}");
    }
    assert_eq!(store.verify().await.expect("read"), Vec::<String>::new());
}

/// Writes fail for a reason that proves nothing: a limit on the size of files.
async fn grow(file: &Path) {
    let store = open(file);
    let large = |number| finished(&claimed(number), vec![7; 50_000]);
    let (mut acknowledged, mut failed) = (Vec::new(), 0);
    for number in 0..200 {
        match store.write(id(number), Change::Insert(&large(number))).await {
            Ok(written) => {
                assert!(is_done(&written));
                acknowledged.push(number);
            }
            Err(error) => {
                assert!(matches!(error.kind(), Kind::Ambiguous | Kind::Full | Kind::Unavailable), "{error}");
                failed += 1;
            }
        }
    }
    assert!(!acknowledged.is_empty() && failed > 0, "{} acknowledged, {failed} failed", acknowledged.len());
    for number in acknowledged {
        println!("acknowledged {number} .");
    }
}

fn read_only(file: &Path) {
    for path in [file.to_owned(), file.with_file_name("new.db")] {
        let error = Store::open(&path, Options::default()).expect_err("refused");
        assert_eq!(error.kind(), Kind::ReadOnly, "{}: {error}", path.display());
    }
}

async fn uri(file: &Path) {
    std::env::set_current_dir(file.parent().expect("it has one")).expect("it is there");
    let store = open(Path::new("file:semel.db?mode=memory"));
    assert!(is_done(&insert(&store, 1, &claimed(1)).await));
    std::env::set_current_dir("/").expect("it is there");
    let next_numbers = store.hazards().await.expect("looked at");
    assert!(next_numbers.iter().all(|hazard| hazard.code != "sqlite-file-replaced"), "{next_numbers:?}");
}

/// Keeps the roles that only some tests use from being reported as unused.
#[test]
fn a_renewal_is_the_next_version() {
    assert_eq!(renewed(&claimed(1)).version(), claimed(1).version() + 1);
}
