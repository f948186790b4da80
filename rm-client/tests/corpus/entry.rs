//! A statement of the corpus with its name, as its file shows it.
//!
//! ```text
//! -- takes the next number of a district
//! -- bound: 1, 'x', NULL
//! UPDATE district SET next_number = next_number + 1 WHERE id = $1;
//! ```
//!
//! A blank line ends it. The line `-- changes nothing` is needed where no row changes and none is
//! returned. A name that begins with `instead: ` marks advice: what the application
//! writes in the place of the statement before, in one local transaction.

use std::collections::BTreeSet;

const INSTEAD: &str = "instead: ";
const BOUND: &str = "bound: ";
const NOTHING: &str = "changes nothing";

/// A statement, or several that stand in the place of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Whether it stands in the place of a refused one.
    pub(crate) is_advice: bool,
    pub(crate) changes_nothing: bool,
    pub(crate) statements: Vec<String>,
    /// Arguments of the only statement.
    pub(crate) bound: Vec<Bound>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Null,
    Whole(i64),
    Text(String),
}

/// Reads the entries of a file's last section.
pub(crate) fn entries(text: &str) -> Result<Vec<Entry>, String> {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let entries: Vec<Entry> = paragraphs.map(Entry::parse).collect::<Result<_, _>>()?;
    let mut names = BTreeSet::new();
    for entry in &entries {
        if !names.insert(&entry.name) {
            return Err(format!("two statements are called `{}`", entry.name));
        }
    }
    Ok(entries)
}

impl Entry {
    fn parse(paragraph: &str) -> Result<Self, String> {
        let is_comment = |line: &&str| line.starts_with("-- ");
        let (mut name, mut bound, mut changes_nothing) = (Vec::new(), Vec::new(), false);
        for line in paragraph.lines().take_while(is_comment) {
            let comment = line.trim_start_matches("-- ");
            match comment.strip_prefix(BOUND) {
                Some(arguments) => bound = arguments_of(arguments)?,
                None if comment == NOTHING => changes_nothing = true,
                None => name.push(comment),
            }
        }
        let name = name.join(" ");
        let sql: Vec<&str> = paragraph.lines().skip_while(is_comment).collect();
        let sql = sql.join("\n");
        let statements: Vec<String> =
            sql.split_inclusive(";\n").map(|one| one.trim().to_owned()).collect();
        if name.is_empty() || statements.is_empty() {
            return Err(format!("no name or no statement:\n{paragraph}"));
        }
        if let Some(open) = statements.iter().find(|statement| !statement.ends_with(';')) {
            return Err(format!("no semicolon ends:\n{open}"));
        }
        let is_advice = name.starts_with(INSTEAD);
        if statements.len() > 1 && !is_advice {
            return Err(format!("several statements:\n{paragraph}"));
        }
        let statements = statements.iter().map(|sql| sql.trim_end_matches(';').to_owned());
        Ok(Self { name, is_advice, changes_nothing, statements: statements.collect(), bound })
    }

    /// Returns the statements as the file shows them.
    pub(crate) fn sql(&self) -> String {
        self.statements.join(";\n")
    }
}

/// Reads whole numbers, texts in quotes and NULL. No text of the corpus has a comma and a blank.
fn arguments_of(text: &str) -> Result<Vec<Bound>, String> {
    text.split(", ").map(argument).collect()
}

fn argument(text: &str) -> Result<Bound, String> {
    if text == "NULL" {
        return Ok(Bound::Null);
    }
    if let Some(quoted) = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        return Ok(Bound::Text(quoted.to_owned()));
    }
    let whole = text.parse().map_err(|_| format!("neither number nor text: {text}"))?;
    Ok(Bound::Whole(whole))
}

#[test]
fn an_entry_has_a_name_arguments_and_sql() {
    let found = entries("\n-- a name\n-- bound: 1, 'x', NULL\nDELETE FROM t\nWHERE a = $1;\n");
    let bound = vec![Bound::Whole(1), Bound::Text("x".to_owned()), Bound::Null];
    let statements = vec!["DELETE FROM t\nWHERE a = $1".to_owned()];
    let name = "a name".to_owned();
    let entry = Entry { name, is_advice: false, changes_nothing: false, statements, bound };
    assert_eq!(found, Ok(vec![entry]));
}

#[test]
fn advice_may_have_several_statements_and_others_may_not() {
    let found = entries("-- instead: one by one\nDELETE FROM a;\nDELETE FROM b;\n").unwrap();
    assert!(found[0].is_advice);
    assert_eq!(found[0].statements, ["DELETE FROM a", "DELETE FROM b"]);
    assert!(entries("-- one by one\nDELETE FROM a;\nDELETE FROM b;\n").is_err());
}

#[test]
fn two_entries_of_one_name_are_a_mistake() {
    assert!(entries("-- a\nDELETE FROM a;\n\n-- a\nDELETE FROM b;\n").is_err());
}
