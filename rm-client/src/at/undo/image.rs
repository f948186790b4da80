//! Rows as they stood at one moment, read in the layout that the planner fixes: the image columns,
//! then the text of each key part.

use std::collections::HashMap;

use handfast_rm_core::plan::row_key;

use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable};
use crate::at::error::AtError;

/// A row of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageRow {
    /// The canonical key, as the coordinator locks it.
    pub(crate) key: Box<[u8]>,
    /// One value for each image column.
    pub(crate) values: Vec<Value>,
}

/// Rows of one table, by canonical key where order matters not.
pub(crate) type Image = Vec<ImageRow>;

/// Some columns of a row as one text, `columns` being those of the image; `None` if one of them is
/// NULL or not among these.
pub(crate) fn part(columns: &[usize], row: &[Value], part: &[usize]) -> Option<String> {
    let value = |column: &usize| {
        let at = columns.iter().position(|known| known == column)?;
        Some(&row[at]).filter(|value| !value.is_null())
    };
    serde_json::to_string(&part.iter().map(value).collect::<Option<Vec<_>>>()?).ok()
}

/// How image rows lie in the rows of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout<'p> {
    /// The image columns, as indexes into the table's.
    pub(crate) columns: &'p [usize],
    /// How many further columns of ours stand behind the key texts.
    pub(crate) behind: usize,
}

impl<'p> Layout<'p> {
    /// Nothing behind the key texts.
    pub(crate) fn of(columns: &'p [usize]) -> Self {
        Self { columns, behind: 0 }
    }

    /// Reads one row. The application's own columns, if any, come first and are skipped.
    pub(crate) fn row<DB: Backend>(
        self,
        loaded: &LoadedTable<DB>,
        row: &DB::Row,
    ) -> Result<ImageRow, sqlx::Error> {
        let key_parts = loaded.table.key_width();
        let ours = self.columns.len() + key_parts + self.behind;
        let start = DB::width(row)
            .checked_sub(ours)
            .ok_or(sqlx::Error::ColumnIndexOutOfBounds { index: ours, len: DB::width(row) })?;
        let values = self.values(loaded, row, start)?;
        let texts = start + self.columns.len();
        let key = key_of::<DB>(&loaded.table.full_name(), row, texts..texts + key_parts)?;
        Ok(ImageRow { key, values })
    }

    pub(crate) fn values<DB: Backend>(
        self,
        loaded: &LoadedTable<DB>,
        row: &DB::Row,
        start: usize,
    ) -> Result<Vec<Value>, sqlx::Error> {
        let mut values = Vec::with_capacity(self.columns.len());
        for (offset, column) in self.columns.iter().enumerate() {
            let name = &loaded.table.columns[*column].name;
            let value = DB::value(row, start + offset, &loaded.types[*column]);
            values.push(value.map_err(|error| not_exact(name, &error))?);
        }
        Ok(values)
    }

    /// Reads every row of a change that keeps keys and shows, behind the key texts, the image
    /// columns as they were: the images before and after, row by row.
    pub(crate) fn rows_twice<'r, DB: Backend>(
        self,
        loaded: &LoadedTable<DB>,
        rows: impl Iterator<Item = &'r DB::Row>,
    ) -> Result<(Image, Image), sqlx::Error> {
        let width = self.columns.len();
        let now = Self { behind: width, ..self };
        let mut images = (Image::new(), Image::new());
        for row in rows {
            let after = now.row(loaded, row)?;
            let values = self.values(loaded, row, DB::width(row) - width)?;
            images.0.push(ImageRow { key: after.key.clone(), values });
            images.1.push(after);
        }
        Ok(images)
    }

    /// Reads every row.
    pub(crate) fn rows<'r, DB: Backend>(
        self,
        loaded: &LoadedTable<DB>,
        rows: impl IntoIterator<Item = &'r DB::Row>,
    ) -> Result<Image, sqlx::Error> {
        rows.into_iter().map(|row| self.row(loaded, row)).collect()
    }
}

/// Returns the values of each row.
pub(crate) fn values_of(rows: &[ImageRow]) -> impl Iterator<Item = &Vec<Value>> {
    rows.iter().map(|row| &row.values)
}

/// The canonical key from the key texts in a range of a row's columns.
pub(crate) fn key_of<DB: Backend>(
    table: &str,
    row: &DB::Row,
    texts: std::ops::Range<usize>,
) -> Result<Box<[u8]>, sqlx::Error> {
    let mut parts = Vec::with_capacity(texts.len());
    for index in texts {
        let part = DB::text(row, index)?;
        parts.push(part.ok_or_else(|| AtError::KeyNull { table: table.to_owned() })?);
    }
    Ok(row_key(&parts))
}

/// Puts the rows of `after` in the order of `before`. `None`: they are not the same rows.
pub(crate) fn align(before: &Image, after: Image) -> Option<Image> {
    let mut by_key = by_key(after);
    let aligned: Option<Image> = before.iter().map(|row| by_key.remove(&row.key)).collect();
    aligned.filter(|_| by_key.is_empty())
}

/// Rows by canonical key; of rows read twice one is kept.
pub(crate) fn by_key(image: Image) -> HashMap<Box<[u8]>, ImageRow> {
    image.into_iter().map(|row| (row.key.clone(), row)).collect()
}

fn not_exact(column: &str, error: &sqlx::Error) -> AtError {
    AtError::Value { column: column.to_owned(), reason: error.to_string() }
}
