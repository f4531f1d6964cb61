//! Checks that debug output does not show a secret.

use std::fmt::Debug;

/// Panics if `secret` appears in the debug output of `value`, plain or pretty, in any form in which bytes are printed:
/// as text, escaped, as a list of decimal numbers, or as hexadecimal digits. `name` is the type's name.
///
/// ```
/// semel_testkit::assert_hidden("a length", &"7 bytes", b"hunter2!");
/// for leak in [format!("{:?}", b"hunter2!"), format!("{:#?}", "hunter2!"), "68756e7465723221".to_owned()] {
///     let caught = std::panic::catch_unwind(|| semel_testkit::assert_hidden("a leak", &leak, b"hunter2!"));
///     assert!(caught.is_err(), "{leak}");
/// }
/// ```
pub fn assert_hidden(name: &str, value: &dyn Debug, secret: &[u8]) {
    assert!(secret.len() >= 8, "{} bytes may occur by chance", secret.len());
    for shown in [format!("{value:?}"), format!("{value:#?}")] {
        // A list is printed with spaces, or with one number per line.
        let packed: String = shown.chars().filter(|char| !char.is_whitespace()).collect();
        for form in forms(secret) {
            assert!(!shown.contains(&form) && !packed.contains(&form), "{name} shows it: {shown}");
        }
    }
}

fn forms(secret: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(secret).into_owned();
    let decimal: Vec<_> = secret.iter().map(u8::to_string).collect();
    let escaped = secret.escape_ascii().to_string();
    let quoted = format!("{text:?}").trim_matches('"').to_owned();
    // Escaped twice, for output that contains other debug output.
    let twice = format!("{quoted:?}").trim_matches('"').to_owned();
    vec![text, escaped, quoted, twice, decimal.join(","), hex::encode_upper(secret), hex::encode(secret)]
}
