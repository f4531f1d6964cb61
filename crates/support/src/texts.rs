//! Printed texts, compared with files.
//!
//! With `SEMEL_REWRITE_TEXTS=1` the files are written instead, for a person to read in the diff.

use std::path::Path;

/// The variable that has the files rewritten.
const REWRITE: &str = "SEMEL_REWRITE_TEXTS";

/// Whether `found` is the text of `NAME.txt` in `folder`, apart from white space at its end. A difference shows both in full.
#[track_caller]
pub fn assert_is(folder: impl AsRef<Path>, name: &str, found: &str) {
    let file = folder.as_ref().join(format!("{name}.txt"));
    let found = found.trim_end();
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&file, format!("{found}\n")).expect("the file can be written");
        return;
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    let expected = expected.trim_end();
    assert!(
        expected == found,
        "tests/texts/{name}.txt says\n\n{expected}\n\nand what is printed is\n\n{found}\n\n\
         If that is meant, run the test again with {REWRITE}=1 and read the difference"
    );
}

/// Whether every line fits so many columns.
#[track_caller]
pub fn assert_fits(name: &str, text: &str, columns: usize) {
    for line in text.lines() {
        assert!(line.chars().count() <= columns, "{name}: {} columns: {line}", line.chars().count());
    }
}
