//! Keys that are likely to be reused by accident, or that identify a person.
//!
//! Three tests that a random key passes. They do not estimate entropy: that would refuse some good keys, and a refused
//! good key is a payment that did not happen.

use std::fmt;

/// What is wrong with a weak key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weakness {
    /// It contains an e-mail address: personal, and the same for every operation of that person.
    Email,
    /// One repeated character, ignoring separators (`-` `_` `.` `:`). The nil UUID is the usual case.
    Repeated,
    /// Only everyday words (`retry`, `test-order`), which another request will use too.
    PlainWords,
}

impl Weakness {
    /// A stable name, used in the test vectors under `vectors/keys/`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Email => "weak-email",
            Self::Repeated => "weak-repeated",
            Self::PlainWords => "weak-words",
        }
    }
}

impl fmt::Display for Weakness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Email => "The idempotency key contains an e-mail address",
            Self::Repeated => "The idempotency key is one repeated character",
            Self::PlainWords => "The idempotency key consists only of plain words",
        })
    }
}

/// The first weakness of a key of visible ASCII.
pub(super) fn find(text: &str) -> Option<Weakness> {
    let text = text.as_bytes();
    if holds_email(text) {
        Some(Weakness::Email)
    } else if is_repeated(text) {
        Some(Weakness::Repeated)
    } else if is_plain_words(text) {
        Some(Weakness::PlainWords)
    } else {
        None
    }
}

fn is_separator(byte: u8) -> bool {
    matches!(byte, b'-' | b'_' | b'.' | b':')
}

/// Whether the text contains something like `x@y.zz`, with `@` or `%40`.
fn holds_email(text: &[u8]) -> bool {
    (1..text.len()).any(|at| {
        let before = text[at - 1];
        let behind = text[at..].strip_prefix(b"@").or_else(|| text[at..].strip_prefix(b"%40"));
        (before.is_ascii_alphanumeric() || matches!(before, b'_' | b'-' | b'+'))
            && behind.is_some_and(starts_with_domain)
    })
}

/// Whether the text begins with a label, a dot, and (perhaps after more labels) a top-level domain: at least two
/// letters of one case, and no letter or digit right after them. A looser rule would treat one in 800 random keys of
/// 32 visible characters as an address.
fn starts_with_domain(mut text: &[u8]) -> bool {
    loop {
        let label = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'-').count();
        let Some((b'.', behind)) = text[label..].split_first() else { return false };
        if label == 0 {
            return false;
        }
        let top = &behind[..behind.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()];
        let one_case = top.iter().all(u8::is_ascii_lowercase) || top.iter().all(u8::is_ascii_uppercase);
        if top.len() >= 2 && one_case {
            return true;
        }
        text = behind;
    }
}

fn is_repeated(text: &[u8]) -> bool {
    let mut rest = text.iter().filter(|byte| !is_separator(**byte));
    let first = rest.next();
    rest.all(|byte| Some(byte) == first)
}

/// Whether the text consists only of separators and [`WORDS`], in any case.
fn is_plain_words(text: &[u8]) -> bool {
    // `cut[n]`: the first n characters consist of words. A random key fails immediately, because it has no first
    // word.
    let mut cut = vec![false; text.len() + 1];
    cut[0] = true;
    for start in 0..text.len() {
        if !cut[start] {
            continue;
        }
        let rest = &text[start..];
        if is_separator(rest[0]) {
            cut[start + 1] = true;
        }
        for word in WORDS {
            if rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word.as_bytes())) {
                cut[start + word.len()] = true;
            }
        }
    }
    cut[text.len()]
}

/// Lower case, letters only. What people type if they have to invent a key: words of this feature, verbs and nouns of
/// web shops, placeholders, and what unset variables print.
#[rustfmt::skip] // One word a line would make the list longer than everything else here.
const WORDS: &[&str] = &[
    "account", "again", "api", "attempt", "bar", "baz", "cancel", "changeme", "charge", "checkout",
    "client", "command", "confirm", "create", "customer", "debug", "default", "delete", "demo", "dummy",
    "empty", "event", "example", "fake", "false", "final", "first", "foo", "hello", "http", "idempotency",
    "idempotent", "insert", "invoice", "item", "job", "key", "message", "my", "nan", "new", "nil", "none",
    "null", "object", "operation", "order", "password", "patch", "pay", "payment", "placeholder", "post",
    "purchase", "put", "qwerty", "random", "refund", "replay", "request", "retry", "same", "sample", "save",
    "secret", "send", "server", "string", "submit", "task", "temp", "test", "the", "this", "tmp", "todo",
    "token", "transaction", "transfer", "true", "undefined", "unique", "update", "user", "uuid", "value",
    "webhook", "world",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_weak_alone_joined_and_run_together() {
        for weak in
            ["retry", "Retry", "test-order_retry.again:KEY", "testtesttesttest", "-retry-", "undefined:null"]
        {
            assert_eq!(find(weak), Some(Weakness::PlainWords), "{weak}");
        }
        for fine in ["retryx", "xretry", "order:1234:charge", "retry/test", "retr", "test test"] {
            assert_eq!(find(fine), None, "{fine}");
        }
    }

    #[test]
    fn one_character_is_weak_however_it_is_grouped() {
        for weak in ["aaaaaaaaaaaaaaaa", "00000000-0000-0000-0000-000000000000", "-._:", "x", "x-------"] {
            assert_eq!(find(weak), Some(Weakness::Repeated), "{weak}");
        }
        for fine in [
            "aaaaaaaaaaaaaaab",
            "baaaaaaaaaaaaaaa",
            "aaaaaaaaAaaaaaaa",
            "00000000-0000-4000-8000-000000000000",
        ] {
            assert_eq!(find(fine), None, "{fine}");
        }
    }

    #[test]
    fn an_email_address_is_found_anywhere() {
        for weak in [
            "bob@example.com",
            "charge-bob@example.com-2024",
            "bob%40example.com",
            "1+bob_@mail.4.example.org/7",
            "@@b@x.yz",
            "b-@x.yz",
            "b+@x.yz",
            "BOB@EXAMPLE.COM",
            "bob@example.com:7",
        ] {
            assert_eq!(find(weak), Some(Weakness::Email), "{weak}");
        }
        for fine in [
            "@example.com",
            "bob@",
            "bob@example",
            "bob@.com",
            "bob@example.c",
            "bob@example.4c",
            "bob@example.c4",
            "bob@example.com4",
            "bob@example.cOm",
            "bob@4..com",
            "bob.example.com",
            "b/@x.yz",
            "bob%41example.com",
        ] {
            assert_eq!(find(fine), None, "{fine}");
        }
    }

    #[test]
    fn the_word_list_is_the_one_for_other_languages() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/keys/weak-words.json");
        let words: Vec<String> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(WORDS, words);
    }

    #[test]
    fn the_word_list_is_sorted_lower_case_letters() {
        assert!(WORDS.is_sorted_by(|a, b| a < b));
        assert!(
            WORDS.iter().all(|word| word.len() > 1 && word.bytes().all(|byte| byte.is_ascii_lowercase()))
        );
    }
}
