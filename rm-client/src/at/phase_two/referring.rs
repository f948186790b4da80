//! Looks, before the undo of an INSERT deletes its rows, for rows that refer to them along a
//! foreign key with CASCADE, SET NULL or SET DEFAULT. The DELETE would silently change or delete
//! those rows, and others wrote them: what the same global wrote later has been undone before.
//!
//! The rows about to go are locked by then, and each database checks those locks when a row that
//! refers to them is written. So such a row is seen here, or its writer waits and then finds
//! nothing to refer to.

use std::collections::{BTreeSet, HashMap};

use handfast_proto::v1::{DirtyColumn, DirtyRow};
use handfast_rm_core::plan::{ForeignKey, TableName, referring_sql as sql};

use super::dirty_row;
use super::obstacle::Obstacle;
use crate::at::database::bind::{bind_key, rows_max};
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable, Purpose, rows};
use crate::at::error::AtError;

/// How many rows that refer to others are described.
const SHOWN_MAX: usize = dirty_row::ROWS_MAX / 2;

/// Rows that may not be deleted, and rows that refer to them.
#[derive(Debug)]
pub(crate) struct Referred {
    /// The indexes of the rows asked about, in order.
    pub(crate) rows: Vec<usize>,
    /// Some of those that refer to them.
    pub(crate) by: Vec<DirtyRow>,
    /// The foreign key.
    pub(crate) key: String,
}

impl Referred {
    /// Returns the reason as operators see it.
    pub(crate) fn reason(&self, table: &str, of: usize) -> String {
        let by = self.by.first().map(|row| format!("{} ({})", row.table, row.key));
        format!(
            "{} of {of} rows of {table} cannot be deleted without taking rows of others along: {} \
             refers to them by foreign key {}",
            self.rows.len(),
            by.as_deref().unwrap_or("a row"),
            self.key
        )
    }
}

/// The rows that an undo is about to delete.
pub(crate) struct RowsToDelete<'r, DB: Backend> {
    pub(crate) connection: &'r mut DB::Connection,
    pub(crate) loaded: &'r LoadedTable<DB>,
    /// The columns of each row, as indexes into the table's.
    pub(crate) columns: &'r [usize],
    pub(crate) rows: Vec<&'r Vec<Value>>,
}

impl<DB: Backend> RowsToDelete<'_, DB> {
    /// Returns the rows that others refer to, along the first foreign key that has such rows.
    pub(crate) async fn referred(mut self) -> Result<Option<Referred>, Obstacle> {
        let loaded = self.loaded;
        if self.rows.is_empty() {
            return Ok(None);
        }
        // One argument is the limit.
        let chunk = rows_max::<DB>(loaded.table.key.columns.len() + 1);
        for key in loaded.table.acting_on_delete() {
            require_visible(loaded, key)?;
            for start in (0..self.rows.len()).step_by(chunk) {
                let range = start..self.rows.len().min(start + chunk);
                // Before the look: from here on no other transaction can add a row that refers.
                self.lock_where_checked(key, &range).await?;
                let found = match key.referring.own {
                    true => self.by_own(key, &range).await?,
                    false => self.by_others(key, &range).await?,
                };
                if found.is_some() {
                    return Ok(found);
                }
            }
        }
        Ok(None)
    }

    async fn lock_where_checked(
        &mut self,
        key: &ForeignKey,
        range: &Chunk,
    ) -> Result<(), Obstacle> {
        let table = &self.loaded.table;
        let Some(text) = sql::lock_where_checked(DB::DIALECT, table, key, range.len()) else {
            return Ok(());
        };
        let arguments = self.keys(range)?;
        rows::<DB>(self.connection, text, arguments).await?;
        Ok(())
    }

    async fn by_others(
        &mut self,
        key: &ForeignKey,
        range: &Chunk,
    ) -> Result<Option<Referred>, Obstacle> {
        let text = sql::referred(DB::DIALECT, &self.loaded.table, key, range.len());
        let arguments = self.keys(range)?;
        let found = rows::<DB>(self.connection, text, arguments).await;
        let found = found.map_err(|error| untold(self.loaded, key, error))?;
        if found.is_empty() {
            return Ok(None);
        }
        let keys = found.iter().map(|row| self.key_in(row, 0)).collect::<Result<Vec<_>, _>>()?;
        let rows = kept(&self.by_name(), &keys, range);
        let by = self.describe(key, range).await?;
        Ok(Some(Referred { rows, by, key: key.name.clone() }))
    }

    /// Finds references within the table. Those from rows that are deleted as well do not count.
    async fn by_own(
        &mut self,
        key: &ForeignKey,
        range: &Chunk,
    ) -> Result<Option<Referred>, Obstacle> {
        let table = &self.loaded.table;
        let text = sql::referred_by_own(DB::DIALECT, table, key, range.len());
        let mut arguments = self.keys(range)?;
        // Each deleted row refers to at most one, so any pair beyond that is of a row that stays.
        let wanted = self.rows.len() + SHOWN_MAX;
        DB::bind_number(&mut arguments, i64::try_from(wanted).unwrap_or(i64::MAX));
        let found = rows::<DB>(self.connection, text, arguments).await?;
        let named = self.by_name();
        let (mut keys, mut by) = (Vec::new(), Vec::new());
        for row in &found {
            let referring = self.key_in(row, table.key.columns.len())?;
            if named.contains_key(&name(referring.iter())) {
                continue;
            }
            keys.push(self.key_in(row, 0)?);
            if by.len() < SHOWN_MAX {
                by.push(self.describe_own(&referring).await);
            }
        }
        let rows = kept(&named, &keys, range);
        Ok((!keys.is_empty()).then(|| Referred { rows, by, key: key.name.clone() }))
    }

    /// Those that refer to rows, by their primary key and with the columns that refer.
    async fn describe(
        &mut self,
        key: &ForeignKey,
        range: &Chunk,
    ) -> Result<Vec<DirtyRow>, Obstacle> {
        let from = &key.referring;
        let name = TableName { schema: Some(from.schema.clone()), name: from.table.clone() };
        let loaded = DB::load_table(self.connection, &name, Purpose::Restoring).await?;
        let Some(loaded) = loaded else {
            return Err(AtError::UnknownTable { table: name.to_string() }.into());
        };
        let table = &loaded.table;
        let named = table.key.columns.iter().map(|part| &table.columns[*part].name);
        let columns: Vec<String> = named.chain(&from.columns).cloned().collect();
        let text = sql::referring_rows(
            DB::DIALECT,
            &self.loaded.table,
            key,
            &columns,
            range.len(),
            SHOWN_MAX,
        );
        let arguments = self.keys(range)?;
        let found = rows::<DB>(self.connection, text, arguments).await;
        let found = found.map_err(|error| untold(self.loaded, key, error))?;
        if found.is_empty() {
            let gone = format!("rows of {name} that refer to rows to be deleted have just gone");
            return Err(Obstacle::Database(sqlx::Error::Protocol(gone)));
        }
        let shown = found.iter().map(|row| shown::<DB>(row, &loaded, &from.columns));
        Ok(shown.collect::<Result<_, _>>()?)
    }

    async fn describe_own(&mut self, key: &[Value]) -> DirtyRow {
        let table = &self.loaded.table;
        let mut parts = Vec::new();
        for (part, value) in table.key.columns.iter().zip(key) {
            parts.extend(dirty_row::text(self.connection, self.loaded, *part, Some(value)).await);
        }
        let (table, key) = (table.full_name(), parts.join(", "));
        DirtyRow { table, key, ..DirtyRow::default() }
    }

    fn keys(&self, range: &Chunk) -> Result<DB::Arguments, AtError> {
        let mut arguments = DB::Arguments::default();
        for row in &self.rows[range.clone()] {
            bind_key(&mut arguments, self.loaded, row, self.columns)?;
        }
        Ok(arguments)
    }

    /// The index of each row by its key.
    fn by_name(&self) -> HashMap<String, usize> {
        let key = &self.loaded.table.key.columns;
        let place = |part: &usize| self.columns.iter().position(|column| column == part);
        let places: Vec<usize> = key.iter().filter_map(place).collect();
        let rows = self.rows.iter().enumerate();
        rows.map(|(index, row)| (name(places.iter().map(|at| &row[*at])), index)).collect()
    }

    /// The key that a row of an answer holds from a column on.
    fn key_in(&self, row: &DB::Row, first: usize) -> Result<Vec<Value>, sqlx::Error> {
        let parts = self.loaded.table.key.columns.iter().enumerate();
        parts.map(|(at, part)| DB::value(row, first + at, &self.loaded.types[*part])).collect()
    }
}

/// Some of the rows, by their indexes.
type Chunk = std::ops::Range<usize>;

/// The rows of these keys, in order. Where the database shows a key in another way than the undo
/// log does, none of the rows asked about may go.
fn kept(named: &HashMap<String, usize>, keys: &[Vec<Value>], range: &Chunk) -> Vec<usize> {
    let rows = keys.iter().map(|key| named.get(&name(key.iter())).copied());
    match rows.collect::<Option<BTreeSet<usize>>>() {
        Some(rows) => rows.into_iter().collect(),
        None => range.clone().collect(),
    }
}

/// Key values as one text.
fn name<'v>(values: impl Iterator<Item = &'v Value>) -> String {
    let values: Vec<&Value> = values.collect();
    serde_json::to_string(&values).expect("key values have a JSON form: they came from one")
}

/// Refuses the undo where rows that refer cannot be seen.
fn require_visible<DB: Backend>(
    loaded: &LoadedTable<DB>,
    key: &ForeignKey,
) -> Result<(), Obstacle> {
    let (from, table) = (&key.referring, loaded.table.full_name());
    let referring = format!("{}.{}", from.schema, from.table);
    if from.hides_rows {
        return Err(Obstacle::refused(format!(
            "rows of {referring} may refer to rows of {table} that are to be deleted, and its \
             row-level security hides them"
        )));
    }
    if from.columns.is_empty() || from.columns.len() != key.referenced.len() {
        return Err(Obstacle::refused(format!(
            "foreign key {} of {referring} does not fit the columns of {table}",
            key.name
        )));
    }
    Ok(())
}

/// Converts an error of the search. If repeating it would not help, adds what was searched for.
fn untold<DB: Backend>(loaded: &LoadedTable<DB>, key: &ForeignKey, error: sqlx::Error) -> Obstacle {
    match Obstacle::from(error) {
        Obstacle::Refused { error, rows } => {
            let (from, table) = (&key.referring, loaded.table.full_name());
            let (schema, name) = (&from.schema, &from.table);
            let error = format!(
                "whether rows of {schema}.{name} refer to rows of {table} that are to be deleted \
                 cannot be told: {error}"
            );
            Obstacle::Refused { error, rows }
        }
        passing @ Obstacle::Database(_) => passing,
    }
}

/// A row that refers to others. It is none of the branch's: there is no before and no after.
fn shown<DB: Backend>(
    row: &DB::Row,
    loaded: &LoadedTable<DB>,
    columns: &[String],
) -> Result<DirtyRow, sqlx::Error> {
    let width = loaded.table.key.columns.len();
    let text = |at| {
        let text = DB::text(row, at)?;
        let cut = |text: String| text.chars().take(dirty_row::CHARS_MAX).collect::<String>();
        Ok(text.map(cut))
    };
    let parts = (0..width).map(text).collect::<Result<Vec<_>, sqlx::Error>>()?;
    let key = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let column = |(at, name): (usize, &String)| {
        let current = text(width + at)?;
        Ok(DirtyColumn { name: name.clone(), before: None, after: None, current })
    };
    let columns = columns.iter().enumerate().map(column).collect::<Result<_, sqlx::Error>>()?;
    Ok(DirtyRow { table: loaded.table.full_name(), key, columns, ..DirtyRow::default() })
}
