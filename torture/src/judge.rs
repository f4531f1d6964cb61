//! The judge: starts workers, kills them, audits.
//!
//! What lives here: the rounds. What must never: a kill at a moment that the seed does not know, or a round after a
//! promise was broken.

use crate::arguments::Case;
use crate::audit::{Auditor, Reach};
use crate::chance::Chance;
use crate::clock::{self, Stopwatch};
use crate::evidence::Evidence;
use crate::place::{Address, Failure, Place};
use crate::power::Power;
use crate::summary::Summary;
use crate::victim::Victim;
use crate::worker::Orders;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many rounds it takes until a torture must have met everything.
const ENOUGH: u64 = 20;

struct Judge {
    case: Case,
    place: Place,
    seed: u64,
    chance: Chance,
    power: Option<Power>,
    evidence: Evidence,
    summary: Summary,
}

/// Tortures a store. An error tells which promise was broken, and the seed.
pub(crate) async fn run(case: Case) -> Result<(), Failure> {
    let seed = case.seed.unwrap_or_else(clock::now);
    let place = prepare(&case, seed).await?;
    let power = if case.lose_unsynced { Some(Power::new(&place, case.sabotage)?) } else { None };
    println!("torturing {} with seed {seed}, {} rounds", place.address.url(), case.rounds);
    let evidence = Evidence::new(seed, case.sabotage);
    let none = power.as_ref().map(|_| 0);
    let summary = Summary { writes_taken_back: none, told_before_cut: none, ..Summary::default() };
    let is_kept = case.address.as_ref().is_some_and(|address| address.file().is_some());
    let chance = Chance::new(seed);
    let mut judge = Judge { case, place, seed, chance, power, evidence, summary };
    let ended = judge.sit().await;
    judge.summary.count(&judge.evidence);
    println!("\n{}", judge.summary);
    match ended {
        Ok(()) => {
            println!("  every promise was kept (seed {seed})");
            if !is_kept && let Some(directory) = judge.place.beside.parent() {
                std::fs::remove_dir_all(directory)?;
            }
            Ok(())
        }
        Err(error) => {
            let beside = judge.place.beside.display();
            Err(format!("{error}\n\nseed {seed}; the ledger and the answers are in {beside}").into())
        }
    }
}

/// A store that does not exist yet, and a directory beside it.
async fn prepare(case: &Case, seed: u64) -> Result<Place, Failure> {
    let scratch = || std::env::temp_dir().join(format!("semel-torture-{}", std::process::id()));
    match &case.address {
        Some(address) => match address.file() {
            Some(file) => in_file(&file, Some(address)),
            None => on_server(&address.apart(&format!("torture_{seed}")), &scratch()).await,
        },
        None => in_file(&scratch().join("semel.db"), None),
    }
}

/// A store on a server, and a directory on this machine.
async fn on_server(address: &Address, directory: &Path) -> Result<Place, Failure> {
    if address.url().exists().await? {
        return Err(
            format!("{} exists; a torture makes its own store: choose another seed", address.url()).into()
        );
    }
    let beside = directory.join("beside");
    std::fs::create_dir_all(&beside)?;
    Ok(Place { address: address.clone(), beside })
}

fn in_file(file: &Path, address: Option<&Address>) -> Result<Place, Failure> {
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
        return Err(format!("{} exists; a torture makes its own store", path.display()).into());
    }
    let mut beside = name.to_owned();
    beside.push(".torture");
    // In a directory of its own, and not under the store's name: a power cut must not reach it.
    let beside = directory.join(PathBuf::from(format!("beside-{}", beside.display())));
    if beside.exists() {
        return Err(format!("{} is left from another torture", beside.display()).into());
    }
    std::fs::create_dir_all(&beside)?;
    Ok(Place { address, beside })
}

impl Judge {
    async fn sit(&mut self) -> Result<(), Failure> {
        for round in 0..self.case.rounds {
            let watch = Stopwatch::start();
            let mut story = self.round(round)?;
            self.summary.rounds += 1;
            if self.power.is_some() && self.chance.percent(40) {
                story = format!("{story}, {} outcomes told of what it left", self.look(round)?);
            }
            if self.power.is_some() && self.chance.percent(25) {
                // The next process finds what is not synced, and the cut comes after it. No audit either: the auditor's
                // own writes do not go through the shim.
                self.evidence.gather(&self.place)?;
                println!("round {round:>3}  {story}, no power cut  ({} ms)", watch.lap().as_millis());
                continue;
            }
            let lost = match &self.power {
                Some(power) => Some(power.cut(&self.place, &mut self.chance)?),
                None => None,
            };
            if let (Some(total), Some(cut)) = (&mut self.summary.writes_taken_back, &lost) {
                *total += cut.taken_back;
            }
            self.evidence.gather(&self.place)?;
            let mut audit = String::new();
            // Not every time: the next worker shall find the store as it was left.
            if self.chance.percent(35) {
                let replays = self.audit(round, false).await?;
                audit = format!(", {replays} replays verified");
            }
            let lost = lost.map_or_else(String::new, |cut| format!(", {cut}"));
            let took = watch.lap().as_millis();
            println!("round {round:>3}  {story}{lost}{audit}  ({took} ms)");
        }
        let replays = self.audit(self.case.rounds, true).await?;
        println!("last audit: every key asked, {replays} replays verified");
        self.summary.count(&self.evidence);
        let missed = self.summary.missed();
        if self.summary.rounds >= ENOUGH && !missed.is_empty() {
            return Err(format!("this torture proves nothing: it met no {}", missed.join(", no ")).into());
        }
        Ok(())
    }

    /// Starts one or two workers and kills them; tells the story in a few words.
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
        let story = format!("{} killed within {delay} ms {since}", name(two));
        for victim in &mut victims {
            std::thread::sleep(Duration::from_millis(delay));
            if victim.kill()? {
                self.summary.kills += 1;
                self.evidence.killed.insert(victim.run.clone());
            }
            delay = self.chance.within(5..120);
        }
        Ok(story)
    }

    fn start(&self, round: u64, run: String, life: Duration, looks: bool) -> Result<Victim, Failure> {
        let (place, sabotage) = (self.place.clone(), self.case.sabotage);
        let orders = Orders { place, seed: self.seed, round, run, life, looks, sabotage };
        Victim::start(&orders, self.power.as_ref())
    }

    /// Has a process read what the last one left, and kills it too; tells how many outcomes it told.
    fn look(&mut self, round: u64) -> Result<usize, Failure> {
        self.evidence.gather(&self.place)?;
        let before = self.evidence.acknowledged();
        let mut looker = self.start(round, format!("{round}look"), Duration::from_mins(2), true)?;
        looker.wait_until_ready();
        looker.kill()?;
        self.evidence.gather(&self.place)?;
        let told = self.evidence.acknowledged() - before;
        *self.summary.told_before_cut.get_or_insert(0) += told;
        Ok(told)
    }

    async fn audit(&mut self, number: u64, everything: bool) -> Result<usize, Failure> {
        let run = format!("audit-{number}");
        let auditor = Auditor { place: &self.place, seed: self.seed, run, sabotage: self.case.sabotage };
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
