//! Printed texts of the program, compared with the files in `tests/texts`.

pub(crate) use semel_test_support::texts::assert_fits;

use semel_test_support::texts;

/// The folder of the files.
pub(crate) const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/texts");

/// Whether `found` is the text of `tests/texts/NAME.txt`.
#[track_caller]
pub(crate) fn assert_is(name: &str, found: &str) {
    texts::assert_is(FOLDER, name, found);
}
