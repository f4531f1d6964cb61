use super::*;

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
