//! The two halves of the action, as participants in TCC mode and in sagas.

use std::marker::PhantomData;

use handfast::saga::{SagaAction, SagaCall, StepError};
use handfast::{Tcc, TccBranch};
use serde::{Deserialize, Serialize};
use sqlx::Transaction;

use super::database::{Column, ModesDatabase};

/// A change of one row.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Change {
    pub(crate) item: i64,
    pub(crate) by: i64,
}

/// Changes a row in TCC mode: the try holds the change, the confirm applies it.
#[derive(Debug)]
pub(crate) struct Held<DB>(PhantomData<fn() -> DB>);

/// Changes a row as a step of a saga, and changes it back as its compensation.
#[derive(Debug)]
pub(crate) struct Step<DB>(PhantomData<fn() -> DB>);

impl<DB> Held<DB> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<DB> Step<DB> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<DB: ModesDatabase> Tcc for Held<DB> {
    type Database = DB;
    type Input = Change;
    type Error = sqlx::Error;

    async fn try_(
        &self,
        change: &Change,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), sqlx::Error> {
        DB::change(local, Column::Held, change.item, change.by).await
    }

    async fn confirm(
        &self,
        change: &Change,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), sqlx::Error> {
        DB::change(local, Column::Held, change.item, -change.by).await?;
        DB::change(local, Column::Count, change.item, change.by).await
    }

    async fn cancel(
        &self,
        change: &Change,
        _: &TccBranch,
        local: &mut Transaction<'_, DB>,
    ) -> Result<(), sqlx::Error> {
        DB::change(local, Column::Held, change.item, -change.by).await
    }
}

impl<DB: ModesDatabase> SagaAction<DB> for Step<DB> {
    type Input = Change;
    type Output = ();

    async fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        change: &Change,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        Ok(DB::change(local, Column::Count, change.item, change.by).await?)
    }

    async fn compensate(
        &self,
        local: &mut Transaction<'_, DB>,
        change: &Change,
        _: &SagaCall,
    ) -> Result<(), StepError> {
        Ok(DB::change(local, Column::Count, change.item, -change.by).await?)
    }
}
