//! `cargo xtask fuzz`: runs every fuzz target of `fuzz/Cargo.toml` for a while, or one of them.

use crate::cargo;
use crate::failure::Failure;

const DEFAULT_SECONDS: u64 = 60;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let path = cargo::root().join("fuzz/Cargo.toml");
    let manifest = std::fs::read_to_string(path)
        .map_err(|error| Failure::Stopped(format!("fuzz/Cargo.toml: {error}")))?;
    let targets = options.choose(targets(&manifest))?;
    tools_are_there()?;

    let mut failed = Vec::new();
    for target in &targets {
        println!("── fuzz {target}, {} s", options.seconds);
        let mut command = cargo::cargo_nightly();
        command.args(["fuzz", "run", target, "--", &format!("-max_total_time={}", options.seconds)]);
        if cargo::pass_through(command).is_err() {
            failed.push(target.as_str());
        }
    }
    println!("{} targets, {} failed", targets.len(), failed.len());
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Stopped(format!("failed: {}; the inputs are in fuzz/artifacts/", failed.join(", "))))
}

fn tools_are_there() -> Result<(), Failure> {
    let mut nightly = cargo::cargo_nightly();
    nightly.arg("--version");
    if !cargo::answers(nightly) {
        let advice = "fuzzing needs a nightly compiler; install it: rustup toolchain install nightly";
        return Err(Failure::Stopped(advice.to_owned()));
    }
    let mut fuzz = cargo::cargo_nightly();
    fuzz.args(["fuzz", "--version"]);
    if !cargo::answers(fuzz) {
        let advice = "cargo-fuzz is missing; install it: cargo install cargo-fuzz --locked";
        return Err(Failure::Stopped(advice.to_owned()));
    }
    Ok(())
}

/// The command line.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    target: Option<String>,
    seconds: u64,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { target: None, seconds: DEFAULT_SECONDS };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            if argument == "--seconds" {
                let number = rest.next().and_then(|text| text.parse().ok()).filter(|seconds| *seconds > 0);
                options.seconds =
                    number.ok_or_else(|| Failure::Usage("--seconds needs a number above zero".to_owned()))?;
            } else if argument.starts_with('-') {
                return Err(Failure::Usage(format!("fuzz: unknown option `{argument}`")));
            } else if let Some(first) = options.target.replace(argument.clone()) {
                return Err(Failure::Usage(format!("one target at a time: `{first}` or `{argument}`?")));
            }
        }
        Ok(options)
    }

    fn choose(&self, all: Vec<String>) -> Result<Vec<String>, Failure> {
        if all.is_empty() {
            return Err(Failure::Stopped("fuzz/Cargo.toml names no [[bin]]: nothing to run".to_owned()));
        }
        match &self.target {
            None => Ok(all),
            Some(target) if all.contains(target) => Ok(vec![target.clone()]),
            Some(target) => {
                let known = all.join(", ");
                Err(Failure::Usage(format!("unknown fuzz target `{target}`; known targets: {known}")))
            }
        }
    }
}

/// The names of the manifest's `[[bin]]` sections.
fn targets(manifest: &str) -> Vec<String> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[[bin]]"
            && let Some((key, value)) = line.split_once('=')
            && key.trim() == "name"
        {
            names.push(value.trim().trim_matches('"').to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "[package]\nname = \"semel-fuzz\"\n\n[[bin]]\nname = \"key\"\npath = \"key.rs\"\n\n\
                            [[bin]]\nname=\"codec\"\n[profile.release]\ndebug = true\n";

    fn parse(arguments: &[&str]) -> Result<Options, Failure> {
        Options::parse(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn targets_are_the_programs_names() {
        assert_eq!(targets(MANIFEST), ["key", "codec"]);
    }

    #[test]
    fn a_target_and_a_duration_may_come_in_either_order() {
        let expected = Options { target: Some("key".to_owned()), seconds: 5 };
        assert_eq!(parse(&["key", "--seconds", "5"]), Ok(expected));
        assert_eq!(parse(&["--seconds", "5", "key"]).unwrap().seconds, 5);
        assert_eq!(parse(&[]).unwrap(), Options { target: None, seconds: DEFAULT_SECONDS });
    }

    #[test]
    fn an_invalid_duration_is_refused() {
        for bad in [&["--seconds"][..], &["--seconds", "soon"], &["--seconds", "0"], &["--minutes", "1"]] {
            assert!(matches!(parse(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_target_is_refused_with_the_list_of_known_ones() {
        let options = parse(&["jsn"]).unwrap();
        let Err(Failure::Usage(reason)) = options.choose(targets(MANIFEST)) else { panic!("accepted") };
        assert!(reason.contains("key, codec"), "{reason}");
        assert!(matches!(options.choose(Vec::new()), Err(Failure::Stopped(_))));
    }
}
