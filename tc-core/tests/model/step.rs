//! The effect of each step on the system.

use std::collections::VecDeque;
use std::sync::Arc;

use handfast_core::{
    BranchId, Change, Command, Coordinator, Correlation, Effect, GlobalStatus, LentXid, LoanTerms,
    Outcome, PhaseTwoOutcome, Rejection, Reply, Request, VoteRequest, Xid,
};

use crate::request::Ask;
use crate::support::{held, views};
use crate::system::{Call, Leader, Setup, Step, System, Waiting, begin, client, xid_of};

impl System {
    pub(crate) fn take(&mut self, setup: &Setup, step: Step) {
        match step {
            Step::Send { leader, global, ask } => self.send(setup, leader, global, ask),
            Step::BeginAgain { leader, global } => self.begin_again(setup, leader, global),
            Step::Write { leader } => self.write(setup, leader),
            Step::WriteAndDie { leader } => {
                self.store_next_batch(leader);
                self.leaders.retain(|it| it.epoch != leader);
            }
            Step::Lead => self.lead(setup),
            Step::Answer { leader, call } => self.answer(setup, leader, call),
            Step::CommitLocally { global } => {
                let status = |it: &Leader| it.coordinator.status(xid_of(global));
                if self.leaders.iter().all(|it| status(it) == GlobalStatus::Unknown) {
                    setup.seen.lost_branch.set();
                }
                // Its caller is told that the global is committed.
                self.locally.insert(xid_of(global), true);
                self.witness.see_local_commit(xid_of(global));
            }
            Step::Settle { leader, global } => self.settle(setup, leader, global),
            Step::Tick { leader } => self.tick(setup, leader),
        }
    }

    fn send(&mut self, setup: &Setup, leader: u64, global: usize, ask: Ask) {
        let plan = &setup.globals[global];
        let place = plan.asks().position(|it| it == ask).expect("an ask of the plan");
        self.sent[global][place] += 1;
        let number = (global * 16 + place) * 16 + usize::from(self.sent[global][place]);
        let reply_to = Correlation(number as u64);
        let request = plan.request(xid_of(global), ask, reply_to);
        let before = self.leader(leader).coordinator.clone();
        let out = self.decide(setup, leader, request);
        match (ask, reply_of(&out, reply_to)) {
            (Ask::Register(_), Some(Reply::Rejected(_))) => {
                self.check_nothing_left(leader, &before, &out);
            }
            (Ask::Register(branch), None) => {
                let (xid, branch) = (xid_of(global), plan.branches[branch].clone());
                self.leader_mut(leader).waiting.push(Waiting { reply_to, xid, branch });
            }
            (Ask::Register(branch), Some(&Reply::Registered { may_be_lost, .. })) => {
                let branch = &plan.branches[branch];
                if may_be_lost && self.has_written_commits(leader) {
                    self.witness.see_early_grant(xid_of(global), branch);
                    if setup.begins_max > 0 {
                        self.answered.insert(global);
                    }
                }
                let mut waiting = self.leader(leader).waiting.iter();
                let holds_rows = holds_rows(&before, xid_of(global));
                if !holds_rows && waiting.any(|it| it.branch.meets(branch)) {
                    self.witness.blame("a request overtakes one that waits for the row");
                }
            }
            (Ask::Register(_) | Ask::Report | Ask::End(_), _) => {}
        }
    }

    /// Whether a reply may leave that waits for commits alone: the leader is none that is deposed,
    /// and it has written what it has committed.
    fn has_written_commits(&self, leader: u64) -> bool {
        let unwritten = &self.leader(leader).undurable;
        leader == self.epoch && !unwritten.iter().any(|batch| batch.has_committed)
    }

    /// Its answer is lost again; the client sees it with that to another request.
    fn begin_again(&mut self, setup: &Setup, epoch: u64, global: usize) {
        self.begun_again[global] += 1;
        let (xid, now) = (xid_of(global), self.now);
        let lent = LentXid { xid, address: "tc".into() };
        let request = begin(LoanTerms { xid: Some(lent), wants: 0 });
        let leader = self.leader_mut(epoch);
        let is_new = leader.coordinator.status(xid) == GlobalStatus::Unknown;
        let mut out = Outcome::default();
        leader.coordinator.decide_for(client(), now, request, &mut out);
        let is_begun = matches!(reply_of(&out, Correlation(0)), Some(Reply::Begun { .. }));
        if is_new && is_begun {
            setup.seen.begun_anew.set();
        }
    }

    /// A refused registration leaves nothing: no change, no lock, no place in a queue, no branch.
    fn check_nothing_left(&mut self, leader: u64, before: &Coordinator, out: &Outcome) {
        let after = &self.leader(leader).coordinator;
        let shown = |it: &Coordinator| (views(it), held(it), it.counts());
        if !out.changes.is_empty() || shown(before) != shown(after) {
            self.witness.blame("a refused registration left something");
        }
    }

    fn answer(&mut self, setup: &Setup, leader: u64, call: Call) {
        let (xid, branch, decision) = call;
        self.witness.see_carried_out(call);
        let outcome = PhaseTwoOutcome::Done;
        let command = Command::FinishPhaseTwo { xid, branch, decision, outcome };
        self.decide(setup, leader, Request { reply_to: None, command });
    }

    /// A branch that has not committed never does from here on: the guard row bars it.
    fn settle(&mut self, setup: &Setup, leader: u64, global: usize) {
        let xid = xid_of(global);
        let has_committed = *self.locally.entry(xid).or_insert(false);
        let branch = setup.globals[global].last_branch().expect("it was asked");
        let before = self.leader(leader).coordinator.status(xid);
        self.decide(setup, leader, settled(xid, branch, has_committed));
        if before == GlobalStatus::Active
            && self.leader(leader).coordinator.status(xid) != GlobalStatus::Active
        {
            setup.seen.settled[usize::from(has_committed)].set();
        }
    }

    fn tick(&mut self, setup: &Setup, leader: u64) {
        self.ticks += 1;
        let due = self.leader(leader).coordinator.next_deadline();
        self.now = self.now.max(due.expect("only leaders with something due tick"));
        self.decide(setup, leader, Request { reply_to: None, command: Command::Tick });
    }

    fn decide(&mut self, setup: &Setup, epoch: u64, request: Request) -> Outcome {
        let (now, asker) = (self.now, request.reply_to);
        let leader = self.leader_mut(epoch);
        let mut out = Outcome::default();
        let before = leader.coordinator.clone();
        leader.coordinator.decide(now, request, &mut out);
        note(setup, asker, &out);
        if !leader.answers_in_order(&before, &out) {
            self.witness.blame("a request is granted a row before one that came first");
        }
        if held(&self.leader(epoch).coordinator)
            .iter()
            .any(|lock| lock.holders.iter().any(|it| it.xid != lock.holders[0].xid))
        {
            setup.seen.shared.set();
        }
        let leader = self.leader_mut(epoch);
        if out != Outcome::default() {
            leader.undurable.push_back(out.clone());
            if setup.epochs_max == 1 {
                // No leader can lose it.
                self.write(setup, epoch);
            }
        }
        out
    }

    // ---- leadership ----

    pub(crate) fn lead(&mut self, setup: &Setup) {
        self.epoch += 1;
        let loaded = self.store.load(self.epoch, &setup.limits);
        let coordinator = loaded.expect("RECORDED: the records fit together");
        let mut owed = Outcome::default();
        coordinator.owed(&mut owed);
        self.release(setup, &owed);
        let (epoch, undurable, waiting) = (self.epoch, VecDeque::new(), Vec::new());
        self.leaders.push(Leader { epoch, coordinator, undurable, waiting });
    }

    /// DURABLE-FIRST and the fence: a batch with changes is written under the store's epoch, or
    /// its leader ends with everything that it has not written. One without is durable already.
    fn write(&mut self, setup: &Setup, leader: u64) {
        let batch = self.leader(leader).undurable.front().expect("only what is there is written");
        if leader != self.epoch && !batch.changes.is_empty() {
            setup.seen.fenced.set();
            self.note_lost_decisions(setup, leader);
            self.leaders.retain(|it| it.epoch != leader);
            return;
        }
        let batch = self.store_next_batch(leader);
        self.release(setup, &batch);
    }

    fn store_next_batch(&mut self, leader: u64) -> Outcome {
        let batch = self.leader_mut(leader).undurable.pop_front();
        let batch = batch.expect("only what is there is written");
        self.witness.see_changes(&self.store, &batch.changes);
        self.store.apply(&batch.changes);
        batch
    }

    fn release(&mut self, setup: &Setup, batch: &Outcome) {
        for effect in &batch.effects {
            self.witness.see(effect);
            if setup.begins_max > 0 {
                self.answered.extend(answered_global(effect));
            }
            match effect {
                Effect::PhaseTwo(call) => {
                    self.calls.insert((call.xid, call.branch, call.decision));
                }
                Effect::Vote(call) => {
                    self.questions.insert(call.xid);
                }
                Effect::Reply { .. } | Effect::Hold { .. } | Effect::Alert(_) => {}
            }
        }
    }

    fn note_lost_decisions(&self, setup: &Setup, leader: u64) {
        let lost = self.leader(leader).undurable.iter().flat_map(|batch| &batch.changes);
        let decides = |change: &Change| crate::witness::decision_stored(change).is_some();
        if lost.into_iter().any(decides) {
            setup.seen.lost_decision.set();
        }
    }

    fn leader(&self, epoch: u64) -> &Leader {
        self.leaders.iter().find(|it| it.epoch == epoch).expect("a leader that lives")
    }

    fn leader_mut(&mut self, epoch: u64) -> &mut Leader {
        self.leaders.iter_mut().find(|it| it.epoch == epoch).expect("a leader that lives")
    }
}

impl Leader {
    /// Among the requests that wait for a row, the first that came is granted it first, unless one
    /// of a global that holds rows overtakes it.
    fn answers_in_order(&mut self, before: &Coordinator, out: &Outcome) -> bool {
        let mut in_order = true;
        for effect in &out.effects {
            let Effect::Reply { to, reply, .. } = effect else { continue };
            let Some(place) = self.waiting.iter().position(|it| it.reply_to == *to) else {
                continue;
            };
            let Waiting { xid, branch, .. } = self.waiting.remove(place);
            let mut earlier = self.waiting[..place].iter();
            let is_granted = matches!(reply, Reply::Registered { .. });
            let may_overtake = || holds_rows(before, xid);
            in_order &=
                !is_granted || may_overtake() || !earlier.any(|it| it.branch.meets(&branch));
        }
        in_order
    }
}

/// The global of a request that is answered. One about an unknown XID is sent again behind the
/// begin.
fn answered_global(effect: &Effect) -> Option<usize> {
    let Effect::Reply { to, reply, .. } = effect else { return None };
    let is_unknown = matches!(reply, Reply::Rejected(Rejection::UnknownXid(_)));
    (!is_unknown).then_some(usize::try_from(to.0 >> 8).ok()?)
}

/// The answer of a database that was asked whether a last branch has committed.
pub(crate) fn settled(xid: Xid, branch: BranchId, has_committed: bool) -> Request {
    let refused = || PhaseTwoOutcome::Refused { error: "barred".into(), rows: Arc::default() };
    let outcome = if has_committed { PhaseTwoOutcome::Done } else { refused() };
    let question = VoteRequest::Settle;
    Request { reply_to: None, command: Command::Vote { xid, branch, question, outcome } }
}

fn holds_rows(coordinator: &Coordinator, xid: Xid) -> bool {
    held(coordinator).iter().any(|lock| lock.holders.iter().any(|holder| holder.xid == xid))
}

fn reply_of(out: &Outcome, asker: Correlation) -> Option<&Reply> {
    out.effects.iter().find_map(|effect| match effect {
        Effect::Reply { to, reply, .. } if *to == asker => Some(reply),
        Effect::Reply { .. }
        | Effect::PhaseTwo(_)
        | Effect::Vote(_)
        | Effect::Hold { .. }
        | Effect::Alert(_) => None,
    })
}

/// Notes what a decision shows of the events that set-ups are for.
fn note(setup: &Setup, asker: Option<Correlation>, out: &Outcome) {
    for effect in &out.effects {
        let Effect::Reply { to, reply, .. } = effect else { continue };
        let later = Some(*to) != asker;
        match reply {
            Reply::Registered { .. } if later => setup.seen.granted_later.set(),
            Reply::Rejected(Rejection::RowLocked { holder_rolling_back: true, .. }) => {
                setup.seen.failed_fast.set();
            }
            Reply::Rejected(Rejection::RowLocked { .. }) if later => setup.seen.expired.set(),
            Reply::Rejected(Rejection::Deadlock { .. }) => setup.seen.deadlock.set(),
            Reply::Begun { .. }
            | Reply::Registered { .. }
            | Reply::Reported
            | Reply::LastReported
            | Reply::Unlocked
            | Reply::Ended(_)
            | Reply::Status(_)
            | Reply::Operated(_)
            | Reply::Saga(_)
            | Reply::LockGranted { .. }
            | Reply::LockBusy { .. }
            | Reply::LockFound { .. }
            | Reply::LocksRenewed { .. }
            | Reply::LockFreed
            | Reply::LockNotHeld { .. }
            | Reply::LockBroken { .. }
            | Reply::Rejected(_) => {}
        }
    }
}
