//! Transactions and locks as text.

use std::collections::BTreeMap;

use expect_test::{expect, expect_file};
use handfast_server::admin::model::{
    Branch, BranchState, Deadlock, DeadlockMember, Deadlocks, DirtyColumn, DirtyRow, EventFate,
    EventKind, Failure, HeldEvents, Lease, Lock, LockHolder, LockMode, LockQueuePage, LockWaiter,
    Mode, NamedLock, NamedLockWaiter, Recent, RecentStep, Refusal, RollbackReason, Row, RowChange,
    RowStanding, Status, TimelineEntry, Timer, TimerKind, Timing, Transaction, TransactionDetail,
    WaitEdge, WaitGraph, WaitNode, WaitTarget,
};
use handfast_server::cli::{
    Style, render_deadlocks, render_graph, render_lock, render_named_lock, render_queue,
    render_recent, render_transaction,
};

fn at(second: u32) -> String {
    format!("2026-11-21T05:20:{second:02}.000Z")
}

fn refusal() -> Refusal {
    let column = |name: &str, before: &str, after: &str, current: Option<&str>| DirtyColumn {
        name: name.to_owned(),
        before: Some(before.to_owned()),
        after: Some(after.to_owned()),
        current: current.map(str::to_owned),
    };
    let row = |key: &str, current: Option<&str>| DirtyRow {
        table: "stock".to_owned(),
        key: key.to_owned(),
        columns: vec![
            column("units", "10", "7", current),
            column("note", "a\u{1b}[31m", "b", current),
        ],
        standing: RowStanding::Dirty,
        on_restore_clean: Some(RowChange::Left),
        on_accept_current: RowChange::Left,
        on_force_before: Some(if current.is_some() {
            RowChange::WrittenBack
        } else {
            RowChange::Left
        }),
    };
    let clean = DirtyRow {
        standing: RowStanding::Clean,
        on_restore_clean: Some(RowChange::WrittenBack),
        ..row("44", Some("7"))
    };
    Refusal {
        error: "dirty write".to_owned(),
        rows: vec![row("42", Some("3")), row("43", None), clean],
        rows_total: 70,
        rows_dirty: 2,
        events: Some(HeldEvents {
            held: 2,
            on_restore_clean: EventFate::Dropped,
            on_accept_current: EventFate::Released,
            on_force_before: EventFate::Dropped,
        }),
    }
}

fn dirty_branch() -> Branch {
    Branch {
        id: "641789253".to_owned(),
        resource: "sqlite:stock".to_owned(),
        mode: Mode::At,
        state: BranchState::Refused,
        rows: vec![Row {
            table: "stock".to_owned(),
            key: "42".to_owned(),
            canonical_key: "2:42".to_owned(),
            mode: LockMode::Exclusive,
        }],
        row_count: 1,
        registered_at: at(1),
        phase_one_at: None,
        finished_at: None,
        attempts: 1,
        last_failure: Some(Failure { at: at(4), error: "dirty write".to_owned() }),
        refusal: Some(refusal()),
        resolution: None,
    }
}

fn dirty() -> TransactionDetail {
    TransactionDetail {
        transaction: Transaction {
            xid: "127.0.0.1:7091:513339988905033729".to_owned(),
            application: "order-service".to_owned(),
            name: "place-order".to_owned(),
            status: Status::NeedsOperator,
            rollback_reason: Some(RollbackReason::Timeout),
            paused: true,
            rollback_only: false,
            begun_at: at(0),
            age_ms: 61_000,
            deadline: at(3),
            finished_at: None,
            branch_count: 1,
            labels: [("order", "42"), ("note", "a\u{1b}[31m")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
        },
        branches: vec![dirty_branch()],
        timeline: vec![
            entry(0, EventKind::Begun, "begun"),
            entry(3, EventKind::Decided, "decided: roll back (timeout)"),
        ],
        waits: Vec::new(),
        to_come: vec![Timer {
            kind: TimerKind::Process,
            at: None,
            branch: Some("641789253".to_owned()),
            what: "branch 641789253: waits for a process that serves sqlite:stock".to_owned(),
        }],
        next: None,
    }
}

fn entry(second: u32, kind: EventKind, what: &str) -> TimelineEntry {
    let (at, what) = (at(second), what.to_owned());
    TimelineEntry { at, what, kind, branch: None, ms: None, by: None }
}

#[test]
fn a_dirty_write_is_shown_with_the_commands_to_end_it() {
    expect_file!["expected/dirty_write.txt"].assert_eq(&render_transaction(&dirty(), Style::Plain));
}

// Regression: forcing a step was offered, although the coordinator refuses it
// (`HF-TC-NOT-APPLICABLE`).
#[test]
fn a_refused_saga_step_can_only_be_accepted() {
    let mut detail = dirty();
    let step = &mut detail.branches[0];
    step.mode = Mode::Saga;
    step.refusal = Some(Refusal { error: "closed for ever".to_owned(), ..Refusal::default() });
    let shown = render_transaction(&detail, Style::Plain);
    let (_, to_type) = shown.split_once("\nto end it\n").unwrap();
    expect![[r#"
        handfast tx resolve 127.0.0.1:7091:513339988905033729 641789253 accept_current   # it has been put right by hand
    "#]]
    .assert_eq(to_type);
}

/// The coordinator does not know the client's rows, so it cannot restore some of them.
#[test]
fn a_seata_branch_has_no_rows_to_choose_from() {
    let mut detail = dirty();
    let branch = &mut detail.branches[0];
    branch.resource = "jdbc:mysql://db/stock".to_owned();
    branch.refusal = Some(Refusal { error: "has dirty records".to_owned(), ..Refusal::default() });
    let shown = render_transaction(&detail, Style::Plain);
    let (_, to_type) = shown.split_once("\nto end it\n").unwrap();
    expect![[r#"
        handfast tx resolve 127.0.0.1:7091:513339988905033729 641789253 accept_current   # count it as rolled back: its client is asked nothing
        handfast tx resolve 127.0.0.1:7091:513339988905033729 641789253 force_before     # ask its client to roll back once more
    "#]]
    .assert_eq(to_type);
}

#[test]
fn a_terminal_gets_ruled_tables() {
    let mut detail = dirty();
    detail.branches.clear();
    expect_file!["expected/terminal.txt"]
        .assert_eq(&render_transaction(&detail, Style::Terminal { width: 100 }));
}

#[test]
fn a_lock_is_shown_with_its_queue() {
    let since = "2026-11-21T05:20:00.000Z".to_owned();
    let mode = LockMode::Exclusive;
    let lock = Lock {
        resource: "postgres:7/shop/public".to_owned(),
        table: "stock".to_owned(),
        key: "7, a".to_owned(),
        canonical_key: "1:71:a".to_owned(),
        holders: vec![LockHolder { xid: "tc:1".to_owned(), mode, since, age_ms: 1_500 }],
        holding: 1,
        waiting: 7,
        queue: vec![waiter(Some("tc:2"), mode, 900), waiter(None, LockMode::Shared, 20)],
    };
    expect![[r#"
        postgres:7/shop/public stock 7, a
        canonical key 1:71:a

               XID        MODE       FOR
        holds  tc:1       exclusive  1.5 s
        waits  tc:2       exclusive  900 ms
        waits  (outside)  shared     20 ms
        and 5 more wait"#]]
    .assert_eq(&render_lock(&lock, Style::Plain));
}

fn waiter(xid: Option<&str>, mode: LockMode, age_ms: u64) -> LockWaiter {
    let xid = xid.map(str::to_owned);
    LockWaiter {
        xid,
        mode,
        takes: mode == LockMode::Exclusive,
        since: at(0),
        age_ms,
        deadline: at(9),
    }
}

#[test]
fn the_queue_of_a_row_says_how_much_of_it_is_shown() {
    let items =
        vec![waiter(Some("tc:2"), LockMode::Exclusive, 900), waiter(None, LockMode::Shared, 20)];
    let queue = LockQueuePage { items, next: Some("20.3".to_owned()), waiting: 7 };
    expect![[r#"
        XID        MODE            FOR     UNTIL
        tc:2       exclusive       900 ms  2026-11-21T05:20:09.000Z
        (outside)  shared (check)  20 ms   2026-11-21T05:20:09.000Z
        2 of 7 are shown
        more: --cursor 20.3"#]]
    .assert_eq(&render_queue(&queue, Style::Plain));
}

fn row(table: &str, key: &str) -> WaitTarget {
    WaitTarget {
        resource: Some("postgres:7/shop/public".to_owned()),
        table: Some(table.to_owned()),
        key: Some(key.to_owned()),
        canonical_key: Some(format!("1:{key}")),
        mode: Some(LockMode::Exclusive),
        lock: None,
    }
}

fn named(name: &str) -> WaitTarget {
    WaitTarget { lock: Some(name.to_owned()), ..WaitTarget::default() }
}

#[test]
fn the_wait_for_graph_is_shown_as_its_edges() {
    let node = |xid: &str, waits| WaitNode {
        xid: xid.to_owned(),
        application: "shop".to_owned(),
        name: "place-order".to_owned(),
        labels: BTreeMap::new(),
        status: Some(Status::Active),
        begun_at: Some(at(0)),
        age_ms: Some(1_500),
        waits,
    };
    let edge = |from: &str, to: &str, holds, target| WaitEdge {
        from: from.to_owned(),
        to: to.to_owned(),
        holds,
        target,
        since: at(1),
        age_ms: 900,
        deadline: at(9),
    };
    let graph = WaitGraph {
        nodes: vec![node("tc:1", false), node("tc:2", true), node("tc:3", true)],
        edges: vec![
            edge("tc:2", "tc:1", true, row("stock", "7")),
            edge("tc:3", "tc:2", false, named("nightly\u{1b}-job")),
        ],
        next: Some("n4".to_owned()),
    };
    expect![[r#"
        XID   NAME         FOR     WAITS FOR  WHICH         ROW OR LOCK
        tc:2  place-order  900 ms  tc:1       holds it      stock/7 of postgres:7/shop/public
        tc:3  place-order  900 ms  tc:2       is before it  lock nightly\u{1b}-job
        more: --cursor n4"#]]
    .assert_eq(&render_graph(&graph, Style::Plain));
}

#[test]
fn a_deadlock_is_shown_as_its_cycle() {
    let member = |xid: &str, target| DeadlockMember {
        xid: xid.to_owned(),
        application: "shop".to_owned(),
        name: "place-order".to_owned(),
        labels: [("order".to_owned(), "42".to_owned())].into(),
        target,
    };
    let deadlock = Deadlock {
        at: at(1),
        age_ms: 61_000,
        xid: "tc:2".to_owned(),
        length: 3,
        cycle: vec![member("tc:2", row("stock", "7")), member("tc:1", named("nightly"))],
    };
    let deadlocks = Deadlocks { items: vec![deadlock] };
    expect![[r#"
        2026-11-21T05:20:01.000Z (1 min ago)  tc:2 was refused
          tc:2 shop / place-order (order=42) waits for stock/7 of postgres:7/shop/public of the next
          tc:1 shop / place-order (order=42) waits for lock nightly of the next
          and 1 more
    "#]]
    .assert_eq(&render_deadlocks(&deadlocks, Style::Plain));
}

#[test]
fn a_named_lock_is_shown_with_its_leases_and_its_queue() {
    let since = "2026-01-01T00:00:00.000Z".to_owned();
    let lease = Lease {
        token: "ab.1".to_owned(),
        label: "stock-service".to_owned(),
        share: "all".to_owned(),
        fence: "7".to_owned(),
        since: since.clone(),
        age_ms: 1_500,
        left_ms: Some(20_000),
        xid: None,
    };
    let waiter = NamedLockWaiter {
        token: "cd.4".to_owned(),
        label: "order-service".to_owned(),
        share: "all".to_owned(),
        since,
        age_ms: 900,
        xid: Some("42".to_owned()),
    };
    let (name, leases, queue) = ("orders/42".to_owned(), vec![lease], vec![waiter]);
    let lock = NamedLock { name, leases, holding: 1, queue, waiting: 3 };
    expect![[r#"
        orders/42

               WHO            TOKEN  SHARE  FENCE  XID  FOR     LEFT
        holds  stock-service  ab.1   all    7      -    1.5 s   20.0 s
        waits  order-service  cd.4   all           42   900 ms
        and 2 more wait"#]]
    .assert_eq(&render_named_lock(&lock, Style::Plain));
}

/// Steps of 10 s, in the last of which one commit took long.
fn recent() -> Recent {
    let timing = |p99_us| Some(Timing { count: 7, p50_us: 40, p99_us });
    let step = |number: u32| RecentStep {
        at: format!("2026-11-21T05:{:02}:{:02}.000Z", 20 + number / 6, number % 6 * 10),
        committed: 1_200,
        rolled_back: u64::from(number % 2),
        active: Some(3),
        waiting: Some(0),
        pending: Some(12),
        needs_operator: Some(1),
        begin: timing(90),
        register: timing(870),
        commit: timing(if number == 7 { 1_250_000 } else { 4_230 }),
        phase_two: timing(25_000),
        lock_wait: None,
        store_commit: timing(1_040),
    };
    let mut steps: Vec<RecentStep> = (0..8).map(step).collect();
    // The node did not lead.
    steps[0].active = None;
    steps[1].active = None;
    Recent { step_ms: 10_000, steps }
}

#[test]
fn the_last_minutes_have_a_row_each() {
    let shown = render_recent(&recent(), Style::Plain);
    expect_file!["expected/recent.txt"].assert_eq(&shown);
    let none = Recent { steps: Vec::new(), ..recent() };
    expect![[r#"nothing yet: the first step of 10 s has not ended"#]]
        .assert_eq(&render_recent(&none, Style::Plain));
}

/// A night's terminal is narrow: what tells of trouble is kept.
#[test]
fn the_last_minutes_fit_a_terminal_of_80_columns() {
    let shown = render_recent(&recent(), Style::Terminal { width: 80 });
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    expect![[r#"
        ┌─────────────────────────────────────────────────────────────────────────────┐
        │ UTC        COMMITS/S   ROLLED BACK   WAITING   PENDING   COMMIT   LOCK WAIT │
        ╞═════════════════════════════════════════════════════════════════════════════╡
        │ 05:20:10   120.0       1             0         12        4.2 ms   -         │
        │ 05:21:10   120.0       3             0         12        1.2 s    -         │
        └─────────────────────────────────────────────────────────────────────────────┘
        -o wide shows ACTIVE, OPERATOR, BEGIN, REGISTER, PHASE TWO, STORE
        durations: the p99 of the slowest 10 s of each row; --json has all steps"#]]
    .assert_eq(&shown);
}
