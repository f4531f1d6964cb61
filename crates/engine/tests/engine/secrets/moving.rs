//! Where a command is searched while its secret is being replaced.

use super::faulty::Faulty;
use super::world::{REFRESH, World, locate, payment, run};
use semel::Clock as _;
use semel::core::classify::Ending;
use semel::core::machine::{Begin, Decision, Expect, Found, NewAttempt, Stamp, decide, finish};
use semel::core::outcome::Outcome;
use semel::core::record::Token;
use semel::core::store::{Change, Clock as _, Written};
use semel::secrets::{Error, Phase, Secrets, View, rotation};
use std::sync::Arc;

async fn view_in(world: &World, node: &Secrets, phase: Phase) -> View {
    rotation::announce(world.bounded(), rotation::Next::Generated, &world.dice).await.expect("announced");
    world.settle(&[node]).await;
    if phase == Phase::Moving {
        rotation::advance(world.bounded()).await.expect("advanced");
        world.settle(&[node]).await;
    }
    node.view().expect("fresh")
}

/// Inserts a record under the old ID, finished if `is_done`.
async fn put_under_old(world: &World, view: &View, number: u64, is_done: bool) {
    let command = payment(view, number).old.expect("a rotation");
    let token = Token::from_random(9);
    let stamp = Stamp::new(world.clock.now(), "", "");
    let new_attempt = NewAttempt { token, begin: Begin::Processing };
    let Decision::Run(write) = decide(Found::Nothing, &command, new_attempt, stamp) else { panic!() };
    assert!(matches!(
        world.store.write(command.id, Change::Insert(&write.next)).await.expect("inserted"),
        Written::Done { .. }
    ));
    if is_done {
        let done =
            finish(&write.next, token, Ending::Succeeded(Outcome::value("")), stamp).expect("finished");
        assert!(matches!(
            world.store.write(command.id, Change::from(&done)).await.expect("swapped"),
            Written::Done { .. }
        ));
    }
}

#[test]
fn outside_a_rotation_no_store_call_is_made() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let view = node.view().expect("fresh");
        let silent = Faulty {
            inner: Arc::clone(&world.store),
            clock: world.clock.clone(),
            dice: world.dice.clone(),
            lost: 100,
        };
        let commands = payment(&view, 1);
        assert!(commands.old.is_none());
        for _ in 0..50 {
            let located =
                locate(&silent, &view, &world.clock, &commands).await.expect("without a store call");
            assert!(located.reading.is_none() && located.permits(&Expect::Absent));
            assert_eq!(located.command.id, commands.current.id);
        }
    });
}

#[test]
fn an_announced_rotation_claims_under_the_old_secret() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let view = view_in(&world, &node, Phase::Announced).await;
        let commands = payment(&view, 1);
        let old = commands.old.clone().expect("a rotation");
        assert_eq!((old.generation, commands.current.generation), (0, 1));
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!(located.command.id, old.id);
        assert!(located.permits(&Expect::Absent));
        assert!(matches!(
            world.store.write(old.id, Change::InsertMarker).await.expect("another node is a step ahead"),
            Written::Done { .. }
        ));
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!(located.command.id, commands.current.id);
    });
}

#[test]
fn a_move_plants_a_marker_and_finds_old_records() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let view = view_in(&world, &node, Phase::Moving).await;
        let commands = payment(&view, 1);
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!((located.command.id, located.command.generation), (commands.current.id, 1));
        let under_old = world.store.get(commands.old.as_ref().expect("a rotation").id).await.expect("read");
        assert_eq!(under_old.found(), Found::Moved);

        put_under_old(&world, &view, 2, true).await;
        let commands = payment(&view, 2);
        let located = locate(&*world.store, &view, &world.clock, &commands).await.expect("located");
        assert_eq!(located.command.generation, 0);
        assert!(located.reading.as_ref().is_some_and(|reading| reading.record().is_some()));
        assert!(!located.permits(&Expect::Absent), "nothing new under an old id");
    });
}

#[test]
fn a_marker_may_replace_an_expired_record() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let view = view_in(&world, &node, Phase::Moving).await;
        put_under_old(&world, &view, 1, true).await;
        put_under_old(&world, &view, 2, false).await;
        world.pass(super::world::REMEMBERED, &[&node]).await;
        let view = node.view().expect("fresh");
        let (gone, stuck) = (payment(&view, 1), payment(&view, 2));
        let located = locate(&*world.store, &view, &world.clock, &gone).await.expect("located");
        assert_eq!(located.command.generation, 1);
        let located = locate(&*world.store, &view, &world.clock, &stuck).await.expect("located");
        assert_eq!(located.command.generation, 0, "an uncertain record stays");
    });
}

#[test]
fn a_marker_whose_answer_was_lost_is_found_again() {
    for seed in 0..100 {
        let world = World::seeded(seed);
        run(async {
            let node = world.node("one").await;
            let view = view_in(&world, &node, Phase::Moving).await;
            let commands = payment(&view, 1);
            let (inner, clock, dice) = (Arc::clone(&world.store), world.clock.clone(), world.dice.clone());
            let faulty = Faulty { inner, clock, dice, lost: 40 };
            for _ in 0..20 {
                if let Ok(located) = locate(&faulty, &view, &world.clock, &commands).await {
                    assert_eq!(located.command.generation, 1);
                    let old = commands.old.as_ref().expect("a rotation");
                    let reading = world.store.get(old.id).await.expect("read");
                    assert_eq!(reading.found(), Found::Moved, "seed {seed}: no entry under the old ID");
                    return;
                }
            }
            panic!("seed {seed}: never located");
        });
    }
}

#[test]
fn a_node_whose_view_is_too_old_plants_nothing() {
    run(async {
        let world = World::new();
        let node = world.node("one").await;
        let view = view_in(&world, &node, Phase::Moving).await;
        world.clock.turn(REFRESH.good_for);
        assert!(view.check(world.clock.uptime()).is_err());
        let commands = payment(&view, 1);
        let located = locate(&*world.store, &view, &world.clock, &commands).await;
        assert!(matches!(located, Err(Error::Stale)));
        let under_old = world.store.get(commands.old.expect("a rotation").id).await.expect("read");
        assert_eq!(under_old.found(), Found::Nothing);
    });
}
