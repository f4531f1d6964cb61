//! The page with the button.

use super::world::{World, get};

#[tokio::test]
async fn the_page_comes_through_the_gateway_and_needs_nothing_from_elsewhere() {
    let world = World::new().await;
    let page = get(world.gateway, "/").await;
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    let text = str::from_utf8(&page.body).expect("UTF-8");
    assert!(text.contains("Idempotency-Key"));
    assert!(!text.contains("http://") && !text.contains("https://") && !text.contains("src="));
}
