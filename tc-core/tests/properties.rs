//! Random requests against the invariants, and against the coordinator itself run a second time.
//!
//! A failure that they find becomes a script before it is fixed.

mod support;
mod world;

use std::sync::Arc;

use handfast_core::{
    DecidedBy, Decision, DeltaTag, Holding, Limits, LockMode, LockWait, OperatorAction, Outcome,
    PhaseOneOutcome, PhaseTwoOutcome, ReplyWhen, Resolution, VoteRequest, VotingRounds,
};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::world::{KEYS, RESOURCES, Step, World};

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Every invariant holds after every step, and everything ends when the branches answer.
    #[test]
    fn invariants_hold(steps in vec(step(), 1..80), limits in limits()) {
        let mut world = World::new(limits);
        steps.iter().for_each(|step| drop(world.step(step)));
        world.finish();
    }

    /// The same where a few long globals with parallel branches fight for a few rows: queues are
    /// long, and cycles close by requests, by grants and by branches that fail.
    #[test]
    fn invariants_hold_under_contention(steps in vec(contention(), 1..60)) {
        let mut world = World::new(Limits::default());
        let begin = Step::Begin { timeout_ms: 1_000_000, client: 0, lent: None, wants: 0 };
        (0..GLOBALS).for_each(|_| drop(world.step(&begin)));
        steps.iter().for_each(|step| drop(world.step(step)));
        world.finish();
    }

    /// PURE: the same requests at the same times give the same outcomes.
    #[test]
    fn same_inputs_same_outcomes(steps in vec(step(), 1..80), limits in limits()) {
        let run = || -> Vec<Outcome> {
            let mut world = World::new(limits.clone());
            steps.iter().map(|step| world.step(step)).collect()
        };
        prop_assert_eq!(run(), run());
    }
}

/// How many globals fight.
const GLOBALS: usize = 4;

fn contention() -> impl Strategy<Value = Step> {
    let wait = LockWait { timeout_ms: 100_000, holding: Holding::Nothing };
    let rows = vec((0..KEYS, lock_mode()), 1..4);
    let register = (0..GLOBALS, branch(), rows).prop_map(move |(global, branch, rows)| {
        Step::Register { global, branch, resource: 0, rows, wait }
    });
    let report = (0..GLOBALS, branch()).prop_map(|(global, branch)| Step::Report {
        global,
        branch,
        outcome: Some(PhaseOneOutcome::Failed),
        data: "",
    });
    let checked = vec((0..KEYS, lock_mode()), 1..3);
    let check = (0..GLOBALS, checked).prop_map(move |(global, rows)| Step::Check {
        global: Some(global),
        resource: 0,
        rows,
        wait,
    });
    let forget = any::<usize>().prop_map(|waiting| Step::Forget { waiting });
    prop_oneof![12 => register, 4 => report, 1 => check, 1 => forget]
}

fn limits() -> impl Strategy<Value = Limits> {
    prop_oneof![Just(Limits::default()), Just(Limits::tiny())]
}

fn begin() -> impl Strategy<Value = Step> {
    let lent = proptest::option::of(any::<usize>());
    (0..3_000u64, 0..3u64, lent, 0..4u32).prop_map(|(timeout_ms, client, lent, wants)| {
        Step::Begin { timeout_ms, client, lent, wants }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => begin(),
        24 => register(),
        3 => report(),
        4 => check(),
        6 => end(),
        8 => (any::<usize>(), outcome())
            .prop_map(|(call, outcome)| Step::Answer { call, outcome }),
        2 => invent(),
        8 => vote(),
        2 => any::<usize>().prop_map(|waiting| Step::Forget { waiting }),
        3 => (any::<usize>(), action())
            .prop_map(|(global, action)| Step::Operate { global, action }),
        3 => (0..500u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::Restart),
    ]
}

fn register() -> impl Strategy<Value = Step> {
    let rows = vec((0..KEYS, lock_mode()), 0..4);
    (any::<usize>(), branch(), 0..RESOURCES.len(), rows, lock_wait()).prop_map(
        |(global, branch, resource, rows, wait)| Step::Register {
            global,
            branch,
            resource,
            rows,
            wait,
        },
    )
}

fn invent() -> impl Strategy<Value = Step> {
    (any::<usize>(), branch(), decision(), outcome()).prop_map(
        |(global, branch, decision, outcome)| Step::Invent { global, branch, decision, outcome },
    )
}

fn vote() -> impl Strategy<Value = Step> {
    let question = prop_oneof![
        Just(VoteRequest::CanCommit),
        Just(VoteRequest::Prepare),
        Just(VoteRequest::Settle)
    ];
    (any::<usize>(), branch(), question, outcome()).prop_map(
        |(global, branch, question, outcome)| Step::Vote { global, branch, question, outcome },
    )
}

fn report() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        Just(Some(PhaseOneOutcome::Done)),
        Just(Some(PhaseOneOutcome::Failed)),
        Just(Some(PhaseOneOutcome::Failed)),
        Just(Some(PhaseOneOutcome::Unknown)),
        Just(None)
    ];
    let data = prop_oneof![Just(""), Just("a"), Just("b")];
    (any::<usize>(), branch(), outcome, data)
        .prop_map(|(global, branch, outcome, data)| Step::Report { global, branch, outcome, data })
}

fn check() -> impl Strategy<Value = Step> {
    let global = proptest::option::of(any::<usize>());
    (global, 0..RESOURCES.len(), vec((0..KEYS, lock_mode()), 1..4), lock_wait())
        .prop_map(|(global, resource, rows, wait)| Step::Check { global, resource, rows, wait })
}

fn end() -> impl Strategy<Value = Step> {
    let by = prop_oneof![Just(DecidedBy::Client), Just(DecidedBy::Operator)];
    let reply_when = prop_oneof![Just(ReplyWhen::Decided), Just(ReplyWhen::Finished)];
    let rounds = prop_oneof![Just(VotingRounds::PrepareOnly), Just(VotingRounds::CanCommitFirst)];
    (any::<usize>(), decision(), rounds, by, reply_when).prop_map(
        |(global, decision, rounds, by, reply_when)| Step::End {
            global,
            decision,
            rounds,
            by,
            reply_when,
        },
    )
}

/// Few enough that branches are met again, and clash.
fn branch() -> impl Strategy<Value = u64> {
    1..5u64
}

fn decision() -> impl Strategy<Value = Decision> {
    prop_oneof![Just(Decision::Commit), Just(Decision::RollBack)]
}

fn lock_mode() -> impl Strategy<Value = LockMode> {
    let delta = (1..3u64).prop_map(|number| LockMode::Delta(DeltaTag::new(number)));
    prop_oneof![2 => Just(LockMode::Exclusive), 1 => Just(LockMode::Shared), 2 => delta]
}

fn lock_wait() -> impl Strategy<Value = LockWait> {
    let holding = prop_oneof![2 => Just(Holding::Nothing), 1 => Just(Holding::DatabaseLocks)];
    let timeout_ms = prop_oneof![1 => Just(0), 4 => 1..3_000u64];
    (timeout_ms, holding).prop_map(|(timeout_ms, holding)| LockWait { timeout_ms, holding })
}

fn outcome() -> impl Strategy<Value = PhaseTwoOutcome> {
    let retryable = PhaseTwoOutcome::Retryable { error: "away".into() };
    let refused = PhaseTwoOutcome::Refused { error: "dirty write".into(), rows: Arc::default() };
    prop_oneof![3 => Just(PhaseTwoOutcome::Done), 1 => Just(retryable), 1 => Just(refused)]
}

fn action() -> impl Strategy<Value = OperatorAction> {
    let resolution = prop_oneof![
        Just(Resolution::RestoreClean),
        Just(Resolution::AcceptCurrent),
        Just(Resolution::ForceBefore)
    ];
    let resolve = (branch(), resolution).prop_map(|(branch, resolution)| OperatorAction::Resolve {
        branch: handfast_core::BranchId(branch),
        resolution,
    });
    prop_oneof![
        Just(OperatorAction::Retry),
        Just(OperatorAction::Pause),
        Just(OperatorAction::Resume),
        resolve
    ]
}
