//! The help of every command, as it is printed on 80 columns.

use super::command;
use super::tests::every;
use crate::texts::{FOLDER, assert_fits, assert_is};
use std::collections::BTreeSet;

const COLUMNS: usize = 80;

/// The commands, each with its help; `semel help COMMAND` and `--help` print the same.
fn helps() -> Vec<(String, String)> {
    let mut cli = command().term_width(COLUMNS);
    cli.build();
    let mut helps = Vec::new();
    every(&cli, "semel", &mut |words, command| {
        let is_help = words.split(' ').any(|word| word == "help");
        if !is_help {
            let mut command = command.clone().term_width(COLUMNS);
            helps.push((words.replace(' ', "-"), command.render_long_help().to_string()));
        }
    });
    helps
}

#[test]
fn every_help_text_equals_its_file_and_fits_80_columns() {
    let helps = helps();
    assert!(helps.len() > 20, "there are {} commands", helps.len());
    for (name, help) in &helps {
        let help: Vec<_> = help.lines().map(str::trim_end).collect();
        let help = help.join("\n");
        assert_fits(name, &help, COLUMNS);
        assert_is(&format!("help/{name}"), &help);
    }
}

#[test]
fn no_file_is_about_a_command_that_does_not_exist() {
    let known: BTreeSet<_> = helps().into_iter().map(|(name, _)| format!("{name}.txt")).collect();
    let files = std::fs::read_dir(format!("{FOLDER}/help")).expect("the folder");
    let files: BTreeSet<_> =
        files.map(|file| file.expect("a file").file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(files, known);
}
