//! Durable claim + finish: the embedded store beside a bare log that syncs as often and keeps nothing else.
//!
//! `cargo run --release -p semel-bench --example sqlite_store -- [records] [tasks] [seconds] [rounds]`
//!
//! The two run in turns, so that what the machine does besides hits both; the ratio is what counts. CPU is that of the
//! whole process: the tasks that ask, encoding included, and the threads that answer.

use semel_bench::barelog::BareLog;
use semel_bench::lifecycle::{claim, finish, id};
use semel_core::codec;
use semel_core::store::{Fresh, Store as _, Written};
use semel_sql::sqlite::{Options, Store};
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Run {
    per_second: f64,
    cpu_micros: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<u64> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let argument = |index: usize, default| arguments.get(index).copied().unwrap_or(default);
    let (records, tasks, seconds, rounds) =
        (argument(0, 0), argument(1, 512), argument(2, 3), argument(3, 5));
    let directory = scratch()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let store = Arc::new(Store::open(directory.join("semel.db"), Options::default())?);
    let log = Arc::new(BareLog::create(&directory.join("bare.log"))?);
    let next = Arc::new(AtomicU64::new(0));
    let span = Duration::from_secs(seconds);

    let started = Instant::now();
    fill(&runtime, &store, &next, records);
    println!(
        "{records} records in {:.1} s; {tasks} tasks, {seconds} s a turn",
        started.elapsed().as_secs_f64()
    );
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let bare = measure(
            &runtime,
            tasks,
            span,
            &next,
            || log.clone(),
            |log, number| async move {
                let claim = claim(number);
                log.append(codec::encode_record(&claim.next)).await;
                log.append(codec::encode_record(&finish(&claim).next)).await;
            },
        );
        let kept = measure(&runtime, tasks, span, &next, || store.clone(), one);
        ratios.push(kept.per_second / bare.per_second);
        println!(
            "bare log {:>7.0}/s {:>5.1} us CPU   store {:>7.0}/s {:>5.1} us CPU   ratio {:.2}",
            bare.per_second,
            bare.cpu_micros,
            kept.per_second,
            kept.cpu_micros,
            kept.per_second / bare.per_second
        );
    }
    ratios.sort_by(f64::total_cmp);
    println!("median ratio {:.2}", ratios[ratios.len() / 2]);
    drop(store);
    drop(log);
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

async fn one(store: Arc<Store>, number: u64) {
    let claim = claim(number);
    let claimed = store.insert(id(number), Fresh::Record(&claim.next)).await;
    assert!(matches!(claimed, Ok(Written::Done { .. })), "{claimed:?}");
    let finish = finish(&claim);
    let finished = store.swap(id(number), finish.expect, &finish.next).await;
    assert!(matches!(finished, Ok(Written::Done { .. })), "{finished:?}");
}

fn fill(runtime: &tokio::runtime::Runtime, store: &Arc<Store>, next: &Arc<AtomicU64>, records: u64) {
    let tasks: Vec<_> = (0..1024)
        .map(|_| {
            let (store, next) = (store.clone(), next.clone());
            runtime.spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= records {
                        break;
                    }
                    one(store.clone(), number).await;
                }
            })
        })
        .collect();
    tasks.into_iter().for_each(|task| runtime.block_on(task).expect("no panic"));
}

fn measure<S: Send + 'static, F: Future<Output = ()> + Send>(
    runtime: &tokio::runtime::Runtime,
    tasks: u64,
    span: Duration,
    next: &Arc<AtomicU64>,
    subject: impl Fn() -> Arc<S>,
    work: impl Fn(Arc<S>, u64) -> F + Copy + Send + 'static,
) -> Run
where
    Arc<S>: Send,
{
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let (subject, next) = (subject(), next.clone());
            runtime.spawn(async move {
                let mut done = 0_u64;
                while started.elapsed() < span {
                    work(subject.clone(), next.fetch_add(1, Ordering::Relaxed)).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let done: u64 = tasks.into_iter().map(|task| runtime.block_on(task).expect("no panic")).sum();
    let (elapsed, cpu) = (started.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    Run { per_second: done as f64 / elapsed, cpu_micros: cpu * 1e6 / done as f64 }
}

/// User and system time of this process, from `/proc` (hundredths of a second); zero where there is none.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |index: usize| fields.get(index).and_then(|text| text.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn scratch() -> std::io::Result<PathBuf> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../target/tmp/sqlite-{}", std::process::id()));
    std::fs::create_dir_all(&directory)?;
    Ok(directory)
}
