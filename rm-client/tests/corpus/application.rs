//! The files of the corpus: one for each application and database that it runs on.

use std::fs;
use std::path::PathBuf;

use crate::entry::{Entry, entries};

/// A section begins with one of these lines.
const SCHEMA: &str = "\n-- == schema\n";
const ROWS: &str = "\n-- == rows\n";
const STATEMENTS: &str = "\n-- == statements\n";
/// The line of the head that names triggers which the application vouches for.
const TRUSTS: &str = "-- trusts: ";

/// An application on one database.
#[derive(Clone, Debug)]
pub(crate) struct Application {
    /// The folder's name.
    pub(crate) name: String,
    pub(crate) trusted_triggers: Vec<String>,
    /// SQL that creates the tables.
    pub(crate) schema: String,
    /// SQL that fills them.
    pub(crate) rows: String,
    pub(crate) entries: Vec<Entry>,
}

/// Returns the applications that have a file for the database, by name.
pub(crate) fn applications(database: &str) -> Vec<Application> {
    let folders = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders.filter(|path| path.is_dir()).collect();
    folders.sort();
    let read = |folder: &PathBuf| {
        let text = fs::read_to_string(folder.join(format!("{database}.sql"))).ok()?;
        let name = folder.file_name()?.to_string_lossy().into_owned();
        let place = format!("{name}/{database}.sql");
        Some(Application::parse(name, &text).unwrap_or_else(|error| panic!("{place}: {error}")))
    };
    folders.iter().filter_map(read).collect()
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "..", "quality", "corpus"].iter().collect()
}

impl Application {
    fn parse(name: String, text: &str) -> Result<Self, String> {
        let (head, text) = split(text, SCHEMA)?;
        let (schema, text) = split(text, ROWS)?;
        let (rows, statements) = split(text, STATEMENTS)?;
        let trusted = head.lines().filter_map(|line| line.strip_prefix(TRUSTS));
        let trusted = trusted.flat_map(|names| names.split(", ")).map(str::to_owned);
        Ok(Self {
            name,
            trusted_triggers: trusted.collect(),
            schema: schema.to_owned(),
            rows: rows.to_owned(),
            entries: entries(statements)?,
        })
    }
}

fn split<'t>(text: &'t str, mark: &str) -> Result<(&'t str, &'t str), String> {
    text.split_once(mark).ok_or_else(|| format!("no line `{}`", mark.trim()))
}
