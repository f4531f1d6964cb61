//! Which characters may stand in a name and on a screen.
//!
//! A text that was sent by somebody else must not change how the text around it looks: control characters move a
//! terminal's cursor, U+202E reverses what follows it, and invisible characters make two names look alike. Names with such
//! characters are refused. Reasons and everything else in a record keep them, and they are replaced when they are
//! printed. The page of the admin address has the same rule in its script.

/// What is printed instead.
const REPLACEMENT: char = '\u{fffd}';

/// Format characters and separators of lines and paragraphs (the categories Cf, Zl and Zp of Unicode 17), in order.
const FORMATS: [(char, char); 21] = [
    ('\u{ad}', '\u{ad}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{180e}', '\u{180e}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{2064}'),
    ('\u{2066}', '\u{206f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{fff9}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0001}', '\u{e0001}'),
    ('\u{e0020}', '\u{e007f}'),
];

/// Whether the character can be shown: it is neither a control character nor a format character.
pub fn is_printable(letter: char) -> bool {
    !letter.is_control() && !FORMATS.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

/// Characters that are shown as nothing or as a blank, beside white space and [`FORMATS`]: joiners, fillers, variation
/// selectors and tags, in order.
const BLANKS: [(char, char); 10] = [
    ('\u{34f}', '\u{34f}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2065}', '\u{2065}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{e0000}', '\u{e0fff}'),
];

/// Whether a reader sees the character: it leaves ink. The patterns of reasons in the description of the admin API have the
/// same characters, up to U+FFFF: patterns have no common way to write others.
pub fn is_visible(letter: char) -> bool {
    is_printable(letter)
        && !letter.is_whitespace()
        && !BLANKS.iter().any(|(first, last)| (*first..=*last).contains(&letter))
}

/// Whether every character can be shown, as in a name.
pub fn is_all_printable(text: &str) -> bool {
    text.chars().all(is_printable)
}

/// The text as it may be printed: a character that cannot be shown is replaced by U+FFFD.
pub fn printable(text: &str) -> String {
    text.chars().map(|letter| if is_printable(letter) { letter } else { REPLACEMENT }).collect()
}

/// A JSON document for a screen: the same document, with characters that cannot be shown as `\u` escapes. They can only be
/// inside strings, because compact JSON has no other white space.
pub fn printable_json(document: &str) -> String {
    let mut units = [0; 2];
    document.chars().fold(String::with_capacity(document.len()), |mut text, letter| {
        if is_printable(letter) {
            text.push(letter);
        } else {
            text.extend(letter.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_changes_its_surroundings_is_replaced() {
        assert_eq!(printable("a\u{202e}b\u{1b}[2J\u{9b}1m\u{2066}\u{e0041}"), "a�b�[2J�1m��");
        for hidden in
            ['\0', '\n', '\u{7f}', '\u{85}', '\u{ad}', '\u{200b}', '\u{200f}', '\u{2028}', '\u{feff}']
        {
            assert!(!is_printable(hidden), "{hidden:?}");
        }
        assert_eq!(printable("é 日本 עברית 😀 a-b_c"), "é 日本 עברית 😀 a-b_c");
    }

    #[test]
    fn a_printed_document_means_the_same() {
        let document = serde_json::json!({ "why": "a\u{202e}b\u{9b}\u{e0041}\n\"é" });
        let printed = printable_json(&document.to_string());
        assert!(is_all_printable(&printed) && printed.contains("\\u202e"), "{printed}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&printed).expect("JSON"), document);
    }
}
