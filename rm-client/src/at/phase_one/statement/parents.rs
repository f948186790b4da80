//! Shared global locks on the rows that written rows refer to.
//!
//! Without them a row could refer to one that another global has inserted and may still take back:
//! its rollback would find a row in its way that is none of its own.

use std::collections::BTreeSet;

use handfast_rm_core::plan::parent_key::{self, PlainPart};
use handfast_rm_core::plan::{Reference, StatementRefusal, TableName, row_key};

use super::StatementRun;
use crate::at::database::bind::{bind_keys, rows_max};
use crate::at::database::value::{Value, to_hex};
use crate::at::database::{Backend, LoadedTable, rows};
use crate::at::error::AtError;
use crate::at::phase_one::row_locks::RowLockMode;
use crate::at::undo::image::{Image, ImageRow, key_of};

impl<DB: Backend> StatementRun<'_, DB> {
    /// Notes the rows that some rows refer to, as these are now. Of a foreign key that is not in
    /// the image, in whole or in part, the database is asked if one of its columns is.
    pub(super) async fn lock_parents<'i>(
        &mut self,
        columns: &[usize],
        referring: impl Iterator<Item = &'i ImageRow> + Clone + Send,
    ) -> Result<(), sqlx::Error> {
        let loaded = self.loaded;
        for reference in &loaded.table.references {
            if !reference.columns.iter().any(|column| columns.contains(column)) {
                continue;
            }
            let rows: Vec<&ImageRow> =
                referring.clone().filter(|row| may_refer(reference, columns, row)).collect();
            if !rows.is_empty() {
                self.lock_parents_by(reference, columns, &rows).await?;
            }
        }
        Ok(())
    }

    /// The same for rows that were changed: a reference that stays was noted when it was made.
    pub(super) async fn lock_changed_parents(
        &mut self,
        columns: &[usize],
        before: &Image,
        after: &Image,
    ) -> Result<(), sqlx::Error> {
        let loaded = self.loaded;
        for reference in &loaded.table.references {
            let places: Vec<usize> =
                (0..columns.len()).filter(|at| reference.columns.contains(&columns[*at])).collect();
            let changed = before
                .iter()
                .zip(after)
                .filter(|(old, new)| places.iter().any(|at| old.values[*at] != new.values[*at]));
            let rows: Vec<&ImageRow> = changed
                .map(|(_, new)| new)
                .filter(|row| may_refer(reference, columns, row))
                .collect();
            if !rows.is_empty() {
                self.lock_parents_by(reference, columns, &rows).await?;
            }
        }
        Ok(())
    }

    async fn lock_parents_by(
        &mut self,
        reference: &Reference,
        columns: &[usize],
        referring: &[&ImageRow],
    ) -> Result<(), sqlx::Error> {
        let name =
            TableName { schema: Some(reference.schema.clone()), name: reference.table.clone() };
        let Some(parent) = self.catalogue.parent(self.connection, &name).await? else {
            return Ok(());
        };
        if parent.table.key.columns.is_empty() {
            return Ok(());
        }
        let plain =
            parent_key::plain_parts(DB::DIALECT, &self.loaded.table, reference, &parent.table);
        let (mut keys, mut asked) = (BTreeSet::new(), Vec::new());
        for row in referring {
            match plain.as_ref().and_then(|parts| plain_key(parts, columns, row)) {
                Some(key) => {
                    keys.insert(key);
                }
                None => asked.push(*row),
            }
        }
        keys.extend(self.ask_parents(reference, &parent, columns, &asked).await?);
        self.log.lock(&parent, RowLockMode::Shared, keys);
        Ok(())
    }

    async fn ask_parents(
        &mut self,
        reference: &Reference,
        parent: &LoadedTable<DB>,
        columns: &[usize],
        referring: &[&ImageRow],
    ) -> Result<Vec<Box<[u8]>>, sqlx::Error> {
        let (table, parts) = (&self.loaded.table, parent.table.key.columns.len());
        if table.whole_rows && !referring.is_empty() {
            let table = table.full_name();
            return Err(AtError::Refused(StatementRefusal::NoPrimaryKey { table }).into());
        }
        let mut keys = Vec::new();
        for chunk in referring.chunks(rows_max::<DB>(table.key.columns.len())) {
            let text = parent_key::query(DB::DIALECT, table, reference, &parent.table, chunk.len());
            let mut arguments = DB::Arguments::default();
            let values = chunk.iter().map(|row| &row.values);
            bind_keys(&mut arguments, self.loaded, values, columns)?;
            for row in rows::<DB>(self.connection, text, arguments).await? {
                keys.push(key_of::<DB>(&parent.table.full_name(), &row, 0..parts)?);
            }
        }
        Ok(keys)
    }
}

/// Whether a row refers to any: not if a part of the reference is NULL.
fn may_refer(reference: &Reference, columns: &[usize], row: &ImageRow) -> bool {
    let is_null = |column: &usize| {
        let at = columns.iter().position(|known| known == column);
        at.is_some_and(|at| row.values[at].is_null())
    };
    !reference.columns.iter().any(is_null)
}

/// The key of the row referred to, if its text is known from the values that refer.
fn plain_key(parts: &[(usize, PlainPart)], columns: &[usize], row: &ImageRow) -> Option<Box<[u8]>> {
    let text = |(column, part): &(usize, PlainPart)| {
        let at = columns.iter().position(|known| known == column)?;
        match (part, &row.values[at]) {
            (PlainPart::Whole, Value::Integer(number)) => Some(number.to_string()),
            (PlainPart::Text, Value::Text(text)) => Some(text.clone()),
            (PlainPart::Uuid, Value::Bytes(bytes)) => uuid(bytes),
            (PlainPart::Whole | PlainPart::Text | PlainPart::Uuid, _) => None,
        }
    };
    let texts: Option<Vec<String>> = parts.iter().map(text).collect();
    texts.map(|texts| row_key(&texts))
}

/// A UUID as PostgreSQL prints it.
fn uuid(bytes: &[u8]) -> Option<String> {
    let digits = Some(to_hex(bytes)).filter(|digits| digits.len() == 32)?;
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]);
    Some(groups.join("-"))
}
