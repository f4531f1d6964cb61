//! Which tests `cargo xtask test` runs. A `--fast` run lists what it leaves out, so that it is not mistaken
//! for a full one.

use crate::failure::Failure;
use crate::workspace::{Package, Workspace};

/// The packages whose test programs a fast run leaves out, with their subjects. Their unit tests are
/// included.
const SLOW: &[(&str, &str)] = &[
    ("semel-gateway", "the gateway as a program, with real clients and proxies"),
    ("semel-sim", "the model checker and the simulation"),
    ("semel-torture", "the crash tests"),
];

/// A test program of a quick package that needs a server, which a fast run does not start.
struct WithServer {
    program: &'static str,
    /// What a fast run leaves out of it.
    left_out: &'static str,
    /// The arguments with which the rest of it runs, if there is a rest.
    rest: &'static [&'static str],
}

const WITH_SERVERS: &[WithServer] = &[
    WithServer { program: "postgres", left_out: "the store on PostgreSQL", rest: &[] },
    WithServer { program: "redis", left_out: "the store on Redis and Valkey", rest: &[] },
    WithServer {
        program: "transactions",
        left_out: "local commands on PostgreSQL",
        rest: &["--skip", "postgres"],
    },
    WithServer {
        program: "patterns",
        left_out: "the patterns in the caller's transaction, except on SQLite",
        rest: &["sqlite"],
    },
];

/// The tests of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Selection {
    /// Every test.
    All,
    /// Unit tests, and the test programs of quick packages.
    Fast,
}

impl Selection {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        match arguments {
            [] => Ok(Self::All),
            [only] if only == "--fast" => Ok(Self::Fast),
            [first, ..] => Err(Failure::Usage(format!("test takes only --fast, but got `{first}`"))),
        }
    }

    /// The arguments for `cargo test`. Both selections name the same packages and share one build: for other
    /// packages, cargo would build dependencies again with other features.
    pub(crate) fn cargo_arguments(self) -> Result<Vec<String>, String> {
        let everywhere = ["test", "--workspace", "--no-fail-fast"].map(str::to_owned).to_vec();
        let targets = match self {
            // Without it, cargo links all examples and benchmarks too. Clippy has compiled those.
            Self::All => vec!["--tests".to_owned()],
            Self::Fast => quick_targets(&Workspace::load()?.packages),
        };
        Ok([everywhere, targets].concat())
    }

    /// The arguments for a test program that select its tests. None means all.
    pub(crate) fn arguments(self, program: &str) -> &'static [&'static str] {
        let part = WITH_SERVERS.iter().find(|with| with.program == program);
        part.filter(|_| self == Self::Fast).map_or(&[], |with| with.rest)
    }

    /// What was not tested, if anything.
    pub(crate) fn left_out(self) -> Option<String> {
        if self == Self::All {
            return None;
        }
        let mut text = String::from("This was a fast run. It left out:\n");
        for (package, subject) in SLOW {
            text += &["- ", subject, " (", package, ")\n"].concat();
        }
        for WithServer { program, left_out, .. } in WITH_SERVERS {
            text += &["- ", left_out, " (in the test program `", program, "`)\n"].concat();
        }
        text += "- examples in doc comments\n";
        Some(text + "Run `cargo xtask test` for everything.")
    }
}

fn needs_server_for_all(program: &str) -> bool {
    WITH_SERVERS.iter().any(|with| with.program == program && with.rest.is_empty())
}

fn quick_targets(packages: &[Package]) -> Vec<String> {
    let is_quick = |package: &&Package| SLOW.iter().all(|(slow, _)| package.name != *slow);
    let programs = packages.iter().filter(is_quick).flat_map(|package| &package.test_programs);
    let programs = programs.filter(|program| !needs_server_for_all(program));
    let mut arguments = vec!["--lib".to_owned(), "--bins".to_owned()];
    arguments.extend(programs.flat_map(|program| ["--test".to_owned(), program.clone()]));
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_run_includes_every_test_program_but_the_slow_ones() {
        let packages = Workspace::load().unwrap().packages;
        let arguments = Selection::Fast.cargo_arguments().unwrap();
        let is_included = |program: &String| arguments.windows(2).any(|pair| pair == ["--test", program]);
        for package in &packages {
            let slow = SLOW.iter().any(|(slow, _)| package.name == *slow);
            for program in &package.test_programs {
                let is_slow = slow || needs_server_for_all(program);
                assert_ne!(is_included(program), is_slow, "{program} of {}", package.name);
            }
        }
        for (slow, _) in SLOW {
            let found = packages.iter().find(|package| package.name == *slow);
            assert!(found.is_some_and(|package| !package.test_programs.is_empty()), "{slow} has no tests");
        }
    }

    #[test]
    fn a_fast_run_lists_what_it_left_out() {
        let text = Selection::Fast.left_out().unwrap();
        for (package, subject) in SLOW {
            assert!(text.contains(package) && text.contains(subject), "{text}");
        }
        for WithServer { program, left_out, .. } in WITH_SERVERS {
            assert!(text.contains(program) && text.contains(left_out), "{text}");
        }
        assert_eq!(Selection::All.left_out(), None);
    }

    #[test]
    fn only_a_fast_run_leaves_out_tests_of_a_program() {
        assert_eq!(Selection::Fast.arguments("transactions"), ["--skip", "postgres"]);
        assert_eq!(Selection::Fast.arguments("http"), [""; 0]);
        assert!(WITH_SERVERS.iter().all(|with| Selection::All.arguments(with.program).is_empty()));
    }

    #[test]
    fn an_argument_that_would_be_ignored_is_refused() {
        let parse = |arguments: &[&str]| {
            Selection::parse(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!((parse(&[]), parse(&["--fast"])), (Ok(Selection::All), Ok(Selection::Fast)));
        for bad in [&["--quick"][..], &["--fast", "key"], &["key"]] {
            assert!(matches!(parse(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }
}
