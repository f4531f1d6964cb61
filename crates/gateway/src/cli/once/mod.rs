//! `semel once`: runs a program once per key.
//!
//! **What lives here**: the program as a process, and what its end means to people. **What must never**: a rule about
//! what a record means. The engine decides whether the program runs.

mod arguments;
mod call;
mod command;
mod conclusion;
mod key_template;
mod program;
mod report;
mod store;
mod stored;

use super::cli_error::CliError;
use super::{printable_lines, user};
pub(super) use arguments::Args;
use call::Called;
use conclusion::Conclusion;
use key_template::KeyTemplate;
pub(super) use program::exec::become_program;
use program::signals::{self, Signals};
use program::{End, NotStarted, Program};
use semel::core::record::{Record, StateName};
use semel::core::time::Now;
use semel::{Class, Engine, Key, OperationId, Policy};
use semel_telemetry::logging;
use std::io::Write;
use std::process::ExitCode;
use store::{NotOpened, Opened};
use stored::StoredRun;
use tokio::sync::broadcast;

pub(super) fn main(args: &Args) -> Result<ExitCode, CliError> {
    let policy = command::policy(args).map_err(|error| CliError::usage(format!("{error}")))?;
    logging::begin(logging::Form::Text, logging::Level::Warn, None);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime =
        runtime.map_err(|error| CliError::failed(format!("the runtime cannot be started: {error}")))?;
    let (conclusion, key) = runtime.block_on(async {
        match KeyTemplate::parse(&args.key) {
            Ok(template) => once(args, &template, policy).await,
            Err(why) => {
                let conclusion = Conclusion::refused(format!("nothing was run: {why}"));
                conclusion.reason.iter().for_each(|reason| say(reason));
                (conclusion, None)
            }
        }
    });
    // Nothing is left to wait for: a thread may still write to a reader that does not read.
    runtime.shutdown_background();
    if let Some(file) = &args.report
        && let Err(error) = report::write(file, &report::document(&conclusion, key.as_deref()))
    {
        say(&format!("the report {} cannot be written: {error}", file.display()));
    }
    Ok(ExitCode::from(conclusion.code))
}

/// One call. Returns also the key, if the store's time for it was known.
async fn once(args: &Args, template: &KeyTemplate, policy: Policy) -> (Conclusion, Option<String>) {
    let mut key = None;
    let conclusion = match Signals::listen() {
        Err(error) => Conclusion::nothing_ran(format!("nothing was run: no signals are received: {error}")),
        Ok(signals) => {
            let mut stopped = signals.subscribe();
            let opened = tokio::select! {
                opened = Opened::open(&args.store, args.config.as_deref()) => opened,
                _ = signals::next(&mut stopped) => Err(NotOpened::Stopped),
            };
            match opened {
                Err(why) => Conclusion::nothing_ran(format!("nothing was run: {why}")),
                Ok(opened) => on_store(args, template, policy, (opened, signals, stopped), &mut key).await,
            }
        }
    };
    // A replay says it all by itself.
    if let Some(reason) = &conclusion.reason {
        say(reason);
    }
    (conclusion, key)
}

async fn on_store(
    args: &Args,
    template: &KeyTemplate,
    policy: Policy,
    (opened, signals, stopped): (Opened, Signals, broadcast::Receiver<rustix::process::Signal>),
    key: &mut Option<String>,
) -> Conclusion {
    let engine = &opened.engine;
    let conclusion = match key_at(engine.now(), args, template) {
        Err(conclusion) => *conclusion,
        Ok((parsed, text)) => {
            let intent = command::intent(parsed, policy, &args.command);
            let program = program(args, key.insert(text));
            let called = call::call(engine, args, intent, program, signals).await;
            conclude(engine, args, called, stopped).await
        }
    };
    opened.close().await;
    conclusion
}

/// The key at the store's time, and its text.
fn key_at(now: Now, args: &Args, template: &KeyTemplate) -> Result<(Key, String), Box<Conclusion>> {
    if !now.can_claim() {
        return Err(Box::new(Conclusion::nothing_ran(format!(
            "nothing was run: the clock is not trusted; see `semel doctor --store {}`",
            args.store
        ))));
    }
    let refused = |why: String| Box::new(Conclusion::refused(format!("nothing was run: {why}")));
    let text = template.expand(now.at).map_err(|error| refused(error.to_string()))?;
    let key = Key::from_source(&text).map_err(|error| refused(error.to_string()))?;
    Ok((key, text))
}

fn program(args: &Args, key: &str) -> Program {
    Program {
        command: args.command.clone(),
        key: key.to_owned(),
        keep: args.keep,
        timeout: args.timeout,
        stops_without_lease: Class::from(args.class) == Class::Downstream,
    }
}

/// Passes on what is left of the output, frees the key of a program that never began, and prints a replay.
async fn conclude(
    engine: &Engine,
    args: &Args,
    called: Called,
    stopped: broadcast::Receiver<rustix::process::Signal>,
) -> Conclusion {
    let id = called.response.as_ref().and_then(|response| response.as_ref().ok()).map(|it| it.operation_id);
    let record = match id {
        Some(id) => freed(engine, id, &called).await,
        None => None,
    };
    let conclusion = Conclusion::of(&called, record.as_ref(), &args.store);
    // The reader of this output may be slow for any time; a signal ends that.
    let mut stopped = stopped.resubscribe();
    let printed = async {
        if let Some([stdout, stderr]) = called.run.and_then(|run| run.outputs) {
            stdout.pass_on().await;
            stderr.pass_on().await;
        }
    };
    tokio::select! {
        () = printed => {}
        _ = signals::next(&mut stopped) => {}
    }
    if let Some(run) = &conclusion.replay {
        print_again(&conclusion, run, args.quiet);
    }
    conclusion
}

/// The record after the call. A program that never began leaves its key to any other command line.
async fn freed(engine: &Engine, id: OperationId, called: &Called) -> Option<Record> {
    let record = engine.look_up(id).await.ok()?.record;
    let never_began = called
        .run
        .as_ref()
        .is_some_and(|run| matches!(run.end, End::NotStarted(NotStarted::Exec(_) | NotStarted::Prepare(_))));
    if !never_began || record.state_name() != StateName::FailedNotReplayable {
        return Some(record);
    }
    match engine.release(id, &user::name(), "the program could not be started").await {
        Ok(record) => Some(record),
        Err(error) => {
            say(&format!(
                "the key still belongs to this command line ({error}); see `semel records release {id}`"
            ));
            Some(record)
        }
    }
}

/// Prints the output of an earlier run.
fn print_again(conclusion: &Conclusion, run: &StoredRun, is_quiet: bool) {
    if !is_quiet {
        let id = conclusion.operation_id.map(|id| format!(" (operation ID {id})")).unwrap_or_default();
        let kept = if run.has_output { "its output follows" } else { "its output is not stored" };
        say(&format!(
            "replay: the program ran before and ended with exit code {}{id}; {kept}",
            conclusion.code
        ));
        for (name, cut) in [("standard output", run.stdout_cut), ("standard error", run.stderr_cut)] {
            if cut > 0 {
                say(&format!("the first {cut} bytes of its {name} are not stored"));
            }
        }
    }
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().write_all(&run.stdout).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(&run.stderr);
}

/// A line to standard error, where it cannot be taken for the program's output.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "semel once: {}", printable_lines(text));
}
