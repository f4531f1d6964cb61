//! Tarballs: the program for any Linux, and the context for a container image.

use std::fs;
use std::path::Path;

use super::Release;
use super::tree::{self, Layout};
use crate::cargo;

/// `semel-VERSION-PROCESSOR-linux.tar.gz`: everything in one folder; unpack it into `/usr/local` or a home
/// directory.
pub(super) fn program(release: &Release, scratch: &Path, out: &Path) -> Result<String, String> {
    let name = release.name();
    let folder = scratch.join(&name);
    tree::fill(&folder, Layout::Usual, release)?;
    tree::settle(&folder, release)?;
    tar(&name, scratch, &out.join(format!("{name}.tar.gz")), release)?;
    Ok(format!("{name}.tar.gz"))
}

/// `semel-VERSION-PROCESSOR-linux-container.tar.gz`: a Containerfile and the program that it copies.
pub(super) fn container(release: &Release, scratch: &Path, out: &Path) -> Result<String, String> {
    let name = format!("{}-container", release.name());
    let folder = scratch.join(&name);
    let recipe = cargo::root().join("packaging/container/Containerfile");
    let recipe = fs::read_to_string(&recipe).map_err(|error| format!("{}: {error}", recipe.display()))?;
    tree::write(&folder.join("Containerfile"), &without_build(&recipe, release)?)?;
    tree::copy(&release.program, &folder.join("semel"), 0o755)?;
    tree::settle(&folder, release)?;
    tar(&name, scratch, &out.join(format!("{name}.tar.gz")), release)?;
    Ok(format!("{name}.tar.gz"))
}

/// The recipe without the build stage: the program is beside it.
fn without_build(recipe: &str, release: &Release) -> Result<String, String> {
    let last = recipe.rfind("\nFROM ").ok_or("the Containerfile has no second stage")?;
    let built = "COPY --from=build /source/target/dist/semel ";
    let stage = &recipe[last + 1..];
    if !stage.contains(built) {
        return Err("the Containerfile does not copy the program from its first stage".to_owned());
    }
    let head = format!(
        "# Semel {} in a container; the program beside this file is for {}.\n#\n#   podman build -t semel .\n\n",
        release.version, release.processor
    );
    Ok(head + &stage.replace(built, "COPY semel "))
}

/// Sorted, owned by root, with the release's time, and with gzip's name and time left out.
fn tar(name: &str, folder: &Path, to: &Path, release: &Release) -> Result<(), String> {
    let mut command = cargo::program("tar");
    command.args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    command.arg(format!("--mtime=@{}", release.time));
    command.args(["--use-compress-program", release.compression.gzip(), "--file"]).arg(to);
    command.arg("--directory").arg(folder).arg(name);
    cargo::capture(command).map(drop)
}

#[cfg(test)]
mod tests {
    use super::super::Compression;
    use super::*;

    #[test]
    fn the_recipe_copies_the_program_beside_it() {
        let recipe = fs::read_to_string(cargo::root().join("packaging/container/Containerfile")).unwrap();
        let release = Release {
            program: "semel".into(),
            version: "1.2.3".to_owned(),
            processor: "x86_64",
            time: "0".to_owned(),
            compression: Compression::Small,
        };
        let made = without_build(&recipe, &release).unwrap();
        assert!(made.contains("\nFROM debian:") && made.contains("\nCOPY semel /usr/bin/semel\n"), "{made}");
        assert!(!made.contains("--from=build") && !made.contains("cargo"), "{made}");
        assert!(without_build("FROM scratch\n", &release).is_err());
    }
}
