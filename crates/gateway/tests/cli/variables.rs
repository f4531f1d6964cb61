//! Flags of `semel serve` beside environment variables.

use crate::world::{RunResult, Scratch, command, run};

/// What `serve` says with these variables. Its `--ttl` keeps it from starting.
fn serve(variables: &[(&str, &str)], flags: &[&str]) -> RunResult {
    let fixed = ["serve", "--upstream", "http://127.0.0.1:3000", "--ttl", "1s"];
    let mut serve = command(&[&fixed, flags].concat());
    serve.envs(variables.iter().copied());
    run(serve)
}

#[test]
fn a_flag_overrides_the_variables_of_all_flags_for_its_key() {
    let scratch = Scratch::new();
    // What callers mean for this operation depends on whether keys count at all.
    let file = scratch.write("semel.toml", "[[operation]]\npath = \"/a\"\ncallers = [\"anonymous\"]\n");
    let is_off = |variable, flags: &[&str]| {
        let result = serve(&[variable], &[&["--config", &file], flags].concat()).exits(1);
        assert!(result.err.contains("--ttl: the ttl must be longer than the lease"), "{}", result.err);
        result.err.contains("key = \"off\"")
    };
    assert!(is_off(("SEMEL_REQUIRE_KEY", "true"), &["--key", "off"]));
    assert!(is_off(("SEMEL_KEY", "required"), &["--key", "off"]));
    assert!(is_off(("SEMEL_KEY", "off"), &[]));
    assert!(!is_off(("SEMEL_KEY", "off"), &["--require-key"]));
    let both = serve(&[("SEMEL_REQUIRE_KEY", "true"), ("SEMEL_KEY", "off")], &[]).exits(2);
    assert!(both.err.contains("SEMEL_REQUIRE_KEY and SEMEL_KEY cannot be used together"), "{}", both.err);
}

#[test]
fn an_error_about_a_variable_names_it() {
    let refused = serve(&[("SEMEL_WAIT", "soon")], &[]).exits(2);
    assert!(refused.err.contains("--wait is set by the environment variable SEMEL_WAIT"), "{}", refused.err);
    let flagged = serve(&[("SEMEL_WAIT", "2s")], &["--wait", "soon"]).exits(2);
    assert!(!flagged.err.contains("SEMEL_WAIT"), "{}", flagged.err);
}

#[test]
fn characters_that_change_how_text_looks_are_replaced_in_errors() {
    let refused = run(command(&["serve", "--config", "\u{1b}[31m\u{202e}x"])).exits(1);
    assert!(!refused.err.contains(['\u{1b}', '\u{202e}']), "{:?}", refused.err);
    assert!(refused.err.contains("cannot be read"), "{}", refused.err);
    let refused = serve(&[], &["--wait", "\u{202e}5"]).exits(2);
    assert!(!refused.err.contains('\u{202e}') && refused.err.contains("--wait"), "{:?}", refused.err);
}
