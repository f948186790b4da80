//! The meaning of each answer of a database: pure functions from answer to verdict.
//!
//! The tables of `docs/xa.md` are these functions. Every ambiguous answer is settled by something
//! that the database itself knows, or it is tried again. Only one conclusion is drawn from time: a
//! prepared branch that the coordinator has not known for long enough belongs to a global that was
//! rolled back.

use std::time::Duration;

use handfast_proto::v1::Decision;

use crate::status::GlobalStatus;

/// The answer of a database to COMMIT or ROLLBACK of a prepared branch, or to PREPARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseReply {
    /// The statement is carried out.
    Done,
    /// There is no such branch here: `XAER_NOTA`, or PostgreSQL's undefined object.
    Missing,
    /// The branch was rolled back by the database: `XA_RBTIMEOUT`, `XA_RBDEADLOCK`.
    RolledBack,
    /// `XA_RBROLLBACK`: before PREPARE, that the branch was rolled back; after it, that its session
    /// has ended and that it had changed nothing, which MariaDB does not keep.
    Nothing,
    /// The session or the branch is in a state in which this cannot be done: `XAER_RMFAIL`,
    /// `XAER_OUTSIDE`, `XAER_DUPID`, `XA_RETRY`, or PostgreSQL's "is busy".
    Busy,
    /// Any other refusal: the database understood and did not do it.
    Refused,
    /// No answer: whether it was carried out is unknown.
    Lost,
}

/// Further facts of the database about a branch that is not prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A session has the branch open, or prepared where no other session reaches it.
    Open,
    /// It was committed.
    Committed,
    /// It was rolled back, or it ended with its session.
    RolledBack,
    /// It has ended, and the database does not keep how.
    Ended,
}

/// The end of an attempt to finish a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TwoPhaseVerdict {
    /// The decision is carried out.
    Done,
    /// To be tried again.
    Again,
    /// The branch ended against the decision, and not by Handfast.
    Against,
}

/// Judges an answer in phase two. The trace is looked for only where the answer is
/// [`DatabaseReply::Missing`].
#[must_use]
pub fn of_phase_two(
    decision: Decision,
    answer: DatabaseReply,
    trace: Option<Trace>,
) -> TwoPhaseVerdict {
    match (answer, decision) {
        (_, Decision::Unspecified) => TwoPhaseVerdict::Again,
        (DatabaseReply::Done | DatabaseReply::Nothing, Decision::Commit | Decision::RollBack) => {
            TwoPhaseVerdict::Done
        }
        (DatabaseReply::RolledBack, Decision::RollBack) => TwoPhaseVerdict::Done,
        (DatabaseReply::RolledBack, Decision::Commit) => TwoPhaseVerdict::Against,
        (
            DatabaseReply::Busy | DatabaseReply::Refused | DatabaseReply::Lost,
            Decision::Commit | Decision::RollBack,
        ) => TwoPhaseVerdict::Again,
        (DatabaseReply::Missing, Decision::Commit) => match trace {
            // An earlier call, whose answer was lost, has finished it.
            Some(Trace::Committed | Trace::Ended) => TwoPhaseVerdict::Done,
            Some(Trace::RolledBack) => TwoPhaseVerdict::Against,
            Some(Trace::Open) | None => TwoPhaseVerdict::Again,
        },
        (DatabaseReply::Missing, Decision::RollBack) => match trace {
            Some(Trace::RolledBack | Trace::Ended) => TwoPhaseVerdict::Done,
            Some(Trace::Committed) => TwoPhaseVerdict::Against,
            // Its PREPARE may still come.
            Some(Trace::Open) | None => TwoPhaseVerdict::Again,
        },
    }
}

/// The state of a branch after PREPARE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrepareOutcome {
    /// It is prepared.
    Prepared,
    /// It is certainly rolled back.
    RolledBack,
    /// It may be prepared or not: the global must not commit.
    Unknown,
}

/// Judges the answer to PREPARE, and to the ROLLBACK that follows on the same session where PREPARE
/// was refused.
#[must_use]
pub fn of_prepare(prepare: DatabaseReply, rollback: Option<DatabaseReply>) -> PrepareOutcome {
    match (prepare, rollback) {
        (DatabaseReply::Done, _) => PrepareOutcome::Prepared,
        (DatabaseReply::Lost, _) => PrepareOutcome::Unknown,
        (
            DatabaseReply::Missing
            | DatabaseReply::RolledBack
            | DatabaseReply::Nothing
            | DatabaseReply::Busy
            | DatabaseReply::Refused,
            Some(
                DatabaseReply::Done
                | DatabaseReply::Missing
                | DatabaseReply::RolledBack
                | DatabaseReply::Nothing,
            ),
        ) => PrepareOutcome::RolledBack,
        (
            DatabaseReply::Missing
            | DatabaseReply::RolledBack
            | DatabaseReply::Nothing
            | DatabaseReply::Busy
            | DatabaseReply::Refused,
            Some(DatabaseReply::Busy | DatabaseReply::Refused | DatabaseReply::Lost) | None,
        ) => PrepareOutcome::Unknown,
    }
}

/// The action of the sweep on a prepared branch of its own node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SweepAction {
    /// Carry out a decision.
    Finish(Decision),
    /// Leave it: it is undecided, or it is too early to tell.
    Leave,
}

/// Decides about a prepared branch by the status of its global.
///
/// A branch is registered, durably, before it is prepared, so a coordinator that knows nothing of
/// the global has finished and forgotten it. It does not forget before every branch has answered,
/// so this one was rolled back, and its PREPARE came late. `orphan_after` allows for a coordinator
/// that has just lost the lead and does not know it.
#[must_use]
pub fn of_sweep(
    status: GlobalStatus,
    unknown_for: Duration,
    orphan_after: Duration,
) -> SweepAction {
    match status {
        GlobalStatus::Active => SweepAction::Leave,
        GlobalStatus::Committing | GlobalStatus::Committed => SweepAction::Finish(Decision::Commit),
        GlobalStatus::RollingBack(_)
        | GlobalStatus::RolledBack(_)
        | GlobalStatus::NeedsOperator(_) => SweepAction::Finish(Decision::RollBack),
        GlobalStatus::Unknown if unknown_for >= orphan_after => {
            SweepAction::Finish(Decision::RollBack)
        }
        GlobalStatus::Unknown => SweepAction::Leave,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::RollbackReason;

    const ANSWERS: [DatabaseReply; 7] = [
        DatabaseReply::Done,
        DatabaseReply::Missing,
        DatabaseReply::RolledBack,
        DatabaseReply::Nothing,
        DatabaseReply::Busy,
        DatabaseReply::Refused,
        DatabaseReply::Lost,
    ];
    const TRACES: [Option<Trace>; 5] = [
        None,
        Some(Trace::Open),
        Some(Trace::Committed),
        Some(Trace::RolledBack),
        Some(Trace::Ended),
    ];

    /// The letters of one answer, over every trace in the order above.
    fn row(decision: Decision, answer: DatabaseReply) -> String {
        let verdicts = TRACES.map(|trace| of_phase_two(decision, answer, trace));
        verdicts.map(|verdict| format!("{verdict:?}")).join(" ")
    }

    #[test]
    fn phase_two_knows_every_answer() {
        let table: Vec<String> = [Decision::Commit, Decision::RollBack]
            .into_iter()
            .flat_map(|decision| ANSWERS.map(|answer| (decision, answer)))
            .map(|(decision, answer)| format!("{decision:?} {answer:?}: {}", row(decision, answer)))
            .collect();
        expect_test::expect![[r#"
            Commit Done: Done Done Done Done Done
            Commit Missing: Again Again Done Against Done
            Commit RolledBack: Against Against Against Against Against
            Commit Nothing: Done Done Done Done Done
            Commit Busy: Again Again Again Again Again
            Commit Refused: Again Again Again Again Again
            Commit Lost: Again Again Again Again Again
            RollBack Done: Done Done Done Done Done
            RollBack Missing: Again Again Against Done Done
            RollBack RolledBack: Done Done Done Done Done
            RollBack Nothing: Done Done Done Done Done
            RollBack Busy: Again Again Again Again Again
            RollBack Refused: Again Again Again Again Again
            RollBack Lost: Again Again Again Again Again"#]]
        .assert_eq(&table.join("\n"));
    }

    /// The answers to a ROLLBACK after which nothing is prepared.
    const ENDED: [DatabaseReply; 4] = [
        DatabaseReply::Done,
        DatabaseReply::Missing,
        DatabaseReply::RolledBack,
        DatabaseReply::Nothing,
    ];

    #[test]
    fn a_prepare_is_rolled_back_only_where_that_is_certain() {
        for prepare in ANSWERS {
            for rollback in ANSWERS.map(Some).into_iter().chain([None]) {
                let rolled_back = rollback.is_some_and(|answer| ENDED.contains(&answer));
                let expected = if prepare == DatabaseReply::Done {
                    PrepareOutcome::Prepared
                } else if prepare != DatabaseReply::Lost && rolled_back {
                    PrepareOutcome::RolledBack
                } else {
                    PrepareOutcome::Unknown
                };
                assert_eq!(of_prepare(prepare, rollback), expected, "{prepare:?} {rollback:?}");
            }
        }
    }

    #[test]
    fn the_sweep_does_what_the_coordinator_has_decided() {
        let patience = Duration::from_secs(60);
        let reason = RollbackReason::Timeout;
        for (status, expected) in [
            (GlobalStatus::Active, SweepAction::Leave),
            (GlobalStatus::Committing, SweepAction::Finish(Decision::Commit)),
            (GlobalStatus::Committed, SweepAction::Finish(Decision::Commit)),
            (GlobalStatus::RollingBack(reason), SweepAction::Finish(Decision::RollBack)),
            (GlobalStatus::RolledBack(reason), SweepAction::Finish(Decision::RollBack)),
            (GlobalStatus::NeedsOperator(reason), SweepAction::Finish(Decision::RollBack)),
            (GlobalStatus::Unknown, SweepAction::Leave),
        ] {
            let young = of_sweep(status, patience - Duration::from_millis(1), patience);
            assert_eq!(young, expected, "{status}");
        }
        let old = of_sweep(GlobalStatus::Unknown, patience, patience);
        assert_eq!(old, SweepAction::Finish(Decision::RollBack));
        // The age does not matter if the coordinator knows the global.
        assert_eq!(of_sweep(GlobalStatus::Active, Duration::MAX, patience), SweepAction::Leave);
    }
}
