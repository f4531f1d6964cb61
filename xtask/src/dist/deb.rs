//! The Debian package. It has no installation scripts: the unit creates its own user and folders, and nothing
//! runs until there is a configuration.

use std::fs;
use std::path::Path;

use super::Release;
use super::tree::{self, Layout};
use crate::cargo;

/// `semel_VERSION_ARCHITECTURE.deb`.
pub(super) fn package(release: &Release, scratch: &Path, out: &Path) -> Result<String, String> {
    let architecture = architecture(release.processor)?;
    let name = format!("semel_{}_{architecture}.deb", release.version);
    let root = scratch.join("deb");
    tree::fill(&root.join("usr"), Layout::Debian, release)?;
    tree::write(&root.join("usr/share/doc/semel/copyright"), COPYRIGHT)?;
    tree::write(&root.join("DEBIAN/control"), &control(release, architecture)?)?;
    let configuration = root.join("etc/semel");
    fs::create_dir_all(&configuration).map_err(|error| format!("{}: {error}", configuration.display()))?;
    tree::settle(&root, release)?;
    let mut command = cargo::program("dpkg-deb");
    command
        .args(["--root-owner-group", "-Zxz", release.compression.xz(), "--build"])
        .arg(&root)
        .arg(out.join(&name));
    command.env("SOURCE_DATE_EPOCH", &release.time);
    cargo::capture(command)?;
    Ok(name)
}

fn control(release: &Release, architecture: &str) -> Result<String, String> {
    let path = &release.program;
    let program = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let glibc = newest_glibc(&program).ok_or("the program does not name the C library that it needs")?;
    Ok(format!(
        "Package: semel\n\
         Version: {}\n\
         Architecture: {architecture}\n\
         Maintainer: The Semel authors\n\
         Section: net\n\
         Priority: optional\n\
         Depends: libc6 (>= 2.{glibc}), libgcc-s1\n\
         Recommends: ca-certificates\n\
         Description: gateway that makes the side effects of an HTTP service happen once\n \
         Semel recognises a repeated request by its idempotency key, runs it once,\n \
         stores the response and answers every retry with it. If nobody can prove\n \
         what happened, it answers UNKNOWN and helps to find out.\n \
         .\n \
         Write /etc/semel/semel.toml (see /usr/share/doc/semel/examples), then:\n \
         systemctl enable --now semel\n",
        release.version
    ))
}

const COPYRIGHT: &str = "\
Semel may be used under the terms of the Apache License 2.0 or of the MIT licence, as you prefer.
Both are in this folder: LICENSE-APACHE and LICENSE-MIT.
";

fn architecture(processor: &str) -> Result<&'static str, String> {
    match processor {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(format!("Debian's name for the processor {other} is not known here; add it")),
    }
}

/// The newest version 2.N of the C library whose functions the program uses.
fn newest_glibc(program: &[u8]) -> Option<u32> {
    const BEFORE: &[u8] = b"GLIBC_2.";
    let mut newest = None;
    for at in 0..program.len().saturating_sub(BEFORE.len()) {
        if program[at..].starts_with(BEFORE) {
            let digits = program[at + BEFORE.len()..].iter().take_while(|byte| byte.is_ascii_digit()).take(4);
            let text: String = digits.map(|byte| char::from(*byte)).collect();
            newest = newest.max(text.parse().ok());
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_depends_on_the_newest_c_library_that_is_used() {
        assert_eq!(newest_glibc(b"..GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0"), Some(34));
        assert_eq!(newest_glibc(b"GLIBC_PRIVATE"), None);
    }

    #[test]
    fn an_unknown_processor_is_refused() {
        assert_eq!(architecture("x86_64"), Ok("amd64"));
        assert!(architecture("riscv64").is_err());
    }
}
