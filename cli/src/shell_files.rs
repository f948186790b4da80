//! `handfast completions` and `handfast man-pages`: files that packages install for shells and for
//! `man`. They are made from the command line's own description, so they cannot lag behind it.

use std::fs;
use std::io::Write;
use std::path::Path;

use clap_complete::Shell;
use handfast_server::cli::{CliFailure, Exit};

/// Prints the script that completes commands and options in a shell.
pub(super) fn completions(shell: Shell, output: &mut dyn Write) -> Result<(), CliFailure> {
    let mut command = crate::command();
    let name = command.get_name().to_owned();
    // Into memory first: the generator panics when its writer fails, as a closed pipe does.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    Ok(output.write_all(&script)?)
}

/// Writes a page for the program and for each of its commands, and makes the directory.
pub(super) fn man_pages(directory: &Path) -> Result<(), CliFailure> {
    let pages = || {
        fs::create_dir_all(directory)?;
        clap_mangen::generate_to(crate::command().disable_help_subcommand(true), directory)
    };
    pages().map_err(|error| {
        let message = format!("{}: {error}", directory.display());
        CliFailure::new(Exit::Failed, "HF-CLI-FILE", message)
    })
}
