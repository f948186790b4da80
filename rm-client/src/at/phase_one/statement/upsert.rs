//! INSERT that may meet rows: probes for them before, and tells afterwards which rows were
//! inserted, changed and removed.

use std::collections::{HashMap, HashSet};

use handfast_rm_core::plan::{
    InsertedMark, Query, StatementRefusal, Upsert, UpsertAfter, UpsertKind, undo_sql,
};

use super::along::{Along, Own};
use super::{StatementRun, changed, for_application, rows_of};
use crate::at::database::bind::{bind_keys, rows_max};
use crate::at::database::{Backend, Steps, rows};
use crate::at::error::AtError;
use crate::at::phase_one::branch_log::maintained;
use crate::at::undo::image::{Image, ImageRow, Layout, by_key, part, values_of};

/// Rows by canonical key.
type Rows = HashMap<Box<[u8]>, ImageRow>;

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn upsert(&mut self, plan: &Upsert) -> Result<Steps<DB>, sqlx::Error> {
        if plan.needs_gap_locks {
            self.require_gap_locks().await?;
        }
        let before = self.probe(plan).await?;
        let mut along = self.replaced_along(plan, &before).await?;
        let steps = self.change(&plan.change).await?;
        if let Some(along) = &mut along {
            self.went_along("REPLACE", along, None).await?;
        }
        let (after, moved) = self.rows_after(plan, &before, &steps).await?;
        let gone = self.gone(plan, &before, moved).await?;
        let fresh = after.iter().filter(|(key, _)| !before.contains_key(*key));
        self.require_deletable(&plan.columns, fresh.map(|(_, row)| row))?;
        self.lock_upserted_parents(plan, &before, &after).await?;
        // Undone behind the rows that they refer to.
        if let Some(along) = along {
            self.record_along(along, Own::Replaced);
        }
        self.record_upsert(plan, before, after, &gone)?;
        self.recorded();
        Ok(for_application::<DB>(steps, plan.user_returning))
    }

    /// Finds what foreign keys delete or change along with the rows that a REPLACE removes.
    async fn replaced_along(
        &mut self,
        plan: &Upsert,
        before: &Rows,
    ) -> Result<Option<Along<DB>>, sqlx::Error> {
        if !plan.acts || before.is_empty() {
            return Ok(None);
        }
        let replaced = before.values().cloned().collect();
        Ok(Some(self.along(Own::Replaced, &plan.columns, replaced, &[]).await?))
    }

    async fn lock_upserted_parents(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        after: &Rows,
    ) -> Result<(), sqlx::Error> {
        let fresh = after.values().filter(|row| !before.contains_key(&row.key));
        self.lock_parents(&plan.columns, fresh).await?;
        let met =
            before.iter().filter_map(|(key, old)| Some((old.clone(), after.get(key)?.clone())));
        let (old, new): (Image, Image) = met.unzip();
        self.lock_changed_parents(&plan.columns, &old, &new).await
    }

    /// Rows that the statement could meet, locked. On MySQL the gaps where there are none are
    /// locked too, so that no other transaction can put one there.
    async fn probe(&mut self, plan: &Upsert) -> Result<Rows, sqlx::Error> {
        let mut found = Rows::new();
        for probe in &plan.probes {
            let read = self.read_before(probe, &plan.columns, plan.judged).await?;
            found.extend(by_key(read));
        }
        Ok(found)
    }

    /// The same reads after the change. Their verdict counts only before it: a row that breaks a
    /// constraint as it is now was offered so.
    async fn probe_again(&mut self, plan: &Upsert) -> Result<Rows, sqlx::Error> {
        let layout = Layout { columns: &plan.columns, behind: usize::from(plan.judged) };
        let mut found = Rows::new();
        for probe in &plan.probes {
            let steps = self.answer(probe).await?;
            found.extend(by_key(layout.rows(self.loaded, rows_of::<DB>(&steps))?));
        }
        Ok(found)
    }

    /// The keys of the rows that the update part has given another one: `moved` of those that were
    /// found before are not there any more.
    async fn gone(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        moved: usize,
    ) -> Result<HashSet<Box<[u8]>>, sqlx::Error> {
        if moved == 0 {
            return Ok(HashSet::new());
        }
        let probed: Image = before.values().cloned().collect();
        let there = by_key(self.read_again(&probed, &plan.columns).await?);
        let mut gone: HashSet<Box<[u8]>> = before.keys().cloned().collect();
        gone.retain(|key| !there.contains_key(key));
        if gone.len() == moved {
            return Ok(gone);
        }
        // A row that no probe found and that was there all the same: another transaction put it
        // there in between, and its before image is lost.
        Err(self.rows_differ("upsert", gone.len() as u64, moved as u64).into())
    }

    /// The rows that the statement inserted or may have changed, as they are after it, and how many
    /// of them it has given another key.
    async fn rows_after(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        steps: &Steps<DB>,
    ) -> Result<(Rows, usize), sqlx::Error> {
        match &plan.after {
            UpsertAfter::Returned { mark, may_be_gone } => {
                let (returned, moved) = self.returned_rows(plan, before, steps, *mark).await?;
                let returned = returned.into_values().collect();
                let after = match may_be_gone {
                    true => self.read_again(&returned, &plan.columns).await?,
                    false => self.settled(returned, &plan.columns).await?,
                };
                Ok((by_key(after), moved))
            }
            UpsertAfter::Probed { generated, found, may_hide } => {
                self.require_found(plan, before, steps)?;
                let mut after = self.probe_again(plan).await?;
                // The statement may have changed the unique values by which a row was probed. Its
                // key still finds it.
                let probed: Image = before.values().cloned().collect();
                after.extend(by_key(self.read_again(&probed, &plan.columns).await?));
                if let Some(keys) = generated
                    && after.is_empty()
                {
                    after = by_key(self.read_generated(keys, steps, &plan.columns).await?);
                }
                self.require_kept(plan, before, &after)?;
                let missing = self.missing(plan, before, &after, steps);
                let in_doubt = missing.is_some() || *may_hide;
                if in_doubt && !self.all_found(found, plan.rows).await? {
                    return Err(missing.unwrap_or_else(|| self.hidden()).into());
                }
                Ok((after, 0))
            }
        }
    }

    /// The rows that the statement returned, and how many of them it has given another key.
    async fn returned_rows(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        steps: &Steps<DB>,
        mark: InsertedMark,
    ) -> Result<(Rows, usize), sqlx::Error> {
        let flagged = mark == InsertedMark::Returned;
        let layout = Layout { columns: &plan.columns, behind: usize::from(flagged) };
        let (mut after, mut inserted) = (Rows::new(), HashSet::new());
        // SQLite returns a row again for each further one offered that meets it.
        let mut returned = 0;
        for row in rows_of::<DB>(steps) {
            returned += 1;
            let image = layout.row(self.loaded, row)?;
            if flagged && DB::flag(row, DB::width(row) - 1)? {
                inserted.insert(image.key.clone());
            }
            after.insert(image.key.clone(), image);
        }
        let changed = changed::<DB>(steps, plan.user_returning);
        if returned < changed {
            return Err(self.rows_differ("upsert", returned, changed).into());
        }
        match mark {
            InsertedMark::None => return Ok((after, 0)),
            InsertedMark::Returned => {}
            InsertedMark::Read => inserted = self.read_inserted(plan, before, &after).await?,
        }
        let moved = self.moved(plan, before, &after, &inserted)?;
        Ok((after, moved))
    }

    /// The keys of the rows that were inserted, from a read behind the statement. Rows that were
    /// found before are not asked for: they are locked, so that under the same key there is another
    /// row only if the statement has given one another key, which [`Self::gone`] notices.
    async fn read_inserted(
        &mut self,
        plan: &Upsert,
        before: &Rows,
        after: &Rows,
    ) -> Result<HashSet<Box<[u8]>>, sqlx::Error> {
        let fresh = after.values().filter(|row| !before.contains_key(&row.key));
        let asked: Image = fresh.cloned().collect();
        let mut inserted = HashSet::new();
        let table = &self.loaded.table;
        for chunk in asked.chunks(rows_max::<DB>(table.key.columns.len())) {
            let text = undo_sql::select_inserted(table, chunk.len());
            let mut arguments = DB::Arguments::default();
            bind_keys(&mut arguments, self.loaded, values_of(chunk), &plan.columns)?;
            for row in rows::<DB>(self.connection, text, arguments).await? {
                if DB::flag(&row, DB::width(&row) - 1)? {
                    let keys = Layout { columns: &[], behind: 1 };
                    inserted.insert(keys.row(self.loaded, &row)?.key);
                }
            }
        }
        Ok(inserted)
    }

    /// Compares the rows that were inserted with those that no probe found. Returns how many rows
    /// have got another key.
    fn moved(
        &self,
        plan: &Upsert,
        before: &Rows,
        after: &Rows,
        inserted: &HashSet<Box<[u8]>>,
    ) -> Result<usize, AtError> {
        let mut moved = 0;
        for key in after.keys() {
            let inserted = inserted.contains(key);
            if inserted != before.contains_key(key) {
                continue;
            }
            if !plan.assigns_key || inserted {
                // Another transaction has put it there, or taken it away, in between.
                return Err(self.rows_differ("upsert", before.len() as u64, 1));
            }
            if let Some(obstacle) = &plan.key_obstacle {
                return Err(AtError::Refused(obstacle.clone()));
            }
            moved += 1;
        }
        Ok(moved)
    }

    /// REPLACE counts the rows that it removes and those that it puts in. If it has removed more
    /// than were found before, it has met rows that no probe looks for: a value is stored as
    /// another one than was offered, such as a time without its fraction.
    fn require_found(
        &self,
        plan: &Upsert,
        before: &Rows,
        steps: &Steps<DB>,
    ) -> Result<(), AtError> {
        let (UpsertKind::Replace, Some(offered)) = (plan.kind, plan.rows) else { return Ok(()) };
        // Each row offered but the first may also meet one that was offered before it.
        let most = (2 * offered).saturating_sub(1) + before.len();
        let counted = changed::<DB>(steps, plan.user_returning);
        if counted <= most as u64 {
            return Ok(());
        }
        Err(self.rows_differ("REPLACE", most as u64, counted))
    }

    /// An update part that assigns a key to itself leaves each row under its key, but for values
    /// that a function has made others of, as LAST_INSERT_ID does of a negative number.
    fn require_kept(&self, plan: &Upsert, before: &Rows, after: &Rows) -> Result<(), AtError> {
        let is_kept = before.keys().all(|key| after.contains_key(key));
        if is_kept || plan.kind == UpsertKind::Replace {
            return Ok(());
        }
        Err(self.key_changed("by an upsert: change the key by an UPDATE of its own"))
    }

    /// Compares the rows found after the statement with what it offered and counted.
    fn missing(
        &self,
        plan: &Upsert,
        before: &Rows,
        after: &Rows,
        steps: &Steps<DB>,
    ) -> Option<AtError> {
        // The condition of the statement has kept the row from being offered.
        let changed = changed::<DB>(steps, plan.user_returning);
        let offered = plan.rows.filter(|_| !plan.conditional || changed > 0);
        let fresh = after.keys().filter(|key| !before.contains_key(*key)).count();
        let (statement, found, expected) = match (plan.kind, offered) {
            (UpsertKind::Ignore, _) => ("INSERT IGNORE", fresh as u64, changed),
            (UpsertKind::Update | UpsertKind::Replace, Some(offered)) => {
                ("upsert", (fresh + before.len()) as u64, offered as u64)
            }
            (UpsertKind::Update | UpsertKind::Replace, None) => return None,
        };
        let differs = match plan.kind {
            UpsertKind::Ignore => found != expected,
            UpsertKind::Update | UpsertKind::Replace => found < expected,
        };
        differs.then(|| self.rows_differ(statement, found, expected))
    }

    /// One of several rows is found by no unique index, and the counts do not show it: another one
    /// has met more rows than one.
    fn hidden(&self) -> AtError {
        let table = &self.loaded.table;
        let column = table.columns[table.key.columns[0]].name.clone();
        let reason = "after the upsert one of its rows is found by no unique index: insert rows \
                      that offer NULL there one by one";
        AtError::Refused(StatementRefusal::KeyUnknown { column, reason })
    }

    /// Whether each row offered is there by its own values: then fewer rows than were offered mean
    /// that some of those are equal, and none was stored under values that no probe looks for.
    async fn all_found(
        &mut self,
        found: &[Query],
        offered: Option<usize>,
    ) -> Result<bool, sqlx::Error> {
        let Some(offered) = offered.filter(|_| !found.is_empty()) else { return Ok(false) };
        let mut there = vec![false; offered];
        for query in found {
            let steps = DB::steps(self.connection, self.bound(query)).await?;
            for row in rows_of::<DB>(&steps) {
                for (index, there) in there.iter_mut().enumerate() {
                    *there |= DB::number(row, index)? == Some(1);
                }
            }
        }
        Ok(there.into_iter().all(|there| there))
    }

    /// A row that has got another key counts as one that is gone and one that was inserted.
    ///
    /// Undo runs backwards: it deletes the inserted rows, restores the changed ones, and puts back
    /// the removed ones, so that no unique index is in the way. Changed rows that refer to inserted
    /// ones are restored first, so that no foreign key is.
    fn record_upsert(
        &mut self,
        plan: &Upsert,
        before: Rows,
        mut after: Rows,
        gone: &HashSet<Box<[u8]>>,
    ) -> Result<(), AtError> {
        let mut removed = Image::new();
        let (mut old, mut new) = (Image::new(), Image::new());
        for (key, row) in before {
            let changed = after.get(&key);
            if changed.is_some_and(|changed| self.is_respelt(&plan.columns, &row, changed)) {
                if let Some(obstacle) = &plan.key_obstacle {
                    return Err(AtError::Refused(obstacle.clone()));
                }
                removed.push(row);
                continue;
            }
            let removes = |changed: &ImageRow| {
                self.acts_back(plan, &row, changed) || self.changes_places(plan, &row, changed)
            };
            if changed.is_some_and(removes) {
                removed.push(row);
                continue;
            }
            match after.remove(&key) {
                Some(changed) => {
                    old.push(row);
                    new.push(changed);
                }
                None if plan.kind == UpsertKind::Replace || gone.contains(&key) => {
                    removed.push(row);
                }
                // Met and left alone; locked all the same, for the statement's answer relies on it.
                None => {
                    old.push(row.clone());
                    new.push(row);
                }
            }
        }
        let maintained = maintained::<DB>(self.loaded, &plan.columns);
        self.log.deleted(self.loaded, &plan.columns, removed);
        let inserted: Image = after.into_values().collect();
        if self.refers(plan, &new, &inserted) {
            self.log.inserted(self.loaded, &plan.columns, inserted);
            self.log.updated(self.loaded, &plan.columns, &maintained, old, new);
        } else {
            self.log.updated(self.loaded, &plan.columns, &maintained, old, new);
            self.log.inserted(self.loaded, &plan.columns, inserted);
        }
        Ok(())
    }

    /// Whether a changed row refers to one that the statement inserted.
    fn refers(&self, plan: &Upsert, changed: &Image, inserted: &Image) -> bool {
        let keys = self.loaded.table.referenced_by.iter();
        let mut own = keys.filter(|key| !key.own_columns.is_empty());
        own.any(|key| {
            let referenced: HashSet<String> = inserted
                .iter()
                .filter_map(|row| part(&plan.columns, &row.values, &key.referenced))
                .collect();
            let mut referring =
                changed.iter().filter_map(|row| part(&plan.columns, &row.values, &key.own_columns));
            referring.any(|part| referenced.contains(&part))
        })
    }

    /// Whether an UPDATE that undoes a REPLACE would change rows that others refer by meanwhile: it
    /// would change a column back along which a foreign key acts.
    fn acts_back(&self, plan: &Upsert, old: &ImageRow, new: &ImageRow) -> bool {
        if plan.kind != UpsertKind::Replace {
            return false;
        }
        let mut keys = self.loaded.table.referenced_by.iter().filter(|key| key.on_update.acts());
        keys.any(|key| key.referenced.iter().any(|column| differs(plan, *column, old, new)))
    }

    /// Whether a REPLACE gave a row other unique values. Several rows may have exchanged theirs,
    /// which UPDATEs of one row after the other cannot undo. Where rows may refer to the row, it is
    /// not removed for that.
    fn changes_places(&self, plan: &Upsert, old: &ImageRow, new: &ImageRow) -> bool {
        let table = &self.loaded.table;
        let mut unique = table.unique.iter().flat_map(|index| &index.columns);
        plan.kind == UpsertKind::Replace
            && table.referenced_by.is_empty()
            && unique.any(|column| differs(plan, *column, old, new))
    }

    pub(super) async fn require_gap_locks(&mut self) -> Result<(), sqlx::Error> {
        if self.log.gaps_locked {
            return Ok(());
        }
        let level = DB::isolation_level(self.connection).await?;
        let locks = ["REPEATABLE-READ", "SERIALIZABLE"].contains(&level.to_uppercase().as_str());
        if !locks {
            return Err(AtError::GapLocks { level }.into());
        }
        // The level of a running transaction does not change, so it is asked for once.
        self.log.gaps_locked = true;
        Ok(())
    }
}

/// Whether two images of an upsert differ in a column.
fn differs(plan: &Upsert, column: usize, old: &ImageRow, new: &ImageRow) -> bool {
    let at = plan.columns.iter().position(|known| *known == column);
    at.is_some_and(|at| old.values[at] != new.values[at])
}
