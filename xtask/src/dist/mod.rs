//! `cargo xtask dist`: a tarball, a Debian package, a context for a container image, and their checksums.
//!
//! The files do not depend on who builds them or when: owners are root, and times are those of the last
//! commit.

mod archive;
mod deb;
mod options;
mod tree;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo;
use crate::failure::Failure;
use options::{Compression, Options};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let options = Options::parse(arguments)?;
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build()?,
    };
    let made = pack(&program, &options.out, options.compression).map_err(Failure::Stopped)?;
    for file in made {
        println!("{}", options.out.join(file).display());
    }
    Ok(())
}

/// Builds the program as it is installed, and returns its path.
fn build() -> Result<PathBuf, Failure> {
    let mut command = cargo::cargo();
    command.args(["build", "--profile", "dist", "--locked", "--package", "semel-gateway"]);
    cargo::pass_through(command)?;
    Ok(cargo::target().join("dist/semel"))
}

/// Creates every package of this program in `out`, and returns the file names.
fn pack(program: &Path, out: &Path, compression: Compression) -> Result<Vec<String>, String> {
    let scratch = out.join("scratch");
    remove(&scratch)?;
    fs::create_dir_all(&scratch).map_err(|error| format!("{}: {error}", scratch.display()))?;
    let release = Release::of(strip(program, scratch.join("semel"))?, compression)?;
    let mut made = vec![
        archive::program(&release, &scratch, out)?,
        archive::container(&release, &scratch, out)?,
        deb::package(&release, &scratch, out)?,
    ];
    remove(&scratch)?;
    made.push(checksums(&made, out)?);
    Ok(made)
}

/// A copy without symbols, which are half of the program's size and not needed to run it.
fn strip(program: &Path, to: PathBuf) -> Result<PathBuf, String> {
    let mut command = cargo::program("strip");
    command.arg("-o").arg(&to).arg(program);
    cargo::capture(command)?;
    Ok(to)
}

/// The release that is packed.
struct Release {
    program: PathBuf,
    version: String,
    /// The processor, as Rust names it.
    processor: &'static str,
    /// The time of the last commit in seconds since 1970, which all packed files get.
    time: String,
    compression: Compression,
}

impl Release {
    fn of(program: PathBuf, compression: Compression) -> Result<Self, String> {
        let mut ask = Command::new(&program);
        ask.arg("--version");
        let answer = cargo::capture(ask)?;
        let version = answer.split_whitespace().nth(1).ok_or("the program does not name its version")?;
        let mut commit = cargo::git();
        commit.args(["log", "-1", "--format=%ct"]);
        Ok(Self {
            version: version.to_owned(),
            program,
            processor: std::env::consts::ARCH,
            time: cargo::capture(commit)?.trim().to_owned(),
            compression,
        })
    }

    /// `semel-0.1.0-x86_64-linux`.
    fn name(&self) -> String {
        format!("semel-{}-{}-linux", self.version, self.processor)
    }
}

fn checksums(files: &[String], out: &Path) -> Result<String, String> {
    let mut command = cargo::program("sha256sum");
    command.args(files).current_dir(out);
    let name = "SHA256SUMS".to_owned();
    let path = out.join(&name);
    fs::write(&path, cargo::capture(command)?).map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(name)
}

fn remove(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}
