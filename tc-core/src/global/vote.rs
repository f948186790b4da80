//! The votes before a commit, of branches that prepare when they are asked and not in phase one.
//!
//! ```text
//! commit asked for ─▶ [can commit? all of them] ─▶ prepare, all of them ─▶ decided: commit
//!                             └──────── one refuses ────────┴────────────▶ decided: roll back
//! ```
//!
//! The branch that decides a global by its local commit is asked in the same way if it has not
//! reported when the global's time is over: whether it has committed (LAST-BRANCH).
//!
//! A voting is a request that waits: it lives in memory alone, as the queues do. After a restart
//! the global is undecided as it was before, and the client asks for the commit again, or the
//! deadline decides. A prepared branch is recorded, and is not asked twice. A vote that is
//! missing never decides anything.

use std::collections::BTreeSet;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::branch::{Branch, BranchStage};
use super::end::{event_text, phase_after};
use super::globals::Globals;
use super::state::{Global, Phase};
use super::table::GlobalTable;
use super::voting::{Voting, Votings};
use crate::contract::{
    BranchId, Correlation, DecidedBy, Decision, Effect, Mode, PhaseTwoOutcome, Rejection, Reply,
    ReplyWhen, RollbackReason, VoteCall, VoteRequest, VotingRounds, Xid,
};
use crate::decision_context::HandlerResult;
use crate::waiting::Awaited;

/// A request to commit.
pub(crate) struct Commit {
    pub(crate) to: Option<Correlation>,
    pub(crate) rounds: VotingRounds,
    pub(crate) by: DecidedBy,
    pub(crate) reason: Arc<str>,
    pub(crate) reply_when: ReplyWhen,
}

impl Globals<'_> {
    /// Commits a global, once its participants have voted if they have to be asked.
    pub(crate) fn commit(&mut self, xid: Xid, commit: Commit) -> HandlerResult {
        if self.needs_votes(xid) {
            return self.start_voting(xid, commit);
        }
        let Commit { to, by, reason, reply_when, .. } = commit;
        let status = self.end(xid, Decision::Commit, by, &reason)?;
        Ok(self.answer_end(to, self.on.asker, xid, status, reply_when))
    }

    /// Returns whether a commit of the global has to wait for votes.
    fn needs_votes(&self, xid: Xid) -> bool {
        let global = self.globals.get(xid);
        global.is_some_and(|global| {
            global.phase == Phase::Active && !global.is_rollback_only() && must_vote(global)
        })
    }

    /// Asks the participants, unless they are being asked. The reply follows the decision.
    fn start_voting(&mut self, xid: Xid, commit: Commit) -> HandlerResult {
        let Commit { to, rounds, by, reason, reply_when } = commit;
        // This comes before any participant is asked: a refused request leaves no voting behind.
        if to.is_some() {
            self.check_room_to_wait()?;
        }
        if let Entry::Vacant(place) = self.votings.entry(xid) {
            let question = match rounds {
                VotingRounds::CanCommitFirst => VoteRequest::CanCommit,
                VotingRounds::PrepareOnly => VoteRequest::Prepare,
            };
            let (can_commit, askers) = (BTreeSet::new(), Vec::new());
            place.insert(Voting { question, can_commit, by, reason, askers });
            self.ask_all(xid, question);
        }
        if let (Some(to), Some(voting)) = (to, self.votings.get_mut(&xid)) {
            voting.askers.push((to, reply_when));
            self.waiting.enter(to, Awaited::Votes(xid), self.on.asker);
        }
        Ok(None)
    }

    /// Takes a participant's answer. An answer to another question, or of a branch that is not
    /// asked, is an echo (EFFECTS-REPEAT).
    pub(crate) fn vote(
        &mut self,
        xid: Xid,
        branch: BranchId,
        question: VoteRequest,
        outcome: PhaseTwoOutcome,
    ) {
        let asked = self.votings.get(&xid).is_some_and(|voting| voting.question == question);
        let global = self.globals.get(xid).filter(|_| asked);
        if !global.is_some_and(|it| voters(it, question).any(|voter| voter.id == branch)) {
            return;
        }
        match (outcome, question) {
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, VoteRequest::CanCommit) => {
                if let Some(voting) = self.votings.get_mut(&xid) {
                    voting.can_commit.insert(branch);
                }
                self.count_votes(xid);
            }
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, VoteRequest::Prepare) => {
                self.mark_done(xid, branch);
                self.count_votes(xid);
            }
            (PhaseTwoOutcome::Done | PhaseTwoOutcome::Output { .. }, VoteRequest::Settle) => {
                let event = "decided: commit (its last branch had committed)";
                self.decide_global(xid, Phase::Committing, event);
            }
            (PhaseTwoOutcome::Refused { .. }, VoteRequest::Settle) => self.time_out(xid),
            (
                PhaseTwoOutcome::Retryable { error },
                VoteRequest::CanCommit | VoteRequest::Prepare | VoteRequest::Settle,
            ) => {
                // VOTES: this decides nothing. The question stays with the dispatcher, which asks
                // again.
                self.fail_branch(xid, branch, error);
            }
            (
                PhaseTwoOutcome::Refused { error, .. },
                VoteRequest::CanCommit | VoteRequest::Prepare,
            ) => {
                let phase = Phase::RollingBack(RollbackReason::Refused);
                let event = format!("{}: branch {branch}: {error}", event_of(phase));
                self.decide_global(xid, phase, &event);
            }
        }
    }

    /// Advances the voting, if there is one, as far as the votes allow.
    pub(crate) fn count_votes(&mut self, xid: Xid) {
        let (Some(voting), Some(global)) = (self.votings.get_mut(&xid), self.globals.get(xid))
        else {
            return;
        };
        let question = voting.question;
        let is_over = global.is_rollback_only() || voters(global, question).next().is_none();
        let can_all = voters(global, question).all(|voter| voting.can_commit.contains(&voter.id));
        match question {
            // The branch is gone, or will never say more.
            VoteRequest::Settle if is_over => self.time_out(xid),
            VoteRequest::CanCommit | VoteRequest::Prepare if is_over => {
                let phase = phase_after(Decision::Commit, voting.by, global.is_rollback_only());
                let event = event_text(phase, voting.by, &voting.reason);
                self.decide_global(xid, phase, &event);
            }
            VoteRequest::CanCommit if can_all => {
                voting.question = VoteRequest::Prepare;
                self.ask_all(xid, VoteRequest::Prepare);
            }
            VoteRequest::CanCommit | VoteRequest::Prepare | VoteRequest::Settle => {}
        }
    }

    /// Asks the branch that decides a global, whose time is over, whether it has committed. Returns
    /// whether there is such a branch.
    pub(crate) fn settle_last(&mut self, xid: Xid) -> bool {
        if self.globals.get(xid).is_none_or(|global| global.deciding().is_none()) {
            return false;
        }
        self.globals.leave_to_its_last_branch(xid);
        // The question stays with the dispatcher until it is answered.
        if let Entry::Vacant(place) = self.votings.entry(xid) {
            let (question, by) = (VoteRequest::Settle, DecidedBy::Client);
            let reason = self.on.names.text_of("timeout");
            let (can_commit, askers) = (BTreeSet::new(), Vec::new());
            place.insert(Voting { question, can_commit, by, reason, askers });
            self.ask_all(xid, question);
        }
        true
    }

    /// Rolls back a global whose time is over.
    pub(crate) fn time_out(&mut self, xid: Xid) {
        let phase = Phase::RollingBack(RollbackReason::Timeout);
        self.decide_global(xid, phase, "decided: roll back (timeout)");
    }

    /// Ends the voting of a global that is being decided. Questions under way are withdrawn, since
    /// a rollback calls its branches one after the other.
    pub(crate) fn close_voting(&mut self, xid: Xid) -> Option<Voting> {
        let voting = self.votings.remove(&xid)?;
        self.on.out.effects.push(Effect::Hold { xid, branch: None });
        Some(voting)
    }

    /// Answers the requests for the commit.
    pub(crate) fn answer_askers(&mut self, xid: Xid, voting: Voting, phase: Phase) {
        let status = self.status_decided(xid, phase);
        for (to, reply_when) in voting.askers {
            // Its place is given up first: the wait for the end, if there is one, takes another
            // place. That one counts towards the sender of the commit, not towards that of the last
            // vote.
            let asker = self.waiting.leave(to, Awaited::Votes(xid));
            let reply = if phase.answers_a_commit() {
                self.answer_end(Some(to), &asker, xid, status, reply_when)
            } else {
                Some(Reply::Rejected(Rejection::AlreadyDecided { xid, status }))
            };
            if let Some(reply) = reply {
                self.on.reply(Some(to), reply);
            }
        }
    }

    /// Gives up the place of a request for the commit. The voting goes on, as a commit does.
    pub(crate) fn forget_asker(&mut self, xid: Xid, asker: Correlation) {
        if let Some(voting) = self.votings.get_mut(&xid) {
            voting.askers.retain(|&(to, _)| to != asker);
        }
        self.waiting.leave(asker, Awaited::Votes(xid));
    }

    fn ask_all(&mut self, xid: Xid, question: VoteRequest) {
        let Some(global) = self.globals.get(xid) else { return };
        let call = |branch: &Branch| VoteCall {
            xid,
            address: global.origin.address.clone(),
            branch: branch.id,
            resource: branch.resource().clone(),
            mode: branch.mode,
            question,
            application_data: branch.application_data(),
            registered_by: branch.registered_by(),
            trace: global.question_trace(branch, self.on.now),
        };
        let calls = voters(global, question).map(|voter| Effect::Vote(call(voter)));
        self.on.out.effects.extend(calls);
    }
}

/// Checks that every voting waits for a vote, and that nothing commits unprepared.
pub(crate) fn check_votings(globals: &GlobalTable, votings: &Votings) -> Result<(), String> {
    for (xid, voting) in votings {
        let waits = |global: &Global| {
            let is_missing = |voter: &Branch| match voting.question {
                VoteRequest::CanCommit => !voting.can_commit.contains(&voter.id),
                VoteRequest::Prepare | VoteRequest::Settle => true,
            };
            global.phase == Phase::Active && voters(global, voting.question).any(is_missing)
        };
        if !globals.get(*xid).is_some_and(waits) {
            return Err(format!("VOTES: the voting of xid {xid} waits for no branch"));
        }
    }
    let commits_unprepared =
        |global: &&Global| global.phase == Phase::Committing && must_vote(global);
    match globals.iter().find(commits_unprepared) {
        Some(global) => Err(format!("VOTES: xid {} commits unprepared", global.xid)),
        None => Ok(()),
    }
}

/// Returns whether branches have to be asked before a commit.
pub(crate) fn must_vote(global: &Global) -> bool {
    voters(global, VoteRequest::Prepare).next().is_some()
}

/// The branches that have to be asked.
fn voters(global: &Global, question: VoteRequest) -> impl Iterator<Item = &Branch> {
    let is_voter = move |branch: &&Branch| match question {
        VoteRequest::CanCommit | VoteRequest::Prepare => {
            branch.mode == Mode::TwoPhase && branch.stage == BranchStage::Registered
        }
        VoteRequest::Settle => branch.stage == BranchStage::Deciding,
    };
    global.branches.iter().filter(is_voter)
}

fn event_of(phase: Phase) -> String {
    event_text(phase, DecidedBy::Client, "").into_owned()
}
