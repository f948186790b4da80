//! Rows that foreign keys delete or change along with the rows of a DELETE or a REPLACE. They are
//! found and imaged before the statement runs, and looked at again behind it.
//!
//! The rows that are referred to are locked, which bars new rows that refer: PostgreSQL and InnoDB
//! lock them too when such a row is written, and SQLite has one writer. So what is found goes
//! along, and nothing else.

mod found;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use handfast_rm_core::plan::along::{self, AlongImage, reason};
use handfast_rm_core::plan::{
    ForeignKey, ReferentialAction, StatementRefusal, TableName, referring_sql, undo_sql,
};

pub(super) use self::found::Along;
use self::found::{Removed, Reset, limit};
use super::StatementRun;
use crate::at::database::bind::{bind_key, bind_keys, rows_max};
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable, rows};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, ImageRow, align, values_of};

/// The effect of the statement on its own rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// It deletes them.
    Deleted,
    /// It puts others in their place.
    Replaced,
}

/// Rows of `removed`: a table and a range of its rows.
type Rows = (usize, Range<usize>);

impl<DB: Backend> StatementRun<'_, DB> {
    /// Finds the rows that go along with those about to be deleted, which are locked. There must be
    /// none in the tables `read`, by their names in lower case.
    pub(super) async fn along(
        &mut self,
        own: Own,
        columns: &[usize],
        image: Image,
        read: &[String],
    ) -> Result<Along<DB>, sqlx::Error> {
        let mut along = Along::of(Arc::clone(self.loaded), columns, image);
        let mut level: Vec<Rows> = vec![(0, 0..along.own)];
        let mut levels = 0;
        while !level.is_empty() {
            let mut next = Vec::new();
            for (table, range) in level {
                let loaded = Arc::clone(&along.removed[table].loaded);
                for key in loaded.table.acting_on_delete() {
                    let found = self.referring(&along.removed[table], &range, key).await?;
                    let Some((from, named)) = found else { continue };
                    if levels == along::LEVELS_MAX {
                        return Err(limit(key, reason::TOO_MANY).into());
                    }
                    along.require_one_name(key, &from)?;
                    if read.contains(&from.table.name.to_lowercase()) {
                        return Err(limit(key, reason::READ).into());
                    }
                    let is_own = from.lock_name == self.loaded.lock_name;
                    if own == Own::Replaced && is_own {
                        return Err(limit(key, reason::REPLACED).into());
                    }
                    match key.on_delete {
                        ReferentialAction::Cascade => {
                            next.extend(self.remove_along(&mut along, key, from, named).await?);
                        }
                        ReferentialAction::Reset | ReferentialAction::Refuse => {
                            along.reset(key, from, named)?;
                        }
                    }
                    along.require_few(key)?;
                }
            }
            level = next;
            levels += 1;
        }
        self.image_resets(&mut along).await?;
        along.find_order()?;
        Ok(along)
    }

    /// Returns the table of the rows that refer to some rows along a key, and their key values.
    /// `None` if there are none.
    async fn referring(
        &mut self,
        removed: &Removed<DB>,
        range: &Range<usize>,
        key: &ForeignKey,
    ) -> Result<Option<(Arc<LoadedTable<DB>>, Vec<Vec<Value>>)>, sqlx::Error> {
        let table = &removed.loaded.table;
        require_visible(key)?;
        let name = TableName {
            schema: Some(key.referring.schema.clone()),
            name: key.referring.table.clone(),
        };
        let mut from = match self.loaded.table.is_named(&name) {
            true => Some(Arc::clone(self.loaded)),
            false => self.catalogue.known(&name),
        };
        // Without a primary key its rows cannot be asked for, only whether there are any.
        from = from.filter(|from| !from.table.key.columns.is_empty());
        let mut named = Vec::new();
        for chunk in removed.image[range.clone()].chunks(rows_max::<DB>(table.key.columns.len())) {
            if let Some(text) =
                referring_sql::lock_where_checked(DB::DIALECT, table, key, chunk.len())
            {
                self.rows_for(removed, chunk, text).await?;
            }
            if from.is_none() {
                // A table whose rows do not go along needs no description.
                let text =
                    referring_sql::referring_keys(DB::DIALECT, table, key, None, chunk.len(), 1);
                if self.rows_for(removed, chunk, text).await?.is_empty() {
                    continue;
                }
                from = Some(self.referring_table(key, &name).await?);
            }
            let Some(from) = &from else { continue };
            let limit = along::ROWS_MAX + 1;
            let text = referring_sql::referring_keys(
                DB::DIALECT,
                table,
                key,
                Some(&from.table),
                chunk.len(),
                limit,
            );
            for row in self.rows_for(removed, chunk, text).await? {
                let parts = from.table.key.columns.iter().enumerate();
                let cells = parts.map(|(at, part)| DB::value(&row, at, &from.types[*part]));
                named.push(cells.collect::<Result<Vec<Value>, sqlx::Error>>()?);
            }
        }
        Ok(from.filter(|_| !named.is_empty()).map(|from| (from, named)))
    }

    /// Loads the description of a table whose rows go along. It needs a primary key to be asked for
    /// them.
    async fn referring_table(
        &mut self,
        key: &ForeignKey,
        name: &TableName,
    ) -> Result<Arc<LoadedTable<DB>>, sqlx::Error> {
        let loaded = self.catalogue.table(self.connection, name).await?;
        if loaded.table.key.columns.is_empty() {
            along::removed(DB::DIALECT, key, &loaded.table).map_err(AtError::Refused)?;
        }
        Ok(loaded)
    }

    async fn rows_for(
        &mut self,
        removed: &Removed<DB>,
        chunk: &[ImageRow],
        text: String,
    ) -> Result<Vec<DB::Row>, sqlx::Error> {
        let mut arguments = DB::Arguments::default();
        bind_keys(&mut arguments, &removed.loaded, values_of(chunk), &removed.columns)?;
        rows::<DB>(self.connection, text, arguments).await
    }

    /// Images rows that are deleted along, and returns those of them that were not known before.
    async fn remove_along(
        &mut self,
        along: &mut Along<DB>,
        key: &ForeignKey,
        from: Arc<LoadedTable<DB>>,
        named: Vec<Vec<Value>>,
    ) -> Result<Option<Rows>, sqlx::Error> {
        let plan = along::removed(DB::DIALECT, key, &from.table).map_err(AtError::Refused)?;
        let at = along.table(&from, &plan.columns);
        let image = self.image_along(&from, &plan, &named).await?;
        let removed = &mut along.removed[at];
        let known = removed.image.len();
        for row in image {
            if removed.keys.insert(row.key.clone()) {
                removed.image.push(row);
            }
        }
        let range = known..removed.image.len();
        Ok((!range.is_empty()).then_some((at, range)))
    }

    async fn image_resets(&mut self, along: &mut Along<DB>) -> Result<(), sqlx::Error> {
        let Along { removed, reset, .. } = along;
        for reset in &mut *reset {
            let assigned: Vec<usize> = reset.assigned.iter().copied().collect();
            let plan = along::reset(DB::DIALECT, &reset.key, &reset.loaded.table, &assigned);
            let plan = plan.map_err(AtError::Refused)?;
            let image = self.image_along(&reset.loaded, &plan, &reset.named).await?;
            let removed = removed.iter().find(|other| other.is_of(&reset.loaded));
            let mut keys = HashSet::new();
            let stays = |row: &ImageRow| {
                removed.is_none_or(|removed| !removed.keys.contains(&row.key))
                    && keys.insert(row.key.clone())
            };
            reset.before = image.into_iter().filter(stays).collect();
            reset.image = Some(plan);
        }
        reset.retain(|reset| !reset.before.is_empty());
        Ok(())
    }

    /// Reads the rows of key values, and locks them.
    async fn image_along(
        &mut self,
        from: &LoadedTable<DB>,
        plan: &AlongImage,
        named: &[Vec<Value>],
    ) -> Result<Image, sqlx::Error> {
        let mut image = Image::with_capacity(named.len());
        for chunk in named.chunks(rows_max::<DB>(from.table.key.columns.len())) {
            let text = plan.query(DB::DIALECT, &from.table, chunk.len());
            let mut arguments = DB::Arguments::default();
            for values in chunk {
                bind_key(&mut arguments, from, values, &from.table.key.columns)?;
            }
            let found = rows::<DB>(self.connection, text, arguments).await?;
            image.extend(self.judge(from, &found, &plan.columns, plan.is_judged()).await?);
        }
        Ok(image)
    }

    /// Makes sure that what was found went along: that the rows are gone, or as they are now.
    /// `changed` is how many rows of its own the statement has deleted.
    pub(super) async fn went_along(
        &mut self,
        statement: &'static str,
        along: &mut Along<DB>,
        changed: Option<u64>,
    ) -> Result<(), sqlx::Error> {
        let own = along.own as u64;
        if changed.is_some_and(|changed| changed > own) {
            return Err(self.rows_differ(statement, own, changed.unwrap_or_default()).into());
        }
        // A row of the statement that has gone along with another one does not count.
        let all_own = changed == Some(own) && along.removed[0].image.len() == along.own;
        let skipped = usize::from(all_own || changed.is_none());
        for removed in along.removed.iter().skip(skipped) {
            let Removed { loaded, columns, image, .. } = removed;
            let left = self.read_along(loaded, columns, image).await?;
            if !left.is_empty() {
                return Err(not_along(loaded, image.len(), image.len() - left.len()).into());
            }
        }
        for reset in &mut along.reset {
            let Some(plan) = &reset.image else { continue };
            let after = self.read_along(&reset.loaded, &plan.columns, &reset.before).await?;
            let (imaged, found) = (reset.before.len(), after.len());
            let after = align(&reset.before, after);
            reset.after = after.ok_or_else(|| not_along(&reset.loaded, imaged, found))?;
        }
        Ok(())
    }

    async fn read_along(
        &mut self,
        loaded: &LoadedTable<DB>,
        columns: &[usize],
        image: &Image,
    ) -> Result<Image, sqlx::Error> {
        self.read_rows(loaded, image, columns, undo_sql::RowLocking::None).await
    }

    /// Records what went along; for a DELETE its own rows too.
    ///
    /// Undo runs backwards: rows come back behind those that they refer to, then the references
    /// that were set to NULL.
    pub(super) fn record_along(&mut self, along: Along<DB>, own: Own) {
        let Along { removed, reset, order, .. } = along;
        for Reset { loaded, image, before, after, .. } in reset {
            let Some(plan) = image else { continue };
            self.log.updated(&loaded, &plan.columns, &plan.maintained, before, after);
        }
        let mut removed: Vec<Option<Removed<DB>>> = removed.into_iter().map(Some).collect();
        if own == Own::Replaced {
            removed[0] = None;
        }
        for at in order.into_iter().rev() {
            if let Some(Removed { loaded, columns, image, .. }) = removed[at].take() {
                self.log.deleted(&loaded, &columns, image);
            }
        }
    }
}

/// Refuses a key along which rows cannot be looked for.
fn require_visible(key: &ForeignKey) -> Result<(), AtError> {
    let from = &key.referring;
    if from.hides_rows {
        let table = format!("{}.{}", from.schema, from.table);
        let reason = Box::new(StatementRefusal::RowSecurity { table });
        let constraint = key.name.clone();
        return Err(StatementRefusal::CascadeTo { constraint, reason }.into());
    }
    if from.columns.is_empty() || from.columns.len() != key.referenced.len() {
        return Err(limit(key, reason::UNSEEN));
    }
    Ok(())
}

/// Rows that were found did not go along, or not all of them.
fn not_along<DB: Backend>(loaded: &LoadedTable<DB>, imaged: usize, changed: usize) -> AtError {
    AtError::RowsDiffer {
        statement: "a foreign key",
        table: loaded.table.full_name(),
        imaged: imaged as u64,
        changed: changed as u64,
    }
}
