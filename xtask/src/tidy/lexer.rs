//! Just enough of Rust's grammar to distinguish code from comments and strings.

/// The source with comments and literals replaced by spaces; line numbers stay the same.
pub(crate) fn code_only(source: &str) -> String {
    let mut scanner =
        Scanner { chars: source.chars().collect(), at: 0, code: String::with_capacity(source.len()) };
    while let Some(c) = scanner.ahead(0) {
        match (c, scanner.ahead(1)) {
            ('/', Some('/')) => scanner.line_comment(),
            ('/', Some('*')) => scanner.block_comment(),
            ('"', _) => scanner.string(),
            ('\'', _) => scanner.character_or_lifetime(),
            _ if is_word(c) => scanner.word(),
            _ => scanner.keep(),
        }
    }
    scanner.code
}

/// The lines, counted from one, that contain `pattern` as a whole word.
pub(crate) fn lines_with(code: &str, pattern: &str) -> Vec<usize> {
    let lines = code.lines().enumerate();
    lines.filter(|(_, line)| stands_in(line, pattern)).map(|(index, _)| index + 1).collect()
}

fn stands_in(line: &str, pattern: &str) -> bool {
    line.match_indices(pattern).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        let after = line[start + pattern.len()..].chars().next();
        !(joins(before, pattern.chars().next()) || joins(pattern.chars().next_back(), after))
    })
}

/// Whether two adjacent characters belong to one word.
fn joins(left: Option<char>, right: Option<char>) -> bool {
    left.is_some_and(is_word) && right.is_some_and(is_word)
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Scanner {
    chars: Vec<char>,
    at: usize,
    code: String,
}

impl Scanner {
    fn ahead(&self, steps: usize) -> Option<char> {
        self.chars.get(self.at + steps).copied()
    }

    fn keep(&mut self) {
        self.code.extend(self.ahead(0));
        self.at += 1;
    }

    fn blank(&mut self, count: usize) {
        for _ in 0..count {
            match self.ahead(0) {
                Some('\n') => self.code.push('\n'),
                Some(_) => self.code.push(' '),
                None => return,
            }
            self.at += 1;
        }
    }

    fn line_comment(&mut self) {
        while self.ahead(0).is_some_and(|c| c != '\n') {
            self.blank(1);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0_usize;
        loop {
            match (self.ahead(0), self.ahead(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.blank(2);
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.blank(2);
                }
                (Some(_), _) => self.blank(1),
                (None, _) => return,
            }
            if depth == 0 {
                return;
            }
        }
    }

    fn string(&mut self) {
        self.blank(1);
        while let Some(c) = self.ahead(0) {
            self.blank(if c == '\\' { 2 } else { 1 });
            if c == '"' {
                return;
            }
        }
    }

    fn raw_string(&mut self, hashes: usize) {
        self.blank(hashes + 1);
        while let Some(c) = self.ahead(0) {
            let ends = c == '"' && (1..=hashes).all(|step| self.ahead(step) == Some('#'));
            self.blank(if ends { hashes + 1 } else { 1 });
            if ends {
                return;
            }
        }
    }

    fn character_or_lifetime(&mut self) {
        match (self.ahead(1), self.ahead(2)) {
            (Some('\\'), _) => {
                self.blank(3);
                while self.ahead(0).is_some_and(|c| c != '\'') {
                    self.blank(1);
                }
                self.blank(1);
            }
            (Some(_), Some('\'')) => self.blank(3),
            _ => self.keep(),
        }
    }

    fn word(&mut self) {
        let start = self.at;
        while self.ahead(0).is_some_and(is_word) {
            self.keep();
        }
        let is_raw = matches!(&self.chars[start..self.at], ['r'] | ['b' | 'c', 'r']);
        let hashes = self.chars[self.at..].iter().take_while(|c| **c == '#').count();
        if is_raw && self.ahead(hashes) == Some('"') {
            self.raw_string(hashes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(source: &str) -> Vec<String> {
        code_only(source).split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g /// h"), ["a", "c", "g"]);
    }

    #[test]
    fn strings_and_characters_are_not_code() {
        assert_eq!(words(r#"a "b \" // c" d 'e' f '\'' g '\u{1F600}' h"#), ["a", "d", "f", "g", "h"]);
        assert_eq!(
            words("a r\"b\\\" c r#\"d \" e\"# f br##\"g\"#h\"## i"),
            ["a", "r", "c", "r", "f", "br", "i"]
        );
    }

    #[test]
    fn a_lifetime_opens_no_literal_and_a_raw_identifier_no_string() {
        assert_eq!(words("fn f<'a>(x: &'a str) r#type"), ["fn", "f<'a>(x:", "&'a", "str)", "r#type"]);
    }

    #[test]
    fn line_numbers_are_preserved() {
        let source = "/* one\ntwo */ \"three\nfour\"\n now";
        assert_eq!(lines_with(&code_only(source), "now"), [4]);
    }

    #[test]
    fn a_truncated_source_does_not_panic() {
        for source in ["\"open", "r#\"open", "/* open", "'", "'\\", "\"\\"] {
            assert_eq!(words(source).iter().filter(|word| word.contains("open")).count(), 0, "{source}");
        }
    }

    #[test]
    fn a_pattern_is_found_only_as_a_whole_word() {
        assert_eq!(lines_with("operand::x\nrand::x\nrand_core::x\n::rand::y", "rand::"), [2, 4]);
        assert_eq!(lines_with("HashMaps\nmy_HashMap\nHashMap<", "HashMap"), [3]);
    }
}
