//! Carries out a decision on one prepared branch, for phase two and for the sweep.

use std::sync::Arc;

use handfast_proto::v1::Decision;
use handfast_rm_core::two_phase::{
    BranchName, DatabaseReply, Finished, TwoPhaseVerdict, of_phase_two,
};

use super::database::{XaDatabase, answer_of, send};
use super::pooled_connection::PooledConnection;
use super::state::XaState;
use crate::at::with_causes;

/// Finishes branches one after the other, over a session of its own where a branch has none here.
#[derive(Debug)]
pub(super) struct Finisher<DB: XaDatabase> {
    shared: Arc<XaState<DB>>,
    session: Option<PooledConnection<DB>>,
}

impl<DB: XaDatabase> Finisher<DB> {
    pub(super) fn new(shared: Arc<XaState<DB>>) -> Self {
        Self { shared, session: None }
    }

    /// Commits or rolls back a branch. Idempotent.
    pub(super) async fn finish(
        &mut self,
        decision: Decision,
        name: &BranchName,
        number: Option<&str>,
    ) -> Finished {
        let mut session = match self.session(name).await {
            Ok(session) => session,
            Err(error) => {
                return Finished {
                    verdict: TwoPhaseVerdict::Again,
                    message: Some(with_causes(&error)),
                };
            }
        };
        let sql = match decision {
            Decision::Commit => DB::commit(name),
            Decision::RollBack | Decision::Unspecified => DB::roll_back(name),
        };
        // A session that is used again counts as clean. Cut off in the statement, it must be
        // closed.
        session.mark_used();
        let result = send::<DB>(&mut session, sql).await;
        let answer = answer_of::<DB, _>(&result);
        let mut message = result.err().map(|error| with_causes(&error));
        let trace = match answer {
            DatabaseReply::Missing => match DB::trace(&mut session, name, number).await {
                Ok(trace) => Some(trace),
                Err(error) => {
                    message = Some(with_causes(&error));
                    None
                }
            },
            DatabaseReply::Done
            | DatabaseReply::RolledBack
            | DatabaseReply::Nothing
            | DatabaseReply::Busy
            | DatabaseReply::Refused
            | DatabaseReply::Lost => None,
        };
        // On doubt about what the session is in the middle of, it is closed.
        if answer == DatabaseReply::Done || trace.is_some() {
            session.mark_clean();
            self.session = Some(session);
        }
        Finished { verdict: of_phase_two(decision, answer, trace), message }
    }

    /// The branch's own session if it is held here, else the one used last, else another one.
    async fn session(&mut self, name: &BranchName) -> Result<PooledConnection<DB>, sqlx::Error> {
        if let Some(held) = self.shared.held.take(name) {
            return Ok(held);
        }
        match self.session.take() {
            Some(session) => Ok(session),
            None => self.shared.session_for_decisions().await,
        }
    }
}
