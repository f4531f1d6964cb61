//! How nodes get the same secret.

use super::faulty::Faulty;
use super::world::{NEW, OLD, REFRESH, World, names_alike, payment, run};
use semel::core::machine::{Begin, Decision, Found, NewAttempt, Stamp, decide};
use semel::core::record::Token;
use semel::core::scope::Secret;
use semel::core::store::{Change, Clock as _, Setting, Written};
use semel::secrets::{self, Configured, Error, RefreshSettings, View};
use std::sync::Arc;
use std::time::Duration;

fn configured(secret: &[u8]) -> Configured<'_> {
    Configured { secret: Some(secret), rotate_to: None }
}

#[test]
fn a_store_gets_one_secret_that_every_node_uses() {
    run(async {
        let world = World::new();
        let (first, second) = (world.node("first").await, world.node("second").await);
        assert!(names_alike(&first, &second));
        let another = World::seeded(2);
        assert!(!names_alike(&first, &*another.node("first").await), "no constant");
    });
}

#[test]
fn the_store_learns_only_the_id_of_a_configured_secret() {
    run(async {
        let world = World::new();
        let node = world.open("first", configured(OLD)).await.expect("an empty store learns its first");
        let secret = Secret::from_bytes(OLD).expect("a valid secret");
        assert_eq!(node.view().expect("fresh").current.secret.id(), secret.id());
        let stored = world.setting("secrets").await.expect("stored");
        assert!(stored.contains(&secret.id().to_string()));
        assert!(!stored.contains("0101010101") && !stored.contains("bytes"), "{stored}");
        assert!(!format!("{node:?}").contains("0101"));
    });
}

#[test]
fn a_secret_other_than_those_the_store_knows_is_refused() {
    run(async {
        let world = World::new();
        world.open("first", configured(OLD)).await.expect("learnt");
        let refused = world.open("second", configured(NEW)).await;
        let text = refused.expect_err("refused").to_string();
        assert!(text.contains("every key would count as new"), "{text}");
        let none = world.open("third", Configured::default()).await;
        assert!(matches!(none, Err(Error::Missing(_))), "configured elsewhere");

        let generated = World::new();
        generated.node("first").await;
        let refused = generated.open("second", configured(OLD)).await;
        assert!(matches!(refused, Err(Error::Unknown { .. })));
        assert_eq!(
            generated.store.settings().await.expect("read").len(),
            2,
            "refused nodes stay unregistered"
        );
    });
}

#[test]
fn the_next_secret_may_be_new_to_the_store() {
    run(async {
        let world = World::new();
        world.open("first", configured(OLD)).await.expect("learnt");
        let both = Configured { secret: Some(OLD), rotate_to: Some(NEW) };
        world.open("second", both).await.expect("a rotation was requested");
        let neither = Configured { secret: Some(NEW), rotate_to: Some(&[3; 32]) };
        assert!(matches!(world.open("third", neither).await, Err(Error::Unknown { .. })));
    });
}

#[test]
fn a_short_secret_and_invalid_settings_are_refused() {
    run(async {
        let world = World::new();
        assert!(matches!(world.open("first", configured(&[1; 31])).await, Err(Error::TooShort(_))));
        for refresh in [
            RefreshSettings { refresh_every: REFRESH.good_for, ..REFRESH },
            RefreshSettings { refresh_every: Duration::ZERO, ..REFRESH },
            RefreshSettings { in_flight: Duration::ZERO, ..REFRESH },
        ] {
            let clock = Arc::new(world.clock.clone());
            let opened = secrets::open(
                Arc::clone(&world.store),
                Configured::default(),
                clock,
                &world.dice,
                "n",
                refresh,
            );
            assert!(matches!(opened.await, Err(Error::RefreshSettings)), "{refresh:?}");
        }
        assert!(world.store.settings().await.expect("read").is_empty());
    });
}

#[test]
fn an_unreadable_setting_is_never_replaced() {
    run(async {
        for (stored, is_newer) in [("{\"format\":2,\"x\":1}", true), ("{\"format\":1}", false), ("", false)] {
            let world = World::new();
            assert_eq!(
                world.store.set("secrets", None, Some(stored.as_bytes())).await.expect("set"),
                Setting::Done
            );
            let refused = world.open("first", Configured::default()).await.expect_err("refused");
            assert_eq!(matches!(refused, Error::Newer(2)), is_newer, "{refused:?}");
            assert_eq!(matches!(refused, Error::Damaged(_)), !is_newer, "{refused:?}");
            assert_eq!(world.setting("secrets").await.as_deref(), Some(stored));
        }
    });
}

#[test]
fn a_stored_secret_that_contradicts_its_id_is_damage() {
    run(async {
        let world = World::new();
        world.node("first").await;
        let stored = world.setting("secrets").await.expect("stored");
        let at = stored.find("bytes\":\"").expect("the bytes") + 8;
        let mut changed = stored.clone().into_bytes();
        changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
        assert_eq!(
            world.store.set("secrets", Some(stored.as_bytes()), Some(&changed)).await.expect("set"),
            Setting::Done
        );
        assert!(matches!(world.open("second", Configured::default()).await, Err(Error::Damaged(_))));
    });
}

/// A new secret would make every key of these records new.
#[test]
fn a_store_with_records_but_no_secret_is_refused() {
    run(async {
        for planted in [Planted::Record, Planted::Marker] {
            let world = World::new();
            let node = world.node("first").await;
            planted.plant(&world, &node.view().expect("fresh")).await;
            let stored = world.setting("secrets").await.expect("stored");
            let remove = world.store.set("secrets", Some(stored.as_bytes()), None);
            assert_eq!(remove.await.expect("an answer"), Setting::Done);
            for configured in [Configured::default(), configured(OLD)] {
                let refused = world.open("second", configured).await.expect_err("refused");
                assert!(matches!(refused, Error::Lost), "{planted:?}: {refused:?}");
            }
            assert_eq!(world.setting("secrets").await, None, "and gets no other");
            // It works again as soon as the setting is restored.
            let restore = world.store.set("secrets", None, Some(stored.as_bytes()));
            assert_eq!(restore.await.expect("an answer"), Setting::Done);
            world.node("second").await;
        }
    });
}

#[derive(Debug, Clone, Copy)]
enum Planted {
    Record,
    Marker,
}

impl Planted {
    async fn plant(self, world: &World, view: &View) {
        let command = payment(view, 1).current;
        let new_attempt = NewAttempt { token: Token::from_random(1), begin: Begin::Processing };
        let stamp = Stamp::new(world.clock.now(), "", "");
        let Decision::Run(write) = decide(Found::Nothing, &command, new_attempt, stamp) else { panic!() };
        let change = match self {
            Self::Record => Change::Insert(&write.next),
            Self::Marker => Change::InsertMarker,
        };
        assert!(matches!(
            world.store.write(command.id, change).await.expect("an answer"),
            Written::Done { .. }
        ));
    }
}

/// Many nodes open an empty store at once while answers are lost: all that succeed share one secret.
#[test]
fn no_race_and_no_lost_answer_makes_two_secrets() {
    let mut opened_in_all = 0;
    for seed in 0..200 {
        let world = World::seeded(seed);
        let faulty = Arc::new(Faulty {
            inner: Arc::clone(&world.store),
            clock: world.clock.clone(),
            dice: world.dice.clone(),
            lost: seed % 60,
        });
        let mut crowd = super::racing::Crowd::new(world.dice.clone());
        let opened = Arc::new(std::sync::Mutex::new(Vec::new()));
        for number in 0..8 {
            let (faulty, clock, dice) =
                (Arc::clone(&faulty), Arc::new(world.clock.clone()), world.dice.clone());
            let opened = Arc::clone(&opened);
            crowd.add(async move {
                let name = format!("node-{number}");
                let node = secrets::open(faulty, Configured::default(), clock, &dice, &name, REFRESH).await;
                if let Ok(node) = node {
                    opened.lock().expect("not poisoned").push(node);
                }
            });
        }
        crowd.run(|| {});
        let opened = opened.lock().expect("not poisoned");
        let ids: Vec<_> =
            opened.iter().filter_map(|node| node.view().ok()).map(|v| v.current.secret.id()).collect();
        assert!(ids.iter().all(|id| *id == ids[0]), "seed {seed}");
        opened_in_all += ids.len();
    }
    assert!(opened_in_all > 800, "only {opened_in_all} of 1600 nodes succeeded");
}
