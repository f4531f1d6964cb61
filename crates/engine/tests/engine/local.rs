//! Class `local`: the engine runs work outside the effect's transaction, so it cannot keep that promise.

use super::world::{World, charge, intent, intent_under, never, secs};
use semel::core::classify::Ending;
use semel::core::machine::{Begin, Command, Decision, Found, NewAttempt, Stamp, decide};
use semel::core::outcome::Outcome;
use semel::core::policy::{Class, Policy};
use semel::core::record::{StateName, Token};
use semel::core::store::{Change, Clock as _, Store as _, Written};
use semel::local::{EnterResult, LocalEnding, LocalJudgement, Waiting};
use semel::{Claimed, Error, Intent, RequestOutcome, RunError, RunErrorReason, WorkResult};

fn local(key: &str) -> Intent {
    intent_under(Policy::new(Class::Local), key, "5")
}

/// Every entry point that starts an attempt, and the error with which it refuses `intent`.
async fn refusals(engine: &semel::Engine, intent: &Intent) -> Vec<Error> {
    let Err(RunError { reason: RunErrorReason::NotRun(run), .. }) = engine.run(intent.clone(), never).await
    else {
        panic!("run was accepted")
    };
    let work = |_| async { panic!("the work was run") };
    let execute = engine.execute::<_, _, ()>(intent.clone(), work).await.expect_err("execute was accepted");
    let claim = engine.claim(intent).await.expect_err("claim was accepted");
    let attend = engine.attend(intent).await.expect_err("attend was accepted");
    vec![run, execute, claim, attend]
}

#[tokio::test]
async fn every_entry_refuses_class_local_and_names_the_alternatives() {
    let world = World::new();
    let engine = world.engine().await;
    for error in refusals(&engine, &local("k")).await {
        assert!(matches!(error, Error::LocalClass), "{error:?}");
        assert!(!error.is_retryable());
        let text = error.to_string();
        for word in ["local", "transaction", "external", "downstream"] {
            assert!(text.contains(word), "{word} is not in: {text}");
        }
    }
    let page = world.store.page(&semel::core::store::Filter::default(), None, 10).await.expect("a page");
    assert!(page.items.is_empty(), "nothing was claimed: {page:?}");
}

/// The record of an intent claimed under class `local`, by code that may do that.
async fn stored_under_local(world: &World, engine: &semel::Engine, begin: Begin) {
    // An external claim of the same intent, changed to class `local`.
    let Claimed::Leased(lease) = engine.claim(&intent("k", "5")).await.expect("claimed") else { panic!() };
    let id = lease.id();
    lease.give_back().await.expect("given back");
    let record = world.record().await;
    let expect = semel::core::machine::Unchanged::of(&record);
    assert!(matches!(
        world.store.write(id, Change::Remove(expect)).await.expect("removed"),
        Written::Done { .. }
    ));
    let fingerprint = record.fingerprint();
    let command = Command {
        id,
        operation_id: record.operation_id(),
        key_hash: record.key_hash(),
        caller_hash: record.caller_hash(),
        operation: record.operation().clone(),
        policy: Policy::new(Class::Local).into(),
        fingerprint,
        payload: &fingerprint,
        generation: record.generation(),
    };
    let new_attempt = NewAttempt { token: Token::from_random(7), begin };
    let stamp = Stamp::new(world.clock.now(), "somebody else", "");
    let Decision::Run(write) = decide(Found::Nothing, &command, new_attempt, stamp) else {
        panic!("it is free")
    };
    assert!(matches!(
        world.store.write(id, Change::Insert(&write.next)).await.expect("stored"),
        Written::Done { .. }
    ));
}

#[tokio::test]
async fn a_record_claimed_as_local_is_not_attempted_by_the_engine() {
    for (begin, is_swept) in [(Begin::Processing, false), (Begin::Claimed, false), (Begin::Processing, true)]
    {
        let world = World::new();
        let mut settings = semel::Settings::default();
        settings.sweep.every = if is_swept { secs(1) } else { secs(0) };
        let engine = world.engine_with(|builder| builder.settings(settings)).await;
        stored_under_local(&world, &engine, begin).await;
        world.pass(secs(35)).await;
        let Err(RunError { reason: RunErrorReason::NotRun(run), .. }) =
            engine.run(intent("k", "5"), never).await
        else {
            panic!("it was run")
        };
        let claim = engine.claim(&intent("k", "5")).await.expect_err("it was claimed");
        for error in [run, claim] {
            assert!(matches!(error, Error::LocalRecord(_)), "{error:?}");
            assert!(!error.is_retryable() && error.to_string().contains("resolve"), "{error}");
        }
        assert_eq!(world.record().await.attempt(), 1, "nothing was written");
    }
}

#[tokio::test]
async fn work_without_effect_is_run_again_after_a_crash() {
    let world = World::new();
    let engine = world.engine().await;
    let looking_on = || intent("k", "5").without_effect();
    let Claimed::Leased(lost) = engine.claim(&looking_on()).await.expect("claimed") else {
        panic!("an answer")
    };
    drop(lost);
    assert_eq!(world.record().await.state_name(), StateName::Processing);
    world.pass(secs(31)).await;
    assert_eq!(engine.run(looking_on(), charge).await.expect("run again").value, 2);
    assert!(engine.run(looking_on(), never).await.expect("kept").replayed);
}

#[tokio::test]
async fn an_ending_in_doubt_without_effect_leaves_nothing_unknown() {
    let world = World::new();
    let engine = world.engine().await;
    let doubt = |_| async { WorkResult::from(Ending::InDoubt) };
    drop(engine.execute(intent("k", "5").without_effect(), doubt).await.expect("run"));
    assert_eq!(world.record().await.state_name(), StateName::FailedNotReplayable);
}

/// Found by the simulation with seed 486.
#[tokio::test]
async fn a_duplicate_gets_what_another_node_committed() {
    let world = World::new();
    let (here, there) = (world.engine().await, world.engine().await);
    let entered = here.enter_local(local("k"), Waiting::Never).await.expect("entered");
    let EnterResult::Owned(still_open) = entered else { panic!("it has no outcome yet") };
    let entered = there.enter_local(local("k"), Waiting::Never).await.expect("entered");
    let EnterResult::Owned(mut command) = entered else { panic!("it has no outcome yet") };
    let look = command.look().await.expect("read");
    let LocalJudgement::Run(attempt) = command.judge(look).await.expect("judged") else {
        panic!("it is new")
    };
    let writes = command.end(&attempt, LocalEnding::Succeeded(Outcome::value("1"))).expect("it can be dated");
    let written = world.store.write(writes.id, Change::from(&writes.write)).await.expect("written");
    assert!(matches!(written, Written::Done { .. }));
    drop(command.committed(attempt, writes));
    let entered = here.enter_local(local("k"), Waiting::Never).await.expect("an answer");
    let EnterResult::Answered(answer) = entered else { panic!("it would run twice") };
    assert!(matches!(answer.outcome, RequestOutcome::Replayed(_)), "{answer:?}");
    drop(still_open);
}
