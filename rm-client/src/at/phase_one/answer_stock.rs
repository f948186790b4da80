//! Answers that count one row, for statements which the database has carried out along with others.
//!
//! The driver's answers are made by the driver alone and cannot be copied, so the database is asked
//! for them, many at a time.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use either::Either;
use sqlx::Database;
use tokio::sync::Mutex as Turn;

use crate::at::database::Backend;
use crate::at::database::bound_query::BoundQuery;
use crate::at::kept_connections::KeptConnections;

/// How many answers one call asks for. More: the first ones wait for the last, and the stock takes
/// memory. Fewer: more calls. At least as many as local transactions have members.
const AT_ONCE: usize = 128;

/// Answers in stock, up to about [`AT_ONCE`] for each that draws at the same time.
pub(crate) struct AnswerStock<DB: Backend> {
    kept: Mutex<Vec<<DB as Database>::QueryResult>>,
    /// One call at a time: those that find no answer while it runs take theirs from it.
    call: Turn<()>,
}

impl<DB: Backend> Default for AnswerStock<DB> {
    fn default() -> Self {
        Self { kept: Mutex::default(), call: Turn::default() }
    }
}

impl<DB: Backend> AnswerStock<DB> {
    /// Draws answers, `most` of which are at most [`AT_ONCE`].
    pub(super) async fn draw(
        &self,
        connections: &KeptConnections<DB>,
        most: usize,
    ) -> Result<Vec<DB::QueryResult>, sqlx::Error> {
        if let Some(drawn) = self.draw_kept(most) {
            return Ok(drawn);
        }
        let _turn = self.call.lock().await;
        if let Some(drawn) = self.draw_kept(most) {
            return Ok(drawn);
        }
        let text = format!("{};", DB::COUNTS_ONE).repeat(AT_ONCE);
        let mut kept = connections.acquire().await?;
        let answered = DB::steps(&mut kept.connection, BoundQuery::plain(text)).await?;
        connections.release(kept);
        let mut answers: Vec<_> = answered.into_iter().filter_map(Either::left).collect();
        // Whatever the database has made of it: what is drawn counts one row.
        answers.retain(|answer| DB::rows_affected(answer) == 1);
        let drawn = answers.split_off(answers.len().saturating_sub(most));
        self.keep(answers);
        Ok(drawn)
    }

    /// Takes back what was drawn and not used.
    pub(super) fn keep(&self, answers: Vec<DB::QueryResult>) {
        let mut kept = self.lock();
        if kept.len() < AT_ONCE {
            kept.extend(answers);
        }
    }

    fn draw_kept(&self, most: usize) -> Option<Vec<DB::QueryResult>> {
        let mut kept = self.lock();
        let left = kept.len().checked_sub(most)?;
        Some(kept.split_off(left))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<DB::QueryResult>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<DB: Backend> fmt::Debug for AnswerStock<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerStock").finish_non_exhaustive()
    }
}
