//! Routes, methods and statuses that could not mean what they say.

use super::{mistakes, one_mistake, parsed};
use http::Method;

#[test]
fn an_unreachable_route_is_refused_with_its_fix() {
    for (path, found, remedy) in [
        ("a/b", "a path must begin with a slash", "write `/a/b`"),
        ("/users/:id", "`:id` matches only itself", "write `/users/{id}`"),
        ("/users/*", "`*` matches only itself", "write `/users/{*rest}`"),
        ("/users/<id>", "`<id>` matches only itself", "write `/users/{id}`"),
        ("/pay?now", "`?now` is a query", "write `/pay`"),
        ("/c#d", "`#d` is a fragment", "write `/c`"),
        ("/x y", "white space", "write `/x%20y`"),
        ("/x/{a}{b}", "`{a}{b}` is not a parameter", "write `/x/{a}`"),
    ] {
        let parts = [&format!("`{path}` is not a route pattern"), found, &format!(" / {remedy}")];
        one_mistake(&format!("[[operation]]\npath = \"{path}\"\n"), "2:8", &parts);
    }
}

#[test]
fn routes_are_compared_in_their_normal_form() {
    for (first, second) in [("/charges", "/%63harges"), ("/über", "/%c3%bcber"), ("/a/{id}", "//a/./7")] {
        let text = format!("[[operation]]\npath = \"{first}\"\n[[operation]]\npath = \"{second}\"\n");
        one_mistake(
            &text,
            "4:8",
            &["never matches this operation", &format!("`{first}` above matches it first")],
        );
    }
    let both = parsed("[[operation]]\npath = \"/charges\"\n[[operation]]\npath = \"/Charges\"\n");
    assert_eq!(both.operations.len(), 2);
}

#[test]
fn a_mistyped_method_is_refused_with_the_one_that_was_meant() {
    for (method, meant) in [("POTS", "POST"), ("pots", "POST"), ("PATHC", "PATCH"), ("DELET", "DELETE")] {
        let parts = [&format!("`{method}`"), "not a method", &format!("write \"{meant}\"")];
        one_mistake(&format!("[defaults]\nmethods = [\"GET\", \"{method}\"]\n"), "2:19", &parts);
    }
    for method in ["", "a b", "CONNECT", "connect"] {
        let text = format!("[[operation]]\npath = \"/x\"\nmethods = [\"{method}\"]\n");
        one_mistake(&text, "3:12", &["is not a method that can be protected"]);
    }
}

#[test]
fn methods_are_read_in_any_case_and_unregistered_ones_are_reported() {
    let config = parsed("[defaults]\nmethods = [\"post\", \"POST\", \"Delete\", \"mkcol\"]\n");
    let mkcol = Method::from_bytes(b"MKCOL").expect("a token");
    assert_eq!(config.route_settings.methods, [Method::POST, Method::DELETE, mkcol]);
    assert!(config.warnings().is_empty(), "{:?}", config.warnings());
    let config = parsed(
        "[[operation]]\npath = \"/a\"\nmethods = [\"frob\"]\n[[operation]]\npath = \"/b\"\nmethods = [\"FROB\", \"PUT\"]\n",
    );
    let [warning] = &config.warnings()[..] else { panic!("{:?}", config.warnings()) };
    assert!(warning.contains("`FROB` is not a registered HTTP method"), "{warning}");
}

#[test]
fn a_success_status_cannot_mean_not_applied() {
    let parts = ["is a success", "every retry would run again", "name errors only"];
    one_mistake(
        "[defaults]\nnot_applied_statuses = [429, 200]\n",
        "2:30",
        &[&["a 200"][..], &parts].concat(),
    );
    one_mistake("[defaults]\nnot_applied_statuses = [\"grpc:0\"]\n", "2:25", &["gRPC status 0", parts[0]]);
    one_mistake(
        "[[operation]]\npath = \"/x\"\nstatuses = { 302 = \"not-applied\" }\n",
        "3:20",
        &["a 302", parts[0]],
    );
    one_mistake(
        "[defaults]\nstatuses = { \"grpc:0\" = \"not-applied\" }\n",
        "2:25",
        &["gRPC status 0", parts[0]],
    );
    assert_eq!(
        mistakes("[defaults]\nnot_applied_statuses = [200, 201]\n").len(),
        2,
        "each status is reported"
    );
    one_mistake("[defaults]\nnot_applied_statuses = [100]\n", "2:25", &["this status cannot be set here"]);
    parsed(
        "[defaults]\nnot_applied_statuses = [400, 500]\nstatuses = { 200 = \"unknown\", 201 = \"failed\" }\n",
    );
}
