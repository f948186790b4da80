//! A guard that is in effect refuses every write from outside to a row that a branch of an
//! undecided global has changed, and no other write: none to a row that is held by no branch,
//! whatever is left of ended ones, and none of a branch or of a rollback. What it keeps of a branch
//! comes with that branch's undo row.

use super::Invariant;
use crate::judge::ledger::Ledger;
use crate::judge::verdict::Verdict;
use crate::model::observation::{GuardedWrite, Observation};
use crate::model::values::{RowChanges, Undo};

/// The invariant. It needs no state beside the ledger.
#[derive(Debug)]
pub(super) struct Guarded;

impl Invariant for Guarded {
    fn name(&self) -> &'static str {
        "guarded"
    }

    fn observe(&mut self, ledger: &Ledger, observation: &Observation<'_>, verdict: &mut Verdict) {
        match observation {
            Observation::GuardedWrite(write) if write.from_outside => {
                check_from_outside(ledger, write, verdict);
            }
            Observation::GuardedWrite(GuardedWrite { database, row, refused_for, .. }) => {
                verdict.require(refused_for.is_none(), || {
                    format!(
                        "a branch or a rollback is refused row {} of database {database}: it is \
                         held for {refused_for:?}",
                        row.0
                    )
                });
            }
            Observation::LocalCommit { database, written } => {
                check_kept(written, verdict);
                check_outside_commit(ledger, *database, written, verdict);
            }
            Observation::Ended { end } => {
                verdict.require(end.refused_outside.is_empty(), || end.refused_outside.join("; "));
            }
            Observation::RequestArrived { .. }
            | Observation::ReplySent { .. }
            | Observation::Lead(_)
            | Observation::Stored { .. }
            | Observation::Recorded { .. }
            | Observation::Prepared { .. }
            | Observation::PreparedEnded { .. }
            | Observation::CommittedRead { .. }
            | Observation::OutcomeReported { .. } => {}
        }
    }
}

fn check_from_outside(ledger: &Ledger, write: &GuardedWrite, verdict: &mut Verdict) {
    let GuardedWrite { database, row, .. } = *write;
    if let Some((xid, branch)) = write.refused_for {
        let effect = ledger.effects.get(&(xid, branch));
        let holds = effect.is_some_and(|effect| effect.has_held(database, row, write.since));
        verdict.require(holds, || {
            let row = row.0;
            format!("a write to row {row} of database {database} is refused for {xid}/{branch}, which does not hold it")
        });
        return;
    }
    for ((xid, branch), effect) in ledger.holders(database, row) {
        let is_protected = write.guard.is_some_and(|guard| ledger.protects(&guard, effect));
        verdict.require(ledger.is_committed(*xid) || !is_protected, || {
            let row = row.0;
            format!("a write from outside to row {row} of database {database} passes, which {xid}/{branch} holds")
        });
    }
}

/// Checks that no branch holds what is committed from outside. The guards have refused that, and
/// where they protect nothing the writers of this model give way.
fn check_outside_commit(
    ledger: &Ledger,
    database: usize,
    written: &RowChanges,
    verdict: &mut Verdict,
) {
    for (row, ..) in written.rows.iter().filter(|_| written.from_outside) {
        let mut holders = ledger.holders(database, *row).map(|((xid, _), _)| *xid);
        let undecided = holders.find(|xid| !ledger.is_committed(*xid));
        verdict.require(undecided.is_none(), || {
            let row = row.0;
            format!("row {row} of database {database}, which {undecided:?} holds, is written from outside")
        });
    }
}

fn check_kept(written: &RowChanges, verdict: &mut Verdict) {
    for (row, branch) in &written.kept {
        let has_undo = |(of, _, undo): &(_, _, Option<Undo>)| {
            of == branch && matches!(undo, Some(Undo::Log(_)))
        };
        verdict.require(written.undo.iter().any(has_undo), || {
            let (xid, branch) = branch;
            format!(
                "row {} is kept for {xid}/{branch}, whose undo row does not come with it",
                row.0
            )
        });
    }
}
