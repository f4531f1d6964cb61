//! The judge: starts workers, kills them and audits. All times of kills follow from the seed, and it stops
//! after a broken promise.

use crate::arguments::JudgeOptions;
use crate::audit::{Auditor, Reach};
use crate::chance::Chance;
use crate::clock::{self, Stopwatch};
use crate::evidence::Evidence;
use crate::power::Power;
use crate::summary::Summary;
use crate::victim::Victim;
use crate::worker::WorkerOptions;
use crate::workspace::{Address, Failure, Workspace};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// After this many rounds, a run must have met every kind of event.
const ROUNDS_MIN: u64 = 20;

struct Judge {
    options: JudgeOptions,
    workspace: Workspace,
    seed: u64,
    chance: Chance,
    power: Option<Power>,
    evidence: Evidence,
    summary: Summary,
}

/// Runs all rounds on a store. An error names the broken promise and the seed.
pub(crate) async fn run(options: JudgeOptions) -> Result<(), Failure> {
    let seed = options.seed.unwrap_or_else(clock::now);
    let workspace = prepare(&options, seed).await?;
    let power = if options.lose_unsynced { Some(Power::new(&workspace, options.sabotage)?) } else { None };
    println!("torturing {} with seed {seed}, {} rounds", workspace.address.url(), options.rounds);
    let evidence = Evidence::new(seed, options.sabotage);
    let none = power.as_ref().map(|_| 0);
    let summary = Summary { writes_discarded: none, acknowledged_before_cut: none, ..Summary::default() };
    let is_kept = options.address.as_ref().is_some_and(|address| address.file().is_some());
    let chance = Chance::new(seed);
    let mut judge = Judge { options, workspace, seed, chance, power, evidence, summary };
    let ended = judge.run_rounds().await;
    judge.summary.count(&judge.evidence);
    println!("\n{}", judge.summary);
    match ended {
        Ok(()) => {
            println!("  every promise was kept (seed {seed})");
            if !is_kept && let Some(directory) = judge.workspace.beside.parent() {
                std::fs::remove_dir_all(directory)?;
            }
            Ok(())
        }
        Err(error) => {
            let beside = judge.workspace.beside.display();
            Err(format!("{error}\n\nseed {seed}; the ledger and the answers are in {beside}").into())
        }
    }
}

/// A store that does not exist yet, and a directory beside it.
async fn prepare(options: &JudgeOptions, seed: u64) -> Result<Workspace, Failure> {
    let scratch = || std::env::temp_dir().join(format!("semel-torture-{}", std::process::id()));
    match &options.address {
        Some(address) => match address.file() {
            Some(file) => in_file(&file, Some(address)),
            None => on_server(&address.apart(&format!("torture_{seed}")), &scratch()).await,
        },
        None => in_file(&scratch().join("semel.db"), None),
    }
}

/// A store on a server, and a directory on this machine.
async fn on_server(address: &Address, directory: &Path) -> Result<Workspace, Failure> {
    if address.url().exists().await? {
        return Err(
            format!("{} exists; a run creates its own store: choose another seed", address.url()).into()
        );
    }
    let beside = directory.join("beside");
    std::fs::create_dir_all(&beside)?;
    Ok(Workspace { address: address.clone(), beside })
}

fn in_file(file: &Path, address: Option<&Address>) -> Result<Workspace, Failure> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.map_or_else(|| PathBuf::from("."), PathBuf::from);
    std::fs::create_dir_all(&directory)?;
    let directory = directory.canonicalize()?;
    let name = file.file_name().ok_or("the store's path names no file")?;
    let path = directory.join(name);
    let address = match address {
        Some(address) => address.moved_to(&path)?,
        None => Address::embedded(&path),
    };
    if address.files().iter().any(|file| file.exists()) {
        return Err(format!("{} exists; a run creates its own store", path.display()).into());
    }
    let mut beside = name.to_owned();
    beside.push(".torture");
    // In a separate directory without the store's name, so that a power cut does not affect it.
    let beside = directory.join(PathBuf::from(format!("beside-{}", beside.display())));
    if beside.exists() {
        return Err(format!("{} is left from another run", beside.display()).into());
    }
    std::fs::create_dir_all(&beside)?;
    Ok(Workspace { address, beside })
}

impl Judge {
    async fn run_rounds(&mut self) -> Result<(), Failure> {
        for round in 0..self.options.rounds {
            let watch = Stopwatch::start();
            let mut description = self.round(round)?;
            self.summary.rounds += 1;
            if self.power.is_some() && self.chance.percent(40) {
                description =
                    format!("{description}, {} outcomes read from what it left", self.observe(round)?);
            }
            if self.power.is_some() && self.chance.percent(25) {
                // The next process finds unsynced writes, and the cut follows later. There is no audit
                // either, because the auditor's writes do not go through the shim.
                self.evidence.gather(&self.workspace)?;
                println!("round {round:>3}  {description}, no power cut  ({} ms)", watch.lap().as_millis());
                continue;
            }
            let lost = match &self.power {
                Some(power) => Some(power.cut(&self.workspace, &mut self.chance)?),
                None => None,
            };
            if let (Some(total), Some(cut)) = (&mut self.summary.writes_discarded, &lost) {
                *total += cut.discarded;
            }
            self.evidence.gather(&self.workspace)?;
            let mut audit = String::new();
            // Not every time: the next worker should find the store as it was left.
            if self.chance.percent(35) {
                let replays = self.audit(round, false).await?;
                audit = format!(", {replays} replays verified");
            }
            let lost = lost.map_or_else(String::new, |cut| format!(", {cut}"));
            let took = watch.lap().as_millis();
            println!("round {round:>3}  {description}{lost}{audit}  ({took} ms)");
        }
        let replays = self.audit(self.options.rounds, true).await?;
        println!("last audit: all keys checked, {replays} replays verified");
        self.summary.count(&self.evidence);
        let missed = self.summary.missed();
        if self.summary.rounds >= ROUNDS_MIN && !missed.is_empty() {
            return Err(format!("this run proves nothing: it had no {}", missed.join(", no ")).into());
        }
        Ok(())
    }

    /// Starts one or two workers and kills them; returns a short description.
    fn round(&mut self, round: u64) -> Result<String, Failure> {
        let two = self.chance.percent(25);
        let ends = self.chance.percent(10);
        let opening = !ends && self.chance.percent(20);
        let life = Duration::from_millis(if ends { self.chance.within(200..500) } else { 20_000 });
        let mut victims = Vec::new();
        for name in if two { &["a", "b"][..] } else { &["a"] } {
            let run = format!("{round}{name}");
            victims.push(self.start(round, run, life, false)?);
        }
        if ends {
            for victim in &mut victims {
                victim.let_end()?;
            }
            self.summary.ended_by_themselves += victims.len();
            return Ok(format!("{} ended by itself", name(two)));
        }
        let mut delay = if opening {
            self.summary.kills_in_opening += victims.len();
            self.chance.within(0..50)
        } else {
            victims.iter().for_each(Victim::wait_until_ready);
            self.chance.within(5..300)
        };
        let since = if opening { "of its start" } else { "of its first command" };
        let description = format!("{} killed within {delay} ms {since}", name(two));
        for victim in &mut victims {
            std::thread::sleep(Duration::from_millis(delay));
            if victim.kill()? {
                self.summary.kills += 1;
                self.evidence.killed.insert(victim.run.clone());
            }
            delay = self.chance.within(5..120);
        }
        Ok(description)
    }

    fn start(&self, round: u64, run: String, life: Duration, read_only: bool) -> Result<Victim, Failure> {
        let (workspace, sabotage) = (self.workspace.clone(), self.options.sabotage);
        let options = WorkerOptions { workspace, seed: self.seed, round, run, life, read_only, sabotage };
        Victim::start(&options, self.power.as_ref())
    }

    /// Starts a process that reads what the last one left, and kills it too. Returns how many outcomes it
    /// acknowledged.
    fn observe(&mut self, round: u64) -> Result<usize, Failure> {
        self.evidence.gather(&self.workspace)?;
        let before = self.evidence.acknowledged();
        let mut observer = self.start(round, format!("{round}look"), Duration::from_mins(2), true)?;
        observer.wait_until_ready();
        observer.kill()?;
        self.evidence.gather(&self.workspace)?;
        let acknowledged = self.evidence.acknowledged() - before;
        *self.summary.acknowledged_before_cut.get_or_insert(0) += acknowledged;
        Ok(acknowledged)
    }

    async fn audit(&mut self, number: u64, everything: bool) -> Result<usize, Failure> {
        let run = format!("audit-{number}");
        let auditor =
            Auditor { workspace: &self.workspace, seed: self.seed, run, sabotage: self.options.sabotage };
        let reach = if everything { Reach::Everything } else { Reach::Sample(&mut self.chance) };
        let checked = auditor.audit(&mut self.evidence, reach).await?;
        self.summary.audits += 1;
        self.summary.replays += checked.replays;
        self.summary.unknown.extend(checked.unknown);
        Ok(checked.replays)
    }
}

fn name(two: bool) -> &'static str {
    if two { "two workers" } else { "a worker" }
}
