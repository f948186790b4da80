//! UPDATE and DELETE that read several tables: each row of a written table is imaged once.

use std::collections::HashSet;

use either::Either;
use handfast_rm_core::plan::{Change, JointQuery, KeyedQuery, Several, SeveralChange};
use sqlx::Database;

use super::{StatementRun, for_application};
use crate::at::database::bind::bind_keys;
use crate::at::database::{Backend, Steps, affected};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, align, values_of};

/// A before image of which each row stands once, where a join may have shown it several times.
pub(super) fn once(change: &Change, image: Image) -> Image {
    match change {
        Change::ByKey(keyed) if keyed.is_joined() => each_once(image),
        Change::ByKey(_) | Change::ByPredicate(_) => image,
    }
}

fn each_once(mut image: Image) -> Image {
    let mut seen = HashSet::with_capacity(image.len());
    image.retain(|row| seen.insert(row.key.clone()));
    image
}

impl<DB: Backend> StatementRun<'_, DB> {
    /// Runs a change of several tables: all images before, the change, all images after.
    pub(super) async fn several(&mut self, plan: &Several) -> Result<Steps<DB>, sqlx::Error> {
        let mut images = Vec::with_capacity(plan.parts.len());
        // A DELETE may name rows of one table under several names.
        let mut seen = HashSet::new();
        for part in &plan.parts {
            let mut run = self.about(part.table);
            let mut read = run.read_before(&part.before, &part.columns, part.judged).await?;
            read.retain(|row| seen.insert((part.table, row.key.clone())));
            images.push(read);
        }
        match &plan.change {
            SeveralChange::Update(query) => self.update_several(plan, query, images).await,
            SeveralChange::Delete(queries) => self.delete_several(plan, queries, images).await,
        }
    }

    /// The same statement about another of its tables.
    pub(super) fn about(&mut self, table: usize) -> StatementRun<'_, DB> {
        StatementRun {
            connection: &mut *self.connection,
            // A plan of several tables does not begin the transaction.
            begins: false,
            mark: None,
            merges: self.merges,
            log: &mut *self.log,
            loaded: &self.tables[table],
            tables: self.tables,
            catalogue: self.catalogue,
            query: self.query.clone(),
        }
    }

    async fn update_several(
        &mut self,
        plan: &Several,
        query: &JointQuery,
        images: Vec<Image>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let imaged: usize = images.iter().map(Vec::len).sum();
        if imaged == 0 {
            return Ok(nothing_changed::<DB>());
        }
        let rows: Vec<usize> = images.iter().map(Vec::len).collect();
        let Some(query) = query.for_rows(&rows) else {
            return Err(AtError::TooManyRows { rows: imaged, rows_max: DB::ARGUMENTS_MAX }.into());
        };
        let mut captured = self.query.with_text(&query.text);
        let arguments = captured.arguments.get_or_insert_default();
        for (part, before) in plan.parts.iter().zip(&images) {
            bind_keys(arguments, &self.tables[part.table], values_of(before), &part.columns)?;
        }
        let steps = self.change_by(captured).await?;
        self.expect_rows("UPDATE", imaged, affected::<DB>(&steps))?;
        let mut after = Vec::with_capacity(images.len());
        for (part, before) in plan.parts.iter().zip(&images) {
            let read = self.about(part.table).read_again(before, &part.columns).await?;
            let aligned = align(before, read);
            let changed = affected::<DB>(&steps);
            after.push(aligned.ok_or_else(|| self.rows_differ("UPDATE", imaged as u64, changed))?);
        }
        for ((part, before), after) in plan.parts.iter().zip(images).zip(after) {
            let mut run = self.about(part.table);
            run.lock_changed_parents(&part.columns, &before, &after).await?;
            run.log.updated(run.loaded, &part.columns, &part.maintained, before, after);
        }
        self.recorded();
        Ok(for_application::<DB>(steps, false))
    }

    async fn delete_several(
        &mut self,
        plan: &Several,
        queries: &[KeyedQuery],
        images: Vec<Image>,
    ) -> Result<Steps<DB>, sqlx::Error> {
        let mut total = <DB as Database>::QueryResult::default();
        for ((part, query), before) in plan.parts.iter().zip(queries).zip(images) {
            let mut run = self.about(part.table);
            let steps = run.change_by_key(query, &before, &part.columns).await?;
            run.expect_rows("DELETE", before.len(), affected::<DB>(&steps))?;
            run.log.deleted(run.loaded, &part.columns, before);
            // Until the last table is done, the statement is half recorded.
            total.extend(steps.into_iter().filter_map(Either::left));
        }
        self.recorded();
        Ok(vec![Either::Left(total)])
    }
}

fn nothing_changed<DB: Backend>() -> Steps<DB> {
    vec![Either::Left(<DB as Database>::QueryResult::default())]
}
