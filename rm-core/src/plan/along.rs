//! Rows that foreign keys delete or change along with rows that are deleted: how they are imaged,
//! and in which order they can be put back.
//!
//! Which rows these are is found level by level with [`super::referring_sql`], before the
//! statement runs.

use super::{
    Dialect, ForeignKey, StatementRefusal, Table, constraint,
    guard::{self, Event},
    image, keyed, quote, undo_sql, update,
};

/// How many rows may go along with those of one statement. A coordinator takes 10,000 locks of a
/// branch by default, and the other rows of the branch need some too.
pub const ROWS_MAX: usize = 5_000;

/// How many foreign keys may lie between a row of the statement and one that goes along with it.
pub const LEVELS_MAX: usize = 32;

/// The image of the rows that go along in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlongImage {
    /// The image columns, in table order.
    pub columns: Vec<usize>,
    /// As of [`super::Update::maintained`].
    pub maintained: Vec<usize>,
    verdict: String,
}

/// Plans the image of rows that are deleted along by a foreign key.
///
/// # Errors
/// If the deletion could not be undone.
pub fn removed(
    dialect: Dialect,
    key: &ForeignKey,
    table: &Table,
) -> Result<AlongImage, StatementRefusal> {
    let writable = guard::writable_along(dialect, table, Event::Delete);
    writable.map_err(|refusal| cannot_go_along(key, refusal))?;
    let verdict = verdict(dialect, table, &constraint::of_whole_rows(table));
    Ok(AlongImage { columns: table.imaged(), maintained: Vec::new(), verdict })
}

/// Plans the image of rows of which foreign keys set some columns to NULL or their default.
///
/// # Errors
/// If the change could not be undone, or would change further rows along.
pub fn reset(
    dialect: Dialect,
    key: &ForeignKey,
    table: &Table,
    columns: &[usize],
) -> Result<AlongImage, StatementRefusal> {
    let writable = guard::writable_along(dialect, table, Event::Update);
    writable
        .and_then(|()| guard::keeps_keys(table, columns, reason::KEY))
        .and_then(|()| guard::assignable(table, columns))
        .map_err(|refusal| cannot_go_along(key, refusal))?;
    let maintained = update::maintained(table, columns);
    let constraints = constraint::of_update(table, &[columns, &maintained].concat());
    let verdict = verdict(dialect, table, &constraints);
    let columns = update::image_columns(table, columns, &maintained);
    Ok(AlongImage { columns, maintained, verdict })
}

fn cannot_go_along(key: &ForeignKey, refusal: StatementRefusal) -> StatementRefusal {
    StatementRefusal::CascadeTo { constraint: key.name.clone(), reason: Box::new(refusal) }
}

fn verdict(dialect: Dialect, table: &Table, constraints: &[&constraint::Constraint]) -> String {
    let row = quote::identifier(dialect, &table.name);
    constraint::verdict(dialect, table, &row, constraints)
}

impl AlongImage {
    /// As of [`super::Update::judged`].
    #[must_use]
    pub fn is_judged(&self) -> bool {
        !self.verdict.is_empty()
    }

    /// Reads rows by key, and locks them: the columns and the key texts, as every image, and the
    /// verdict if they are judged. Binds the key cells of each row in key order.
    #[must_use]
    pub fn query(&self, dialect: Dialect, table: &Table, rows: usize) -> String {
        let key: Vec<String> = table
            .key
            .columns
            .iter()
            .map(|&column| quote::identifier(dialect, &table.columns[column].name))
            .collect();
        format!(
            "SELECT {}{} FROM {} WHERE {}{}{}",
            image::select_list(dialect, table, &self.columns),
            self.verdict,
            quote::rows(dialect, table),
            keyed::predicate(dialect, &key, rows, 0),
            image::RowLock::Update.clause(dialect),
            image::mark("", table)
        )
    }
}

/// Returns an order in which the rows of these tables can be put back, one table after the other:
/// each behind those that it refers to. `refers` tells whether rows of the first table refer along
/// a key to the second, of which it is one. `None` if the tables refer to each other in a circle.
pub fn parents_first(
    tables: &[&Table],
    refers: impl Fn(usize, &ForeignKey) -> bool,
) -> Option<Vec<usize>> {
    let refers_to = |from: usize, to: usize| {
        let is_from = |key: &&ForeignKey| {
            key.referring.schema == tables[from].schema && key.referring.table == tables[from].name
        };
        from != to && tables[to].referenced_by.iter().filter(is_from).any(|key| refers(from, key))
    };
    let all = 0..tables.len();
    let ahead: Vec<Vec<usize>> =
        all.clone().map(|from| all.clone().filter(|to| refers_to(from, *to)).collect()).collect();
    (!undo_sql::is_circular(&ahead)).then(|| undo_sql::after_their_own(&ahead))
}

/// Why rows that go along cannot be put back, and what to do: the reason of a
/// [`StatementRefusal::CascadeLimit`].
pub mod reason {
    /// Beyond [`ROWS_MAX`](super::ROWS_MAX) or [`LEVELS_MAX`](super::LEVELS_MAX).
    pub const TOO_MANY: &str = "these are more than 5,000, or more than 32 keys away: delete the \
                                rows that refer first";

    /// [`parents_first`](super::parents_first) finds no order.
    pub const CIRCULAR: &str = "these refer to each other in a circle, so that none could be put \
                                back first: set the references of the circle to NULL first";

    /// A REPLACE of a row that rows of its own table refer to.
    pub const REPLACED: &str = "some of these are in the table of the REPLACE itself: change the \
                                row by an UPDATE, or delete it and insert it again";

    /// SQLite: a REPLACE into a table that refers to itself by SET NULL.
    pub const UNCHECKED: &str = "SQLite does not check what a row refers to that a REPLACE puts \
                                 into a table with such a key to itself: use ON CONFLICT DO UPDATE";

    /// The catalogue does not show which rows refer.
    pub const UNSEEN: &str = "the columns of the key are not to be seen, or do not fit: grant this \
                              account a right on the table that refers, beyond SELECT";

    /// MySQL: a DELETE whose condition reads rows that go along with those that it deletes first.
    pub const READ: &str = "the condition reads the table of these, so that the order in which rows \
                            are deleted decides which are: read the keys first, and delete by them";

    /// A DELETE of rows of several tables.
    pub const SEVERAL_TABLES: &str = "a DELETE of rows of several tables does not image them: write \
                                      one DELETE a table";

    /// A part of the key would be set to NULL or its default: the reason of a
    /// [`KeyChanged`](super::StatementRefusal::KeyChanged).
    pub const KEY: &str = "by a foreign key with SET NULL or SET DEFAULT: delete the rows that \
                           refer first, and insert them under their other key";

    /// Rows of one table would go along under several of its names.
    pub const SEVERAL_NAMES: &str = "these are in one table under several names, such as a \
                                     partition's: delete the rows that refer first";
}
