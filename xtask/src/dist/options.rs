//! The options of `cargo xtask dist`.

use std::path::PathBuf;

use crate::cargo;
use crate::failure::Failure;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// A program that is already built.
    pub(super) program: Option<PathBuf>,
    /// The output folder.
    pub(super) out: PathBuf,
    pub(super) compression: Compression,
}

/// How much time the packages are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compression {
    /// As they are published.
    Small,
    /// For a look at them: in a fifth of the time.
    Quick,
}

impl Compression {
    pub(super) const fn gzip(self) -> &'static str {
        match self {
            Self::Small => "gzip -n -9",
            Self::Quick => "gzip -n -1",
        }
    }

    /// The level for `dpkg-deb`.
    pub(super) const fn xz(self) -> &'static str {
        match self {
            Self::Small => "-z6",
            Self::Quick => "-z0",
        }
    }
}

impl Options {
    pub(super) fn parse(arguments: &[String]) -> Result<Self, Failure> {
        let mut options =
            Self { program: None, out: cargo::target().join("packages"), compression: Compression::Small };
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
                "--quick" => options.compression = Compression::Quick,
                _ => {
                    let known = "dist takes --program, --out and --quick";
                    return Err(Failure::Usage(format!("{known}, but got `{flag}`")));
                }
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
        let options = parse(&["--program", "/a/semel", "--quick", "--out", "/b"]).unwrap();
        let (program, compression) = (Some("/a/semel".into()), Compression::Quick);
        assert_eq!(options, Options { program, out: "/b".into(), compression });
        let (out, compression) = (cargo::target().join("packages"), Compression::Small);
        assert_eq!(parse(&[]).unwrap(), Options { program: None, out, compression });
        for bad in [&["--program"][..], &["semel"], &["--fast"]] {
            assert!(matches!(parse(bad), Err(Failure::Usage(_))), "{bad:?}");
        }
    }
}
