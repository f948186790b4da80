//! A model of registration, decision, lock hand-over and change of leadership, checked
//! exhaustively at small sizes.
//!
//! The rules are not written down a second time: a state of the model holds real coordinators,
//! leaders that may not know yet that they are deposed, over one store of records. Its steps are
//! requests, sent to any of them in any order; batches written or lost; the next leader loading the
//! records; branches answering; and time. `witness` says what may never be seen from outside,
//! `healing` that everything ends once the faults stop.

#[path = "../support/mod.rs"]
mod support;

mod healing;
mod request;
mod step;
mod system;
mod witness;

use handfast_core::Decision::{Commit, RollBack};
use handfast_core::{Decision, DeltaTag, Holding, LockMode};
use stateright::{Checker, Model};

use crate::request::{BranchPlan, GlobalPlan};
use crate::system::{Flag, Seen, Setup};

/// Three globals pass two rows on to each other; one of them wants both at once.
#[test]
fn rows_are_handed_over() {
    let (one, other) = (plan(&[&[0]], &[RollBack]), plan(&[&[1]], &[Commit]));
    let globals = vec![one, plan(&[&[0, 1]], &[Commit, RollBack]), other];
    let setup = Setup { globals, ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.granted_later.get() && seen.expired.get()));
}

/// Two globals take the same two rows in opposite order, a row at a time.
#[test]
fn cycles_are_refused() {
    let globals = vec![plan(&[&[0], &[1]], &[Commit]), plan(&[&[1], &[0]], &[RollBack])];
    let setup = Setup { globals, ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.deadlock.get() && seen.granted_later.get()));
}

/// Requesters that hold database locks do not wait for a global that rolls back.
#[test]
fn holders_of_database_locks_fail_fast() {
    let (one, other) = (plan(&[&[0]], &[RollBack, Commit]), plan(&[&[1]], &[Commit]));
    let globals = [one, plan(&[&[0, 1]], &[RollBack]), other];
    let globals = globals.map(|plan| GlobalPlan { holding: Holding::DatabaseLocks, ..plan });
    let setup = Setup { globals: globals.into(), ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.failed_fast.get() && seen.granted_later.get()));
}

/// Leadership changes hands, and every request is sent twice, to the old leader or the next.
#[test]
fn leaders_are_fenced() {
    let globals = vec![plan(&[&[0]], &[Commit, RollBack])];
    let setup = Setup { globals, sends_max: 2, epochs_max: 2, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.fenced.get() && seen.lost_decision.get()));
}

/// The row that one global holds and another waits for, when leadership changes hands.
#[test]
fn locks_outlive_their_leader() {
    let globals = vec![plan(&[&[0]], &[Commit, RollBack]), plan(&[&[0]], &[RollBack])];
    let setup = Setup { globals, epochs_max: 2, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.fenced.get() && seen.granted_later.get()));
}

/// One global, three leaders in a row, and time running out.
#[test]
fn decisions_survive_two_changes_of_leadership() {
    let globals = vec![plan(&[&[0]], &[Commit, RollBack])];
    let setup = Setup { globals, epochs_max: 3, ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.fenced.get() && seen.lost_decision.get()));
}

/// The last branch decides by its local commit, which is told, lost, or asked for; others try to
/// decide meanwhile.
#[test]
fn a_last_branch_is_followed() {
    let last = GlobalPlan { last_decides: true, ..plan(&[&[0], &[1]], &[RollBack]) };
    let setup = Setup { globals: vec![last], ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.settled.iter().all(Flag::get)));
}

/// The same when leadership changes hands around the local commit.
#[test]
fn a_last_branch_is_followed_by_the_next_leader() {
    let last = GlobalPlan { last_decides: true, ..plan(&[&[0]], &[RollBack]) };
    let setup = Setup { globals: vec![last], epochs_max: 2, ticks_max: 1, ..Setup::default() };
    let wanted = |seen: &Seen| seen.fenced.get() && seen.settled.iter().all(Flag::get);
    println!("{}", check(setup, wanted));
}

/// A branch that may be lost meets a global that others decide about its row, when leadership
/// changes hands.
#[test]
fn a_branch_that_may_be_lost_meets_no_undecided_global() {
    let alone = GlobalPlan {
        last_decides: true,
        may_be_lost: true,
        holding: Holding::DatabaseLocks,
        ..plan(&[&[0]], &[RollBack])
    };
    for end in [Commit, RollBack] {
        let globals = vec![alone.clone(), plan(&[&[0]], &[end])];
        let setup = Setup { globals, epochs_max: 2, ..Setup::default() };
        let wanted = |seen: &Seen| seen.fenced.get() && seen.lost_branch.get();
        println!("{}", check(setup, wanted));
    }
}

/// Beside another branch of its global it is not lost.
#[test]
fn a_branch_with_another_one_is_not_lost() {
    let last =
        GlobalPlan { last_decides: true, may_be_lost: true, ..plan(&[&[0], &[1]], &[RollBack]) };
    let setup = Setup { globals: vec![last], epochs_max: 2, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.fenced.get() && seen.lost_branch.get()));
}

/// The same with a begin whose answer was lost, and time running out.
#[test]
fn a_branch_that_may_be_lost_begins_no_second_time() {
    let alone = GlobalPlan { last_decides: true, may_be_lost: true, ..plan(&[&[0]], &[RollBack]) };
    let (sends_max, begins_max, epochs_max, ticks_max) = (2, 1, 2, 1);
    let globals = vec![alone];
    let setup = Setup { globals, sends_max, begins_max, epochs_max, ticks_max, ..Setup::default() };
    let wanted = |seen: &Seen| seen.lost_branch.get() && seen.begun_anew.get();
    println!("{}", check(setup, wanted));
}

/// A begin whose answer was lost reaches the next leader, before or behind what follows it.
#[test]
fn a_lent_xid_begins_again_under_the_next_leader() {
    for end in [Commit, RollBack] {
        let globals = vec![plan(&[&[0]], &[end])];
        let (sends_max, begins_max, epochs_max, ticks_max) = (2, 2, 2, 1);
        let setup =
            Setup { globals, sends_max, begins_max, epochs_max, ticks_max, ..Setup::default() };
        println!("{}", check(setup, |seen| seen.fenced.get() && seen.begun_anew.get()));
    }
}

/// Two globals change a row in ways that commute, a third one in another way, and a fourth one
/// wants it for itself.
#[test]
fn deltas_of_one_kind_hold_a_row_together() {
    let delta = |kind, end| in_mode(LockMode::Delta(DeltaTag::new(kind)), plan(&[&[0]], &[end]));
    let globals =
        vec![delta(1, Commit), delta(1, RollBack), delta(2, RollBack), plan(&[&[0]], &[Commit])];
    let setup = Setup { globals, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.granted_later.get() && seen.shared.get()));
}

/// Two globals that hold a row together both want it for themselves, or in another way.
#[test]
fn holders_of_deltas_that_want_more_may_deadlock() {
    let delta = |kind| BranchPlan { rows: vec![0], mode: LockMode::Delta(DeltaTag::new(kind)) };
    let alone = BranchPlan { rows: vec![0], mode: LockMode::Exclusive };
    let of = |branches| GlobalPlan { branches, ..plan(&[], &[Commit]) };
    let globals = vec![of(vec![delta(1), alone]), of(vec![delta(1), delta(2)])];
    let setup = Setup { globals, ticks_max: 1, ..Setup::default() };
    println!("{}", check(setup, |seen| seen.deadlock.get() && seen.shared.get()));
}

fn in_mode(mode: LockMode, mut plan: GlobalPlan) -> GlobalPlan {
    plan.branches.iter_mut().for_each(|branch| branch.mode = mode);
    plan
}

/// A global whose branches want these rows, and the decisions that are asked for.
fn plan(branches: &[&[usize]], ends: &[Decision]) -> GlobalPlan {
    let mode = LockMode::Exclusive;
    let branch = |rows: &&[usize]| BranchPlan { rows: rows.to_vec(), mode };
    let branches = branches.iter().map(branch).collect();
    let (ends, holding) = (ends.to_vec(), Holding::Nothing);
    GlobalPlan { branches, ends, holding, last_decides: false, may_be_lost: false }
}

/// Visits every state there is, and wants the events that make the set-up worth its time. Tells how
/// much there was to visit.
fn check(setup: Setup, wanted: impl Fn(&Seen) -> bool) -> String {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let checker = setup.checker().threads(threads).spawn_bfs().join();
    if let Some((property, path)) = checker.discoveries().into_iter().next() {
        let (last, broken) = (path.last_state(), path.last_state().witness.broken);
        let steps = path.clone().into_actions();
        panic!("not held: {property}; {broken:?}, after {steps:#?}\n{last:#?}");
    }
    let seen = &checker.model().seen;
    assert!(wanted(seen), "the set-up never reached what it is for: {seen:?}");
    format!("{} steps, {} states", checker.state_count(), checker.unique_state_count())
}
