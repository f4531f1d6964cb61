//! `semel completions` and `semel man`, generated from the description of the command line.

use super::cli_error::CliError;
use clap::Command;
use clap_complete::Shell;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
pub(super) struct Man {
    /// Where to write a page for each command, such as /usr/local/share/man/man1; without it, the first page is printed
    directory: Option<PathBuf>,
}

pub(super) fn completions(arguments: &Completions, mut program: Command) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut program, "semel", &mut script);
    print(&script);
    ExitCode::SUCCESS
}

pub(super) fn man(arguments: &Man, program: Command) -> Result<ExitCode, CliError> {
    if let Some(directory) = &arguments.directory {
        write(directory, program)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(program).render(&mut page)?;
    print(&page);
    Ok(ExitCode::SUCCESS)
}

fn write(directory: &Path, program: Command) -> Result<(), CliError> {
    let written =
        std::fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(program, directory));
    written.map_err(|error| CliError::failed(format!("{} cannot be written: {error}", directory.display())))
}

/// Prints, and ignores a closed output.
fn print(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(bytes).and_then(|()| out.flush());
}
