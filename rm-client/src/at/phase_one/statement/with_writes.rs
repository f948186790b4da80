//! A statement with writes in its WITH, which returns the images of all of them as rows.

use either::Either;
use handfast_rm_core::plan::{WithCount, WithPart, WithPartKind, WithWrites};

use super::StatementRun;
use crate::at::database::{Backend, Steps};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, ImageRow, Layout};

/// The images of one part: before, of an UPDATE alone, and as they were returned.
#[derive(Default)]
struct PartImages {
    before: Image,
    returned: Image,
}

impl<DB: Backend> StatementRun<'_, DB> {
    pub(super) async fn with_writes(
        &mut self,
        plan: &WithWrites,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let steps = self.change(&plan.query).await?;
        let widths: Vec<usize> = plan.parts.iter().map(|part| self.width_of(part)).collect();
        let ours: usize = widths.iter().sum();
        let mut images: Vec<PartImages> =
            plan.parts.iter().map(|_| PartImages::default()).collect();
        let mut answer = Steps::<DB>::new();
        for row in steps.into_iter().filter_map(Either::right) {
            let number = DB::width(&row).checked_sub(ours + 1);
            let missing = sqlx::Error::ColumnIndexOutOfBounds { index: ours, len: DB::width(&row) };
            let number = number.ok_or(missing)?;
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
        self.record_parts(plan, images).await?;
        self.recorded();
        answer.extend(self.counted(count).await?);
        Ok(answer)
    }

    /// How many columns a part has in a row.
    fn width_of(&self, part: &WithPart) -> usize {
        let key = self.tables[part.table].table.key_width();
        let columns = part.kind.columns().len();
        match part.kind {
            WithPartKind::Insert { .. } | WithPartKind::Delete { .. } => columns + key,
            WithPartKind::Update { .. } => 2 * columns + key,
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
        let mut behind: usize = widths.iter().sum();
        for ((part, width), images) in plan.parts.iter().zip(widths).zip(images) {
            let start = DB::width(row) - behind;
            behind -= width;
            let columns = part.kind.columns();
            if DB::text(row, start + columns.len())?.is_none() {
                continue;
            }
            let loaded = &self.tables[part.table];
            let is_update = matches!(part.kind, WithPartKind::Update { .. });
            let old = if is_update { columns.len() } else { 0 };
            let image = Layout { columns, behind: behind + old }.row(loaded, row)?;
            if is_update {
                let keys = loaded.table.key_width();
                let values =
                    Layout::of(columns).values(loaded, row, start + columns.len() + keys)?;
                images.before.push(ImageRow { key: image.key.clone(), values });
            }
            images.returned.push(image);
            return Ok(());
        }
        let table = self.loaded.table.full_name();
        Err(AtError::KeyNull { table }.into())
    }

    async fn record_parts(
        &mut self,
        plan: &WithWrites,
        mut images: Vec<PartImages>,
    ) -> Result<(), sqlx::Error> {
        for &place in &plan.order {
            let part = &plan.parts[place];
            let PartImages { before, returned } = std::mem::take(&mut images[place]);
            let mut run = self.about(part.table);
            let loaded = run.loaded;
            match &part.kind {
                WithPartKind::Insert { columns } => {
                    let after = run.settled(returned, columns).await?;
                    run.lock_parents(columns, after.iter()).await?;
                    run.log.inserted(loaded, columns, after);
                }
                WithPartKind::Update { columns, maintained } => {
                    let after = run.settled(returned, columns).await?;
                    let (imaged, found) = (before.len() as u64, after.len() as u64);
                    let after = crate::at::undo::image::align(&before, after)
                        .ok_or_else(|| run.rows_differ("WITH", imaged, found))?;
                    run.lock_changed_parents(columns, &before, &after).await?;
                    run.log.updated(loaded, columns, maintained, before, after);
                }
                WithPartKind::Delete { columns } => run.log.deleted(loaded, columns, returned),
            }
        }
        Ok(())
    }
}
