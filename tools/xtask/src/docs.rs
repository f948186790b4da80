//! The book: the pages of `docs/` and those at the root, checked, and built with mdBook.
//!
//! mdBook accepts a link to nowhere, a quoted program that has changed and a command that is gone.
//! The checks here refuse them. They read the tree alone, so they also run without mdBook.

mod commands;
mod links;
mod markdown;
mod program;
mod quotes;
mod stage;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::test::cargo;
use crate::tree::{SourceFile, paths, root, source_files};

/// Where the finished book is.
const BOOK: &str = "target/book";
/// The folder in which mdBook finds all pages.
const STAGE: &str = "target/book-source";
/// The version that is installed where mdBook is missing.
const MDBOOK_VERSION: &str = "0.5.4";

/// How much is done; by default all of it.
#[derive(Debug, Default, Args)]
pub(crate) struct Options {
    /// Only checks links, quoted programs and commands; needs no mdBook.
    #[arg(long)]
    check: bool,
}

/// Checks the pages and builds the book, installing mdBook if it is missing.
pub(crate) fn build(interrupts: &Interrupts, options: &Options) -> Result<()> {
    let files = source_files()?;
    let pictures = stage::pictures(paths()?);
    check(&files, &pictures)?;
    if options.check {
        return Ok(());
    }
    install_mdbook(interrupts)?;
    write_stage(&files, &pictures)?;
    let book = root().join(BOOK);
    let mut mdbook = Command::new("mdbook");
    mdbook.args(["build", STAGE, "--dest-dir"]).arg(&book).current_dir(root());
    interrupts.run(&mut mdbook)?;
    say(format_args!("the book is {BOOK}/index.html"));
    Ok(())
}

/// Returns whether a page has a heading with this anchor.
pub(crate) fn has_heading(page: &str, anchor: &str) -> bool {
    markdown::anchors(page).iter().any(|heading| heading == anchor)
}

fn check(files: &[SourceFile], pictures: &[String]) -> Result<()> {
    let complaints = [
        links::check(files, pictures),
        links::check_summary(files),
        quotes::check(files),
        commands::check(files, &commands::subcommands()),
        program::check(files),
    ]
    .concat();
    for complaint in &complaints {
        say(complaint);
    }
    match complaints.len() {
        0 => {
            say("links, quoted files and commands of all pages hold");
            Ok(())
        }
        count => bail!("{count} complaint(s) about pages"),
    }
}

fn install_mdbook(interrupts: &Interrupts) -> Result<()> {
    let mut version = Command::new("mdbook");
    version.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    if version.status().is_ok_and(|status| status.success()) {
        return Ok(());
    }
    say("mdbook is missing: installing it");
    let mut install = cargo();
    // Not optimized: it runs for a second, and builds in less time.
    install.args(["install", "--locked", "--debug", "mdbook", "--version", MDBOOK_VERSION]);
    interrupts.run(&mut install)
}

/// Writes every page again, so that none stays that has been removed from the tree.
fn write_stage(files: &[SourceFile], pictures: &[String]) -> Result<()> {
    let stage = root().join(STAGE);
    if stage.exists() {
        fs::remove_dir_all(&stage).context("removing the last stage")?;
    }
    for (path, text) in stage::pages(files, pictures)? {
        let path = made_room_for(stage.join(path))?;
        fs::write(&path, text).with_context(|| path.display().to_string())?;
    }
    for picture in pictures {
        let path = made_room_for(stage.join(picture))?;
        fs::copy(root().join(picture), &path).with_context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Makes the folder of a file.
fn made_room_for(path: PathBuf) -> Result<PathBuf> {
    let folder = path.parent().context("a page has no folder")?;
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    Ok(path)
}
