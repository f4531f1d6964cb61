//! The example of the README.

use super::world::{World, ran};

#[path = "../../../examples/order.rs"]
#[expect(dead_code, reason = "its main is for the command line")]
mod example;

#[tokio::test(flavor = "multi_thread")]
async fn the_order_of_the_readme_is_created_once() {
    let world = World::new();
    for runs in [true, false, false] {
        let answer = example::order(&world.path(), "order-1234", "book".to_owned()).await.expect("an answer");
        assert_eq!(ran(&answer), runs);
    }
    assert_eq!((world.orders(), world.records()), (1, 1));
}

#[test]
fn the_readme_shows_what_is_compiled() {
    let (readme, example) =
        (include_str!("../../../../../README.md"), include_str!("../../../examples/order.rs"));
    let (_, shown) = readme.split_once("<!-- examples/order.rs -->\n```rust\n").expect("the README has it");
    let (shown, _) = shown.split_once("```").expect("it ends");
    assert!(shown.lines().count() > 10);
    for line in shown.lines() {
        assert!(example.contains(line), "not in the example: {line}");
    }
}
