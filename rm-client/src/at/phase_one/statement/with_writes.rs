//! A statement with writes in its WITH, which returns the images of all of them as rows.

use std::collections::HashSet;

use either::Either;
use handfast_rm_core::plan::{
    StatementRefusal, WithCount, WithEffect, WithPart, WithPartKind, WithUndo, WithWrites,
};

use super::StatementRun;
use super::along::Own;
use crate::at::database::{Backend, Steps};
use crate::at::error::AtError;
use crate::at::phase_one::branch_log::maintained;
use crate::at::undo::image::{Image, ImageRow, Layout, align, by_key};

/// The images of one part: before, of an UPDATE and an upsert alone, and as they were returned.
#[derive(Default)]
struct PartImages {
    before: Image,
    returned: Image,
    /// The keys of the rows that an upsert says to have inserted.
    inserted: HashSet<Box<[u8]>>,
}

/// The rows of one part, as its undo items need them.
#[derive(Default)]
struct PartRows {
    deleted: Image,
    before: Image,
    after: Image,
    inserted: Image,
}

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn with_writes(
        &mut self,
        plan: &WithWrites,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let held = self.hold_deleted(plan).await?;
        let steps = self.change(&plan.query).await?;
        let widths: Vec<usize> = plan.parts.iter().map(|part| self.width_of(part)).collect();
        let ours = widths.iter().sum::<usize>() + usize::from(plan.may_meet);
        let mut images: Vec<PartImages> =
            plan.parts.iter().map(|_| PartImages::default()).collect();
        let mut answer = Steps::<DB>::new();
        for row in steps.into_iter().filter_map(Either::right) {
            let number = DB::width(&row).checked_sub(ours + 1);
            let missing = sqlx::Error::ColumnIndexOutOfBounds { index: ours, len: DB::width(&row) };
            let number = number.ok_or(missing)?;
            if plan.may_meet && DB::flag(&row, number + 1)? {
                return Err(met().into());
            }
            if DB::number(&row, number)?.is_some() {
                answer.push(Either::Right(row));
                continue;
            }
            self.read_part(plan, &widths, &row, &mut images)?;
        }
        let count = match plan.count {
            WithCount::Rows => answer.len(),
            WithCount::Part(part) => images[part].returned.len(),
        };
        for ((part, images), held) in plan.parts.iter().zip(&images).zip(&held) {
            if part.before.is_some() {
                self.about(part.table).require_held(held, &images.returned)?;
            }
        }
        self.record_parts(plan, images).await?;
        self.recorded();
        answer.extend(self.counted(count).await?);
        Ok(answer)
    }

    /// Locks the rows of each DELETE with which foreign keys could delete or change others, and
    /// refuses it if they do. While the rows are locked, no row can be added that refers to them.
    /// Returns their keys for each part.
    async fn hold_deleted(
        &mut self,
        plan: &WithWrites,
    ) -> Result<Vec<HashSet<Box<[u8]>>>, sqlx::Error> {
        let mut held = Vec::with_capacity(plan.parts.len());
        for part in &plan.parts {
            let mut keys = HashSet::new();
            if let Some(before) = &part.before {
                let mut run = self.about(part.table);
                let rows = run.read_before(before, part.kind.columns(), false).await?;
                keys.extend(rows.iter().map(|row| row.key.clone()));
                let along = run.along(Own::Deleted, part.kind.columns(), rows, &[]).await?;
                if !along.is_empty() {
                    return Err(AtError::Refused(StatementRefusal::WriteInWith {
                        reason: "foreign keys delete or change other rows along with those that \
                                 it deletes; delete them by a statement of its own",
                    })
                    .into());
                }
            }
            held.push(keys);
        }
        Ok(held)
    }

    /// Refuses rows that another transaction has added in between, perhaps with rows that refer.
    fn require_held(&self, held: &HashSet<Box<[u8]>>, deleted: &Image) -> Result<(), AtError> {
        match deleted.iter().filter(|row| !held.contains(&row.key)).count() {
            0 => Ok(()),
            _ => Err(self.rows_differ("DELETE", held.len() as u64, deleted.len() as u64)),
        }
    }

    /// How many columns a part has in a row.
    fn width_of(&self, part: &WithPart) -> usize {
        let columns = part.kind.columns().len();
        let image = columns + self.tables[part.table].table.key_width();
        match part.kind {
            WithPartKind::Insert { .. } | WithPartKind::Delete { .. } => image,
            WithPartKind::Update { .. } => image + columns,
            WithPartKind::Upsert { .. } => image + 1 + image,
        }
    }

    /// Reads the image that a row is, of the part whose key text it has.
    fn read_part(
        &self,
        plan: &WithWrites,
        widths: &[usize],
        row: &DB::Row,
        images: &mut [PartImages],
    ) -> Result<(), sqlx::Error> {
        let mut start = DB::width(row) - widths.iter().sum::<usize>();
        for ((part, width), images) in plan.parts.iter().zip(widths).zip(images) {
            let loaded = &self.tables[part.table];
            let behind = start + part.kind.columns().len() + loaded.table.key_width();
            if let Some(after) = self.image_at(part, row, start)? {
                match part.kind {
                    WithPartKind::Insert { .. } | WithPartKind::Delete { .. } => {}
                    WithPartKind::Update { .. } => {
                        let layout = Layout::of(part.kind.columns());
                        let values = layout.values(loaded, row, behind)?;
                        images.before.push(ImageRow { key: after.key.clone(), values });
                    }
                    WithPartKind::Upsert { .. } => {
                        if DB::flag(row, behind)? {
                            images.inserted.insert(after.key.clone());
                        }
                    }
                }
                images.returned.push(after);
                return Ok(());
            }
            if matches!(part.kind, WithPartKind::Upsert { .. })
                && let Some(met) = self.image_at(part, row, behind + 1)?
            {
                images.before.push(met);
                return Ok(());
            }
            start += width;
        }
        let table = self.loaded.table.full_name();
        Err(AtError::KeyNull { table }.into())
    }

    /// Reads the image of a part whose columns begin at `start`, if the row is one.
    fn image_at(
        &self,
        part: &WithPart,
        row: &DB::Row,
        start: usize,
    ) -> Result<Option<ImageRow>, sqlx::Error> {
        let (columns, loaded) = (part.kind.columns(), &self.tables[part.table]);
        let keys = start + columns.len();
        if DB::text(row, keys)?.is_none() {
            return Ok(None);
        }
        let behind = DB::width(row) - keys - loaded.table.key_width();
        Layout { columns, behind }.row(loaded, row).map(Some)
    }

    async fn record_parts(
        &mut self,
        plan: &WithWrites,
        images: Vec<PartImages>,
    ) -> Result<(), sqlx::Error> {
        let mut parts = Vec::with_capacity(images.len());
        for (part, images) in plan.parts.iter().zip(images) {
            parts.push(self.about(part.table).part_rows(part, images).await?);
        }
        for &WithUndo { part, effect } in &plan.order {
            let WithPart { table, kind, .. } = &plan.parts[part];
            let (loaded, columns) = (&self.tables[*table], kind.columns());
            let PartRows { deleted, before, after, inserted } = &mut parts[part];
            match effect {
                WithEffect::Deleted => self.log.deleted(loaded, columns, std::mem::take(deleted)),
                WithEffect::Inserted => {
                    self.log.inserted(loaded, columns, std::mem::take(inserted));
                }
                WithEffect::Updated => {
                    let (before, after) = (std::mem::take(before), std::mem::take(after));
                    let along = match kind {
                        WithPartKind::Update { maintained, .. } => maintained.clone(),
                        WithPartKind::Insert { .. }
                        | WithPartKind::Delete { .. }
                        | WithPartKind::Upsert { .. } => maintained::<DB>(loaded, columns),
                    };
                    self.log.updated(loaded, columns, &along, before, after);
                }
            }
        }
        Ok(())
    }

    /// The rows of a part as they stand after the statement. Notes the rows that they refer to.
    async fn part_rows(
        &mut self,
        part: &WithPart,
        images: PartImages,
    ) -> Result<PartRows, sqlx::Error> {
        let mut rows = PartRows::default();
        let columns = part.kind.columns();
        match part.kind {
            WithPartKind::Delete { .. } => rows.deleted = images.returned,
            WithPartKind::Insert { .. } => {
                rows.inserted = self.settled(images.returned, columns).await?;
            }
            WithPartKind::Update { .. } => {
                let after = self.settled(images.returned, columns).await?;
                let (imaged, found) = (images.before.len() as u64, after.len() as u64);
                rows.after = align(&images.before, after)
                    .ok_or_else(|| self.rows_differ("WITH", imaged, found))?;
                rows.before = images.before;
            }
            WithPartKind::Upsert { .. } => rows = self.upserted(columns, images).await?,
        }
        self.lock_parents(columns, rows.inserted.iter()).await?;
        self.lock_changed_parents(columns, &rows.before, &rows.after).await?;
        Ok(rows)
    }

    /// Tells the rows that an upsert has inserted from those that were there. Of these all that it
    /// could meet are locked globally, for its answer relies on them.
    async fn upserted(
        &mut self,
        columns: &[usize],
        images: PartImages,
    ) -> Result<PartRows, sqlx::Error> {
        let PartImages { before, returned, inserted } = images;
        let met: HashSet<&[u8]> = before.iter().map(|row| &*row.key).collect();
        // Updated without having been found: another transaction has put it there in between. Found
        // and inserted all the same: another one has taken it away.
        let differs = |row: &ImageRow| inserted.contains(&row.key) == met.contains(&*row.key);
        if returned.iter().any(differs) {
            return Err(self.rows_differ("upsert", before.len() as u64, 1).into());
        }
        let found = returned.len() as u64;
        let mut rows = by_key(self.settled(returned, columns).await?);
        if rows.len() as u64 != found {
            return Err(self.rows_differ("upsert", found, rows.len() as u64).into());
        }
        let after = before.iter().map(|row| rows.remove(&row.key).unwrap_or_else(|| row.clone()));
        let after = after.collect();
        let (deleted, inserted) = (Image::new(), rows.into_values().collect());
        Ok(PartRows { deleted, before, after, inserted })
    }
}

/// Two writes have met in a row. The change stays without an undo item, so that the local
/// transaction can only be rolled back.
fn met() -> AtError {
    AtError::Refused(StatementRefusal::WriteInWith {
        reason: "two of its writes have chosen the same row, and which of them has it depends on \
                 the order in which they ran; execute each as a statement of its own",
    })
}
