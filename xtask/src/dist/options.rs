//! The options of `cargo xtask dist`.

use std::path::PathBuf;

use crate::cargo;
use crate::command::Failure;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// A program that is already built.
    pub(super) program: Option<PathBuf>,
    /// The output folder.
    pub(super) out: PathBuf,
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options = Self { program: None, out: cargo::target().join("packages") };
        let mut rest = arguments.iter();
        while let Some(flag) = rest.next() {
            let mut path = || {
                let value = rest.next().ok_or_else(|| Failure::Usage(format!("{flag} needs a path")))?;
                // Relative to the caller's folder; the commands run in the repository's root.
                std::path::absolute(value).map_err(|error| Failure::Stopped(format!("{value}: {error}")))
            };
            match flag.as_str() {
                "--program" => options.program = Some(path()?),
                "--out" => options.out = path()?,
                _ => return Err(Failure::Usage(format!("dist takes --program and --out, but got `{flag}`"))),
            }
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, Failure> {
        Options::parse(&arguments.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_path_is_accepted_and_anything_else_refused() {
        let options = parse(&["--program", "/a/semel", "--out", "/b"]).unwrap();
        assert_eq!(options, Options { program: Some("/a/semel".into()), out: "/b".into() });
        assert_eq!(parse(&[]).unwrap().out, cargo::target().join("packages"));
        for bad in [&["--program"][..], &["semel"], &["--fast"]] {
            assert!(matches!(parse(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }
}
