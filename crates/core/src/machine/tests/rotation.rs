use super::*;
use crate::key::Key;
use crate::scope::{Identity, Operation, Scope, Secret};

#[test]
fn the_id_under_the_old_secret_arbitrates() {
    let record = processing(Class::External);
    for stage in [Stage::Announced, Stage::Moving] {
        assert_eq!(route(stage, Found::Record(&record)), Route::Old, "a record stays where it is");
        assert_eq!(route(stage, Found::Unreadable), Route::Old, "it may be a record");
        assert_eq!(route(stage, Found::Moved), Route::New);
    }
    assert_eq!(route(Stage::Announced, Found::Nothing), Route::Old);
    assert_eq!(route(Stage::Moving, Found::Nothing), Route::PlantMarker);
}

#[test]
fn a_record_says_for_life_which_secret_made_its_id() {
    let command = command(Class::External).with_generation(3);
    let later = run(decide(Found::Nothing, &command, new_attempt(OWNER, Begin::Processing), at(1000))).next;
    assert_eq!(later.generation(), 3);
    assert_eq!(processing(Class::External).generation(), 0);

    let refused = abandon(&later, OWNER, at(2000)).unwrap().next;
    assert_eq!(refused.generation(), 3);
    // The next attempt keeps the record's generation, whatever generation its command has.
    let again = decide(
        Found::Record(&refused),
        &self::command(Class::External),
        new_attempt(OTHER, Begin::Processing),
        at(3000),
    );
    assert_eq!(run(again).next.generation(), 3);
    // A claim over an expired record takes the command's generation.
    let gone = refused.gone_at().unwrap().as_millis();
    let reclaimed =
        decide(Found::Record(&refused), &command, new_attempt(OTHER, Begin::Processing), at(gone));
    assert_eq!(run(reclaimed).next.generation(), 3);
}

#[test]
fn a_command_under_another_secret_is_the_same_command() {
    let (old, new) = (Secret::from_bytes(&[1; 32]).unwrap(), Secret::from_bytes(&[2; 32]).unwrap());
    let scope = Scope::new(Identity::api_key("k-17"), Operation::route("POST", "/charges"));
    let key = Key::from_source("order-1234-charge").unwrap();
    let policy: Arc<Policy> = policy(Class::External).into();
    let first = Command::new(&old, &scope, &key, Arc::clone(&policy), &SAME).unwrap();
    let renamed = first.under(&new, 1, &scope, &key);
    let expected = Command::new(&new, &scope, &key, policy, &SAME).unwrap().with_generation(1);
    let ids = |command: &Command<'_>| {
        let Command { id, operation_id, key_hash, caller_hash, generation, fingerprint, .. } = *command;
        (id, operation_id, key_hash, caller_hash, generation, fingerprint)
    };
    assert_eq!(ids(&renamed), ids(&expected));
    assert_eq!(renamed.operation, expected.operation);
    assert_ne!(renamed.id, first.id);
}
