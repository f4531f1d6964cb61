//! Printed texts, compared with files that a person wrote (`tests/texts`).

/// Asserts that `found` is the text of the file, apart from trailing white space. On a difference, prints both.
#[track_caller]
pub(crate) fn assert_is(name: &str, expected: &str, found: &str) {
    let (expected, found) = (expected.trim_end(), found.trim_end());
    assert!(
        expected == found,
        "tests/texts/{name}.txt says\n\n{expected}\n\nand what is printed is\n\n{found}\n"
    );
}
