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

    /// Commits or rolls back a branch. Idempotent. Without a decision that this version knows,
    /// nothing is done.
    pub(super) async fn finish(
        &mut self,
        decision: Decision,
        name: &BranchName,
        number: Option<&str>,
    ) -> Finished {
        let Some(sql) = statement::<DB>(decision, name) else {
            return Finished { verdict: TwoPhaseVerdict::Again, message: None };
        };
        let mut session = match self.session(name).await {
            Ok(session) => session,
            Err(error) => {
                return Finished {
                    verdict: TwoPhaseVerdict::Again,
                    message: Some(with_causes(&error)),
                };
            }
        };
        // A session that is reused counts as clean. If this is cut off in the statement, the
        // session must be closed.
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
        // After any other answer the session's state is in doubt, so it is closed.
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

/// Returns the statement that carries a decision out.
fn statement<DB: XaDatabase>(decision: Decision, name: &BranchName) -> Option<String> {
    match decision {
        Decision::Commit => Some(DB::commit(name)),
        Decision::RollBack => Some(DB::roll_back(name)),
        // A decision of a later version of the coordinator.
        Decision::Unspecified => None,
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use handfast_rm_core::XidText;
    use handfast_rm_core::two_phase::Node;

    use super::*;

    /// Regression: a prepared branch was rolled back on a decision that this version does not know.
    #[test]
    fn an_unknown_decision_touches_no_branch() {
        let (node, xid) = (Node::new("ledger").unwrap(), XidText::new("tc:1").unwrap());
        let name = BranchName { node, branch: 7, xid };
        let of = |decision| statement::<sqlx::Postgres>(decision, &name);
        assert_eq!(of(Decision::Unspecified), None);
        assert!(of(Decision::Commit).unwrap().starts_with("COMMIT PREPARED"));
        assert!(of(Decision::RollBack).unwrap().starts_with("ROLLBACK PREPARED"));
    }
}
