//! The size of one decision: what it stores must fit into one statement of a database.

use std::sync::Arc;

use handfast_core::{
    BranchId, Change, Command, Coordinator, Correlation, Effect, Epoch, Holding, Labels, Limits,
    LoanTerms, LockMode, LockWait, Mode, NewBranch, Outcome, Rejection, Reply, Request, Retry,
    RowLock, SagaDefinition, StepDefinition, StepKind, Timestamp, Xid,
};

const INPUT_BYTES: usize = 100_000;
const SAGAS: usize = 100;
/// The largest decision that is stored beside what was gathered before it.
const DECISION_BYTES_MAX: usize = 2 << 20;

/// Regression: up to a thousand sagas that were due at one moment were expired by one decision. A
/// database refused it, and so the leader ended, and the next one.
#[test]
fn sagas_that_are_due_at_once_are_expired_in_parts() {
    let mut coordinator = empty();
    for saga in 0..SAGAS {
        start_saga(&mut coordinator, saga);
    }
    let mut expired = 0;
    while coordinator.next_deadline().is_some_and(|due| due <= Timestamp(60_001)) {
        let mut out = Outcome::default();
        let tick = Request { reply_to: None, command: Command::Tick };
        coordinator.decide(Timestamp(60_001), tick, &mut out);
        let bytes: usize = out.changes.iter().map(Change::approximate_bytes).sum();
        assert!(bytes <= DECISION_BYTES_MAX, "{bytes} bytes");
        expired += out.changes.len();
    }
    assert_eq!(expired, SAGAS);
}

/// Regression: a branch that took rows in many registrations became larger than what a database
/// takes in one statement.
#[test]
fn the_rows_of_a_branch_are_bounded_in_bytes() {
    let mut coordinator = empty();
    let (application, name) = ("shop".into(), "count".into());
    let begun = ask(
        &mut coordinator,
        Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        },
    );
    let Reply::Begun { xid, .. } = begun else { panic!("not begun: {begun:?}") };
    let part = |from: usize| (from..from + 8_000).map(long_row).collect::<Vec<_>>();
    let replies: Vec<_> = [0, 8_000, 16_000]
        .map(|from| register(&mut coordinator, xid, part(from)))
        .into_iter()
        .map(|reply| matches!(reply, Reply::Registered { .. }))
        .collect();
    assert_eq!(replies, [true, true, false]);
    let refused = register(&mut coordinator, xid, part(16_000));
    let Reply::Rejected(Rejection::LimitReached { what, .. }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(what, "bytes in the rows of a branch");
}

fn empty() -> Coordinator {
    Coordinator::load(Epoch(1), "tc".into(), Limits::default(), []).expect("no records")
}

fn start_saga(coordinator: &mut Coordinator, number: usize) {
    let step = StepDefinition {
        name: "reserve".into(),
        parent: None,
        group: 0,
        kind: StepKind::Compensable,
        resource: "stock".into(),
        action: "reserve".into(),
        input: vec![b'x'; INPUT_BYTES].into(),
        takes: Vec::new(),
        retry: Retry::DEFAULT,
        timeout_ms: None,
    };
    let definition = SagaDefinition {
        name: "order".into(),
        timeout_ms: Some(60_000),
        steps: vec![step],
        children: Vec::new(),
    };
    let (application, key, labels) = ("shop".into(), number.to_string().into(), Labels::NONE);
    let definition = Arc::new(definition);
    let reply = ask(coordinator, Command::StartSaga { application, key, definition, labels });
    assert!(matches!(reply, Reply::Saga(_)), "{reply:?}");
}

fn register(coordinator: &mut Coordinator, xid: Xid, rows: Vec<RowLock>) -> Reply {
    let branch = NewBranch {
        id: BranchId(1),
        resource: "stock".into(),
        mode: Mode::At,
        rows,
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    ask(coordinator, Command::RegisterBranch { xid, branch, wait })
}

fn long_row(key: usize) -> RowLock {
    let key = format!("{key:0>400}").into_bytes().into();
    RowLock { table: "item".into(), key, mode: LockMode::Exclusive }
}

fn ask(coordinator: &mut Coordinator, command: Command) -> Reply {
    let mut out = Outcome::default();
    let request = Request { reply_to: Some(Correlation(1)), command };
    coordinator.decide(Timestamp(1), request, &mut out);
    let reply = out.effects.into_iter().find_map(|effect| match effect {
        Effect::Reply { reply, .. } => Some(reply),
        Effect::PhaseTwo(_) | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => None,
    });
    reply.expect("it is answered at once")
}
