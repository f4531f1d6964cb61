//! Classifies errors of the server and the connection by what they prove about the write.

use crate::address::Host;
use crate::resp::{Value, text};
use crate::scripts::Script;
use semel_core::store::{Error, Kind};

/// A failed command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    cause: String,
    /// The server's answer, if that is the cause.
    answer: Option<String>,
    /// The server is still loading its data.
    is_starting: bool,
}

impl Fault {
    pub(crate) fn new(kind: Kind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into(), answer: None, is_starting: false }
    }

    pub(crate) fn of(error: &Error) -> Self {
        let cause = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
        Self { is_starting: error.is_starting(), ..Self::new(error.kind(), cause) }
    }

    /// The same for a script: names the missing right. If the script had not taken effect yet, nothing was
    /// written.
    pub(crate) fn in_script(mut self, script: &Script) -> Self {
        let Some(answer) = &self.answer else { return self };
        let Some((command, is_before_effect)) = script.failure(answer) else { return self };
        let is_forbidden = answer.contains("NOPERM") || answer.contains("can't run this command");
        // The scripts check the types of all keys before they change anything.
        if is_before_effect && (is_forbidden || self.is_wrong_type()) {
            self.kind = Kind::Unfit;
        }
        if is_forbidden {
            self.cause =
                format!("the store's user lacks the right +{}: {}", command.to_lowercase(), self.cause);
        }
        self
    }

    /// Whether the server answered that a key holds another type of value.
    pub(crate) fn is_wrong_type(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.contains("WRONGTYPE"))
    }

    pub(crate) fn error(self, context: &str) -> Error {
        let error = if self.is_starting { Error::starting(context) } else { Error::new(self.kind, context) };
        error.because(self.cause)
    }
}

/// The server's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServerRefusal {
    /// The slot is on another server.
    Moved(Host),
    /// The key is being moved to another server, which must be asked for this request only.
    Ask(Host),
    /// The slot is being moved, or the cluster is not stable: retrying may help.
    TryAgain(String),
    /// The server does not know the script: send its text.
    NoScript,
    /// The server is a replica.
    ReadOnly(String),
    /// Anything else.
    Other(Fault),
}

/// Error codes that prove that nothing was changed, and what each means.
const NOTHING_RAN: &[(&str, Kind)] = &[
    ("BUSY", Kind::Unavailable),
    ("CLUSTERDOWN", Kind::Unavailable),
    ("CROSSSLOT", Kind::Unfit),
    ("LOADING", Kind::Unavailable),
    ("MASTERDOWN", Kind::Unavailable),
    ("MISCONF", Kind::Full),
    ("NOAUTH", Kind::Unfit),
    ("NOREPLICAS", Kind::Unavailable),
    ("NOSCRIPT", Kind::Unavailable),
    ("OOM", Kind::Full),
    ("READONLY", Kind::ReadOnly),
    ("TRYAGAIN", Kind::Unavailable),
    ("WRONGPASS", Kind::Unfit),
];

impl ServerRefusal {
    /// Reads an error reply to a command that `changes` something or not.
    ///
    /// Redis rolls nothing back: an error from the middle of a script may leave a part of its effect. Only
    /// certain codes prove that nothing ran. `NOPERM` is one of them only if no script was started.
    pub(crate) fn of(text: &str, changes: bool) -> Self {
        let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
        let target = || rest.split_whitespace().nth(1).and_then(Host::parse);
        match code {
            "MOVED" => {
                if let Some(host) = target() {
                    return Self::Moved(host);
                }
            }
            "ASK" => {
                if let Some(host) = target() {
                    return Self::Ask(host);
                }
            }
            "TRYAGAIN" | "CLUSTERDOWN" => return Self::TryAgain(text.to_owned()),
            "NOSCRIPT" => return Self::NoScript,
            "READONLY" => return Self::ReadOnly(text.to_owned()),
            _ => {}
        }
        let is_from_script = text.contains("script");
        let known = NOTHING_RAN.iter().find(|(known, _)| *known == code).map(|(_, kind)| *kind);
        let kind = match known {
            Some(kind) => kind,
            None if code == "NOPERM" && !is_from_script => Kind::Unfit,
            None if changes => Kind::Ambiguous,
            None => Kind::Unfit,
        };
        let fault = Fault::new(kind, format!("the server answered `{text}`{}", advice(code)));
        Self::Other(Fault { answer: Some(text.to_owned()), is_starting: code == "LOADING", ..fault })
    }

    /// For a caller who cannot do anything about it.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Moved(host) | Self::Ask(host) => Fault::new(
                Kind::Unavailable,
                format!(
                    "the servers of the cluster do not agree on who has the key; the last one named {host}"
                ),
            ),
            Self::TryAgain(text) => Fault::new(Kind::Unavailable, format!("the server answered `{text}`")),
            Self::NoScript => Fault::new(Kind::Unavailable, "the server does not keep scripts"),
            Self::ReadOnly(text) => {
                Fault::new(Kind::ReadOnly, format!("the server answered `{text}`{}", advice("READONLY")))
            }
            Self::Other(fault) => fault,
        }
    }
}

fn advice(code: &str) -> &'static str {
    match code {
        "OOM" => "; raise maxmemory on the server, or shorten the time that outcomes are kept",
        "MISCONF" => "; the server cannot write to its disk: look at its log",
        "NOAUTH" => "; add password=env:NAME or password=file:PATH to the store's URL",
        "WRONGPASS" => "; check the user and the password in the store's URL",
        "NOREPLICAS" => "; too few replicas follow the server (min-replicas-to-write)",
        "NOPERM" => "; give the store's user the rights that the guide names",
        "READONLY" => "; this server is a replica",
        _ => "",
    }
}

/// A foreign value under a key, or an unexpected answer. The scripts check this before they change anything.
pub(crate) fn unexpected(answer: &Value) -> Error {
    let fault = match answer.array() {
        [status, key] if status.text() == Some("type") => Fault::new(
            Kind::Unfit,
            format!("the key {} holds something that Semel did not write; nothing was changed", text(key)),
        ),
        _ => Fault::new(Kind::Ambiguous, "the server's answer is not one to what it was asked"),
    };
    fault.error("asking Redis")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str, changes: bool) -> Kind {
        ServerRefusal::of(text, changes).fault().kind
    }

    #[test]
    fn only_a_refusal_before_execution_proves_that_nothing_was_written() {
        for (text, expected) in [
            (
                "OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:3.",
                Kind::Full,
            ),
            ("MISCONF Redis is configured to save RDB snapshots", Kind::Full),
            ("LOADING Redis is loading the dataset in memory", Kind::Unavailable),
            ("BUSY Redis is busy running a script.", Kind::Unavailable),
            ("NOREPLICAS Not enough good replicas to write.", Kind::Unavailable),
            ("READONLY You can't write against a read only replica.", Kind::ReadOnly),
            ("CLUSTERDOWN The cluster is down", Kind::Unavailable),
            ("NOPERM User semel has no permissions to run the 'evalsha' command", Kind::Unfit),
            (
                "ERR user_script:7: attempt to index a nil value script: ab, on @user_script:7.",
                Kind::Ambiguous,
            ),
            ("WRONGTYPE Operation against a key script: ab, on @user_script:9.", Kind::Ambiguous),
            ("NOPERM ACL failure in script: no permissions to run the 'zadd' command", Kind::Ambiguous),
            ("ERR something new", Kind::Ambiguous),
            ("", Kind::Ambiguous),
        ] {
            assert_eq!(kind(text, true), expected, "{text}");
            assert_ne!(kind(text, false), Kind::Ambiguous, "a command that changes nothing: {text}");
        }
    }

    #[test]
    fn only_the_servers_answer_says_which_right_a_script_lacks() {
        let script = &crate::scripts::WRITE;
        let fails_early =
            |line: &u32| script.failure(&format!("@user_script:{line}.")).is_some_and(|(_, early)| early);
        let line = (1..500).find(fails_early).expect("a command before the script takes effect");
        let text = format!("NOPERM ACL failure in script: no permissions, on @user_script:{line}.");
        let refused = ServerRefusal::of(&text, true).fault().in_script(script);
        assert_eq!(refused.kind, Kind::Unfit);
        let shown = refused.error("writing").to_string();
        assert!(shown.contains("lacks the right +") && shown.contains(&text), "{shown}");
        let other = Fault::new(Kind::Ambiguous, text);
        assert_eq!(other.clone().in_script(script), other, "not an answer of the server");
    }

    #[test]
    fn a_cluster_redirects_to_the_right_server() {
        let host = Host { name: "10.0.0.1".to_owned(), port: 7001 };
        assert_eq!(ServerRefusal::of("MOVED 3999 10.0.0.1:7001", true), ServerRefusal::Moved(host.clone()));
        assert_eq!(ServerRefusal::of("ASK 3999 10.0.0.1:7001", true), ServerRefusal::Ask(host));
        assert_eq!(ServerRefusal::of("NOSCRIPT No matching script.", true), ServerRefusal::NoScript);
        assert!(matches!(ServerRefusal::of("TRYAGAIN Multiple keys", true), ServerRefusal::TryAgain(_)));
    }
}
