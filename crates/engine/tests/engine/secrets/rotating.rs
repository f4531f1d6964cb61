//! A rotation, step by step: each step is refused while it is too early.

use super::world::{NEW, OLD, REFRESH, World, locate, names_alike, payment, run};
use semel::Clock as _;
use semel::core::id::CommandId;
use semel::core::machine::{Begin, Decision, Expect, Found, NewAttempt, Stage, Stamp, Unchanged, decide};
use semel::core::record::{Record, Token};
use semel::core::scope::Secret;
use semel::core::store::{Change, Clock as _, Filter, Written};
use semel::secrets::rotation::{self, Next, Node};
use semel::secrets::{Configured, Error, Phase, Secrets};

async fn announce(world: &World) {
    rotation::announce(world.bounded(), Next::Generated, &world.dice).await.expect("announced");
}

async fn advance(world: &World) -> Phase {
    rotation::advance(world.bounded()).await.expect("advanced")
}

fn stage(node: &Secrets) -> Option<Stage> {
    node.view().expect("fresh").outgoing.map(|outgoing| outgoing.stage)
}

/// Inserts a record under the secret that `node` claims with.
async fn claim(world: &World, node: &Secrets, number: u64) {
    let view = node.view().expect("fresh");
    let commands = payment(&view, number);
    let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
    let new_attempt = NewAttempt { token: Token::from_random(u128::from(number)), begin: Begin::Claimed };
    let stamp = Stamp::new(world.clock.now(), "", "");
    let Decision::Run(write) = decide(Found::Nothing, located.command, new_attempt, stamp) else { panic!() };
    assert!(located.permits(&write.expect));
    assert!(matches!(
        world.store.write(located.command.id, Change::Insert(&write.next)).await.expect("inserted"),
        Written::Done { .. }
    ));
}

/// Removes every record, as a sweeper eventually would.
async fn forget(world: &World) {
    let page = world.store.page(&Filter::default(), None, 100).await.expect("read");
    for item in page.items {
        let expect = Unchanged::of(item.record().expect("readable"));
        assert!(matches!(
            world.store.write(item.id, Change::Remove(expect)).await.expect("removed"),
            Written::Done { .. }
        ));
    }
}

#[test]
fn a_finished_rotation_leaves_only_the_new_secret() {
    run(async {
        let world = World::new();
        let (one, two) = (world.node("one").await, world.node("two").await);
        let both: &[&Secrets] = &[&one, &two];
        let before = one.view().expect("fresh").current.secret.id();
        claim(&world, &one, 1).await;

        announce(&world).await;
        world.settle(both).await;
        assert_eq!((stage(&one), stage(&two)), (Some(Stage::Announced), Some(Stage::Announced)));
        claim(&world, &two, 2).await;
        assert_eq!(advance(&world).await, Phase::Moving);
        world.settle(both).await;
        assert_eq!(stage(&one), Some(Stage::Moving));
        claim(&world, &one, 3).await;
        let progress = rotation::progress(world.bounded()).await.expect("an answer");
        assert_eq!((progress.records_left, progress.markers, progress.generation), (2, 1, 0));

        let refused = rotation::advance(world.bounded()).await;
        assert!(matches!(refused, Err(Error::RecordsLeft(2))), "{refused:?}");
        forget(&world).await;
        claim(&world, &two, 4).await;
        assert_eq!(advance(&world).await, Phase::Settled);
        world.settle(both).await;
        assert_eq!((stage(&one), stage(&two)), (None, None));
        assert!(names_alike(&one, &two));
        let view = one.view().expect("fresh");
        assert_eq!(view.current.generation, 1);
        assert_ne!(view.current.secret.id(), before);
        let stored = world.setting("secrets").await.expect("stored");
        assert!(!stored.contains(&before.to_string()), "the old secret is dropped");

        rotation::finish(world.bounded()).await.expect("finished");
        let progress = rotation::progress(world.bounded()).await.expect("an answer");
        assert_eq!((progress.phase, progress.markers, progress.generation), (Phase::Steady, 0, 1));
        let page = world.store.page(&Filter::default(), None, 9).await.expect("read");
        let generations: Vec<_> =
            page.items.iter().filter_map(|item| item.record()).map(Record::generation).collect();
        assert_eq!(generations, [1], "records of the new secret have its generation");
    });
}

#[test]
fn every_node_confirms_a_step_before_the_next() {
    run(async {
        let world = World::new();
        let (quick, slow) = (world.node("quick").await, world.node("slow").await);
        announce(&world).await;
        let waits = async || match rotation::advance(world.bounded()).await {
            Err(Error::NodesBehind(names)) => names,
            other => panic!("{other:?}"),
        };
        assert_eq!(waits().await.len(), 2);
        quick.refresh().await.expect("refreshed");
        assert_eq!(waits().await.len(), 2, "adopted, but older views are still valid");
        world.pass(REFRESH.good_for, &[&quick]).await;
        slow.refresh().await.expect("refreshed");
        world.pass(REFRESH.in_flight.saturating_sub(REFRESH.refresh_every), &[&quick, &slow]).await;
        assert_eq!(waits().await.len(), 2, "and its claims may still be running");
        world.pass(REFRESH.refresh_every * 2, &[&quick, &slow]).await;
        assert_eq!(waits().await, ["slow"]);
        let nodes = rotation::progress(world.bounded()).await.expect("an answer").nodes;
        assert!(nodes.contains(&Node { name: "quick".to_owned(), confirmed: true }));
        assert!(nodes.contains(&Node { name: "slow".to_owned(), confirmed: false }));
        world.pass(REFRESH.good_for, &[&quick, &slow]).await;
        assert_eq!(advance(&world).await, Phase::Moving);
    });
}

#[test]
fn a_rotation_neither_awaits_nor_readmits_dead_nodes() {
    run(async {
        let world = World::new();
        let (alive, paused) = (world.node("alive").await, world.node("paused").await);
        announce(&world).await;
        world.pass(REFRESH.refresh_every, &[&alive, &paused]).await;
        // It has located a command, and is about to claim it under the old secret.
        let view = paused.view().expect("fresh");
        let commands = payment(&view, 7);
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!(located.command.generation, 0);

        world.settle(&[&alive]).await;
        assert_eq!(advance(&world).await, Phase::Moving);
        world.settle(&[&alive]).await;
        assert_eq!(advance(&world).await, Phase::Settled);
        world.pass(REFRESH.refresh_every, &[&alive]).await;
        claim(&world, &alive, 7).await;
        // The store does not stop it; its own clock does.
        let under_old = world.store.get(located.command.id).await.expect("read");
        assert_eq!(under_old.found(), Found::Nothing);
        assert!(matches!(view.check(world.clock.uptime()), Err(Error::Stale)));
        assert!(matches!(paused.view(), Err(Error::Stale)));
        paused.refresh().await.expect("it catches up");
        assert_eq!(stage(&paused), None);
        assert!(names_alike(&alive, &paused));
    });
}

#[test]
fn a_record_removed_during_lookup_is_not_recreated() {
    run(async {
        let world = World::new();
        let (one, two) = (world.node("one").await, world.node("two").await);
        claim(&world, &one, 7).await;
        announce(&world).await;
        world.settle(&[&one, &two]).await;
        advance(&world).await;
        world.settle(&[&one, &two]).await;
        // One node found a record under the old ID, and is about to make the next attempt.
        let view = one.view().expect("fresh");
        let commands = payment(&view, 7);
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert!(located.command.generation == 0 && located.reading.is_some());
        // The record is removed, and another node runs the command under the new secret.
        forget(&world).await;
        assert_eq!(advance(&world).await, Phase::Settled);
        two.refresh().await.expect("refreshed");
        claim(&world, &two, 7).await;
        // By the clock the first may still claim, and its record is gone. It may not insert a new one.
        assert!(view.check(world.clock.uptime()).is_ok());
        let under_old = world.store.get(located.command.id).await.expect("read");
        assert_eq!(under_old.found(), Found::Nothing);
        assert!(!located.permits(&Expect::Absent));
        let again = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!(again.command.generation, 1, "at the other node's record");
    });
}

#[test]
fn a_node_without_the_next_secret_delays_the_rotation() {
    run(async {
        let world = World::new();
        let old = Configured { secret: Some(OLD), rotate_to: None };
        let both = Configured { secret: Some(OLD), rotate_to: Some(NEW) };
        let without = world.open("without", old).await.expect("opened");
        let with = world.open("with", both).await.expect("opened");
        rotation::announce(world.bounded(), Next::Configured(NEW), &world.dice).await.expect("announced");
        world.settle(&[&with, &without]).await;
        let id = Secret::from_bytes(NEW).expect("fair").id().to_string();
        assert_eq!((with.trouble(), without.trouble()), (None, Some(id.clone())));
        assert_eq!(without.view().expect("it continues to work").current.generation, 0);
        let refused = rotation::advance(world.bounded()).await;
        assert!(matches!(&refused, Err(Error::NodesBehind(names)) if *names == ["without"]), "{refused:?}");
        let joins = world.open("joins", old).await;
        assert!(
            matches!(joins, Err(Error::Missing(missing)) if missing == id),
            "one that starts now is refused"
        );

        without.leave().await.expect("left");
        assert_eq!(advance(&world).await, Phase::Moving);
        world.settle(&[&with]).await;
        assert_eq!(advance(&world).await, Phase::Settled);
        world.settle(&[&with]).await;
        rotation::finish(world.bounded()).await.expect("finished");
        let stored = world.setting("secrets").await.expect("stored");
        assert!(stored.contains(&id) && !stored.contains("bytes"), "{stored}");
        world.open("as before", both).await.expect("the requested rotation is over");
        world.open("cleaned up", Configured { secret: Some(NEW), rotate_to: None }).await.expect("opened");
        assert!(matches!(world.open("left behind", old).await, Err(Error::Unknown { .. })));
    });
}

#[test]
fn an_announced_rotation_can_be_cancelled_until_commands_move() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let before = node.view().expect("fresh").current.secret.id();
        assert!(matches!(rotation::withdraw(world.bounded()).await, Err(Error::Phase(Phase::Steady))));
        announce(&world).await;
        world.settle(&[&node]).await;
        rotation::withdraw(world.bounded()).await.expect("withdrawn");
        world.settle(&[&node]).await;
        let view = node.view().expect("fresh");
        assert_eq!((view.current.secret.id(), view.current.generation), (before, 0));
        assert!(view.outgoing.is_none());
        announce(&world).await;
        world.settle(&[&node]).await;
        advance(&world).await;
        assert!(matches!(rotation::withdraw(world.bounded()).await, Err(Error::Phase(Phase::Moving))));
    });
}

#[test]
fn steps_are_taken_only_in_order() {
    run(async {
        let world = World::new();
        let store = world.bounded();
        assert!(matches!(rotation::advance(store).await, Err(Error::Damaged(_))), "no secret to replace");
        let node =
            world.open("one", Configured { secret: Some(OLD), rotate_to: None }).await.expect("opened");
        assert!(matches!(rotation::advance(store).await, Err(Error::Phase(Phase::Steady))));
        assert!(matches!(rotation::finish(store).await, Err(Error::Phase(Phase::Steady))));
        let same = rotation::announce(store, Next::Configured(OLD), &world.dice).await;
        assert!(matches!(same, Err(Error::Same)));
        announce(&world).await;
        let twice = rotation::announce(store, Next::Generated, &world.dice).await;
        assert!(matches!(twice, Err(Error::Phase(Phase::Announced))));
        world.settle(&[&node]).await;
        advance(&world).await;
        assert!(matches!(rotation::finish(store).await, Err(Error::Phase(Phase::Moving))));
        world.settle(&[&node]).await;
        claim(&world, &node, 1).await;
        advance(&world).await;
        assert!(
            matches!(rotation::finish(store).await, Err(Error::NodesBehind(_))),
            "it may still plant markers"
        );
        assert_eq!(rotation::progress(store).await.expect("an answer").markers, 1);
        assert!(matches!(rotation::advance(store).await, Err(Error::NodesBehind(_))));
        world.settle(&[&node]).await;
        assert!(matches!(rotation::advance(store).await, Err(Error::Phase(Phase::Settled))));
        rotation::finish(store).await.expect("finished");
    });
}

#[test]
fn entries_that_try_the_stores_writes_are_not_markers_of_a_secret() {
    run(async {
        let world = World::new();
        world.open("one", Configured { secret: Some(OLD), rotate_to: None }).await.expect("opened");
        let mut entry = [3; 32];
        entry[..31].copy_from_slice(b"semel: does the store write now");
        for (id, expected) in [(entry, 0), ([7; 32], 1)] {
            let written = world.store.write(CommandId::from_bytes(id), Change::InsertMarker).await;
            assert!(matches!(written, Ok(Written::Done { .. })));
            let progress = rotation::progress(world.bounded()).await.expect("an answer");
            assert_eq!(progress.markers, expected);
        }
    });
}
