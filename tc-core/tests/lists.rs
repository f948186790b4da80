//! Lists page by page: together the pages are the list, and no call looks further than it may.

use std::sync::Arc;

use handfast_core::{
    BranchId, Command, Coordinator, Correlation, DecidedBy, Decision, Effect, Epoch, GlobalFilter,
    Holding, Labels, Limits, LoanTerms, LockCursor, LockFilter, LockMode, LockWait, Mode,
    NewBranch, Outcome, Page, PageBounds, PhaseTwoOutcome, Reply, ReplyWhen, Request, RowLock,
    SHOWN_MAX, Timestamp, VotingRounds, Xid,
};

const GLOBALS: usize = 500;
const BOUNDS: PageBounds = PageBounds { items_max: 7, scanned_max: 10 };

#[test]
fn a_rare_global_is_found_in_small_turns() {
    let coordinator = many_globals();
    let filter = GlobalFilter { name: Some("rare".to_owned()), ..GlobalFilter::default() };
    let look = |before, bounds| coordinator.globals(&filter, before, bounds);
    let found = in_turns(GLOBALS, look);
    assert_eq!(found.len(), 5);
    assert_eq!(found, look(None, PageBounds::NONE).items);
}

#[test]
fn a_rare_lock_is_found_in_small_turns() {
    let coordinator = many_globals();
    for table in ["rare", "item", "nowhere"] {
        let filter = LockFilter { table: Some(table.to_owned()), ..LockFilter::default() };
        let look = |after, bounds| coordinator.locks(&filter, after, bounds);
        assert_eq!(in_turns(coordinator.counts().locks, look), look(None, PageBounds::NONE).items);
    }
}

/// A row that two globals read is listed under the older one, wherever a page ends.
#[test]
fn a_shared_row_is_listed_once() {
    let mut coordinator = empty();
    for _ in 0..3 {
        let xid = begin(&mut coordinator, "read");
        register(&mut coordinator, xid, 1, vec![row("item", 1, LockMode::Shared)]);
        register(&mut coordinator, xid, 2, vec![row("item", 1, LockMode::Shared)]);
    }
    let look = |after, bounds| coordinator.locks(&LockFilter::default(), after, bounds);
    assert_eq!(in_turns(1, look).len(), 1);
    let last = coordinator.globals(&GlobalFilter::default(), None, PageBounds::NONE);
    let last = last.items.first().map(|global| global.record.xid);
    let filter = LockFilter { holder: last, ..LockFilter::default() };
    let look = |after, bounds| coordinator.locks(&filter, after, bounds);
    assert_eq!(in_turns(1, look).len(), 1);
}

/// A list that goes on behind a global that is gone meanwhile goes on with the next one.
#[test]
fn a_list_goes_on_where_its_last_lock_was() {
    let mut coordinator = many_globals();
    let filter = LockFilter { table: Some("item".to_owned()), ..LockFilter::default() };
    let first = coordinator.locks(&filter, None, BOUNDS);
    let LockCursor { holder, .. } = first.next.expect("there is more");
    let rest = coordinator.locks(&filter, first.next, PageBounds::NONE);
    let kept: Vec<_> =
        rest.items.iter().filter(|lock| lock.holders[0].xid != holder).cloned().collect();
    end(&mut coordinator, holder);
    let rest = coordinator.locks(&filter, first.next, PageBounds::NONE).items;
    assert_eq!(rest, kept);
}

/// However many globals a request waits for, a turn shows and looks at few of them.
#[test]
fn a_request_behind_many_holders_shows_some_of_them() {
    let mut coordinator = empty();
    for _ in 0..1_000 {
        let xid = begin(&mut coordinator, "read");
        register(&mut coordinator, xid, 1, vec![row("item", 1, LockMode::Shared)]);
    }
    let writers: Vec<Xid> = (0..10).map(|_| begin(&mut coordinator, "write")).collect();
    for (correlation, &xid) in (1_000..).zip(&writers) {
        join_queue(&mut coordinator, xid, correlation, vec![row("item", 1, LockMode::Exclusive)]);
    }
    let first = coordinator.waiting_requests(None, BOUNDS);
    assert_eq!(first.items.len(), 1);
    assert_eq!(first.items[0].edges.len(), 32);
    assert!(first.scanned < 100, "{}", first.scanned);
    let (mut waiting, mut after) = (Vec::new(), None);
    loop {
        let page = coordinator.waiting_requests(after, BOUNDS);
        waiting.extend(page.items.iter().map(|request| request.global.xid));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(waiting, writers);
}

/// The place in a queue stays one when the request that stood there has gone.
#[test]
fn a_queue_goes_on_behind_a_request_that_has_gone() {
    let mut coordinator = empty();
    let holder = begin(&mut coordinator, "first");
    register(&mut coordinator, holder, 1, vec![row("item", 1, LockMode::Exclusive)]);
    let waiters: Vec<Xid> = (0..20).map(|_| begin(&mut coordinator, "second")).collect();
    for (correlation, &xid) in (1_000..).zip(&waiters) {
        join_queue(&mut coordinator, xid, correlation, vec![row("item", 1, LockMode::Exclusive)]);
    }
    let key = row("item", 1, LockMode::Exclusive).key;
    let look = |coordinator: &Coordinator, after| {
        coordinator.lock_queue("stock", "item", &key, after, BOUNDS).expect("it is locked")
    };
    let first = look(&coordinator, None);
    assert_eq!(first.items.len(), BOUNDS.items_max);
    let mut out = Outcome::default();
    let gone = Command::Forget { waiting: Correlation(1_000 + BOUNDS.items_max as u64 - 1) };
    coordinator.decide(Timestamp(1), Request { reply_to: None, command: gone }, &mut out);
    let mut listed: Vec<_> = first.items.iter().filter_map(|waiter| waiter.xid).collect();
    let mut after = first.next;
    while after.is_some() {
        let page = look(&coordinator, after);
        listed.extend(page.items.iter().filter_map(|waiter| waiter.xid));
        after = page.next;
    }
    assert_eq!(listed, waiters);
}

#[test]
fn the_last_deadlocks_are_kept() {
    let mut coordinator = empty();
    let (first, second) = (begin(&mut coordinator, "first"), begin(&mut coordinator, "second"));
    register(&mut coordinator, first, 1, vec![row("item", 1, LockMode::Exclusive)]);
    register(&mut coordinator, second, 1, vec![row("item", 2, LockMode::Exclusive)]);
    join_queue(&mut coordinator, first, 1_000, vec![row("item", 2, LockMode::Exclusive)]);
    for correlation in 2_000..2_150 {
        join_queue(
            &mut coordinator,
            second,
            correlation,
            vec![row("item", 1, LockMode::Exclusive)],
        );
    }
    let deadlocks = coordinator.refused_deadlocks();
    assert_eq!(deadlocks.len(), 100);
    assert!(deadlocks.iter().all(|it| it.length == 2 && it.cycle[0].global.xid == second));
}

/// Asks for rows with a second branch, and is ready to wait for them.
fn join_queue(coordinator: &mut Coordinator, xid: Xid, correlation: u64, rows: Vec<RowLock>) {
    let branch = NewBranch {
        id: BranchId(2),
        resource: "stock".into(),
        mode: Mode::At,
        rows,
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 60_000, holding: Holding::Nothing };
    let command = Command::RegisterBranch { xid, branch, wait };
    let request = Request { reply_to: Some(Correlation(correlation)), command };
    coordinator.decide(Timestamp(1), request, &mut Outcome::default());
}

/// Follows a list to its end; each turn looks at no more entries than it may.
fn in_turns<T, C>(entries: usize, look: impl Fn(Option<C>, PageBounds) -> Page<T, C>) -> Vec<T>
where
    C: Copy + PartialEq + std::fmt::Debug,
{
    let (mut found, mut start, mut turns) = (Vec::new(), None, 0);
    loop {
        let page = look(start, BOUNDS);
        assert!(page.items.len() <= BOUNDS.items_max);
        assert!(page.next.is_none() || page.next != start, "a turn gets on");
        found.extend(page.items);
        turns += 1;
        if page.next.is_none() {
            break;
        }
        start = page.next;
    }
    assert!(turns >= entries / BOUNDS.scanned_max, "{turns} turns for {entries} entries");
    found
}

/// Every hundredth has another name and holds a row of another table.
fn many_globals() -> Coordinator {
    let mut coordinator = empty();
    for number in 0..GLOBALS {
        let is_rare = number % 100 == 50;
        let xid = begin(&mut coordinator, if is_rare { "rare" } else { "place-order" });
        let table = if is_rare { "rare" } else { "item" };
        let rows = [2 * number, 2 * number + 1].map(|key| row(table, key, LockMode::Exclusive));
        register(&mut coordinator, xid, 1, rows.into());
    }
    coordinator
}

fn empty() -> Coordinator {
    Coordinator::load(Epoch(1), "tc".into(), Limits::default(), []).expect("no records")
}

fn begin(coordinator: &mut Coordinator, name: &str) -> Xid {
    let (application, name) = ("shop".into(), name.into());
    let reply = ask(
        coordinator,
        Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        },
    );
    let Reply::Begun { xid, .. } = reply else { panic!("not begun: {reply:?}") };
    xid
}

fn register(coordinator: &mut Coordinator, xid: Xid, id: u64, rows: Vec<RowLock>) {
    let branch = NewBranch {
        id: BranchId(id),
        resource: "stock".into(),
        mode: Mode::At,
        rows,
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
    let reply = ask(coordinator, Command::RegisterBranch { xid, branch, wait });
    assert!(matches!(reply, Reply::Registered { .. }), "{reply:?}");
}

fn end(coordinator: &mut Coordinator, xid: Xid) {
    let (decision, by, reply_when) = (Decision::Commit, DecidedBy::Client, ReplyWhen::Decided);
    let rounds = VotingRounds::PrepareOnly;
    ask(coordinator, Command::End { xid, decision, rounds, by, reason: "".into(), reply_when });
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

fn row(table: &str, key: usize, mode: LockMode) -> RowLock {
    let key = format!("4:{key:04}").into_bytes().into();
    RowLock { table: Arc::from(table), key, mode }
}

/// A branch that reads as many rows as it may and then writes them all. Rows in a stronger mode
/// were counted as more rows, and refused; and each was searched for among all of the branch.
#[test]
fn very_many_rows_are_raised() {
    let mut coordinator = empty();
    let xid = begin(&mut coordinator, "count-everything");
    let rows = |mode| (0..100_000).map(|key| row("item", key, mode)).collect::<Vec<_>>();
    for mode in [LockMode::Shared, LockMode::Exclusive] {
        for part in rows(mode).chunks(10_000) {
            register(&mut coordinator, xid, 1, part.to_vec());
        }
    }
    let view = coordinator.global(xid).expect("it is there");
    assert_eq!(view.branches[0].rows.len(), 100_000);
    assert!(view.branches[0].rows.iter().all(|row| row.mode == LockMode::Exclusive));
}

const MANY: usize = 300;

/// All holders and waiters of a row were part of its entry, however many there are: a page of one
/// item took as long as a list of all.
#[test]
fn of_a_row_that_many_wait_for_a_hundred_are_shown() {
    let mut coordinator = empty();
    let holder = begin(&mut coordinator, "first");
    register(&mut coordinator, holder, 1, vec![row("item", 1, LockMode::Exclusive)]);
    for _ in 0..MANY {
        wait(&mut coordinator, row("item", 1, LockMode::Exclusive));
    }
    let bounds = PageBounds { items_max: 1, ..BOUNDS };
    let page = coordinator.locks(&LockFilter::default(), None, bounds);
    // The global, its branch, the row, its one holder twice, and those that are shown.
    assert!(page.scanned <= 5 + SHOWN_MAX, "{}", page.scanned);
    let lock = &page.items[0];
    assert_eq!((lock.queue.len(), lock.waiting), (SHOWN_MAX, MANY));
    assert_eq!((lock.holders.len(), lock.holding), (1, 1));
}

#[test]
fn of_a_row_that_many_hold_a_hundred_are_shown() {
    let mut coordinator = empty();
    for _ in 0..MANY {
        let xid = begin(&mut coordinator, "read");
        register(&mut coordinator, xid, 1, vec![row("item", 1, LockMode::Shared)]);
    }
    let look = |after, bounds| coordinator.locks(&LockFilter::default(), after, bounds);
    let locks = in_turns(MANY, look);
    assert_eq!(locks.len(), 1);
    assert_eq!((locks[0].holders.len(), locks[0].holding), (SHOWN_MAX, MANY));
}

/// The text shown of an item counts, so that a page of such rows is as bounded as any.
#[test]
fn rows_with_long_queues_end_a_turn_sooner() {
    let mut coordinator = empty();
    for key in 0..20 {
        let holder = begin(&mut coordinator, "first");
        register(&mut coordinator, holder, 1, vec![row("item", key, LockMode::Exclusive)]);
    }
    for key in 0..20 {
        (0..50).for_each(|_| wait(&mut coordinator, row("item", key, LockMode::Exclusive)));
    }
    let bounds = PageBounds { scanned_max: 200, ..PageBounds::NONE };
    let (mut keys, mut after) = (Vec::new(), None);
    loop {
        let page = coordinator.locks(&LockFilter::default(), after, bounds);
        let shown: usize = page.items.iter().map(|lock| 1 + lock.queue.len()).sum();
        assert!(shown <= 200 + SHOWN_MAX, "{shown}");
        keys.extend(page.items.into_iter().map(|lock| lock.key));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(keys, (0..20).map(|key| row("item", key, LockMode::Shared).key).collect::<Vec<_>>());
}

#[test]
fn a_global_is_shown_in_parts_that_are_the_whole() {
    let mut coordinator = empty();
    let xid = begin(&mut coordinator, "wide");
    for branch in 1..=MANY {
        let rows = (0..3).map(|part| row("item", 4 * branch + part, LockMode::Exclusive));
        register(&mut coordinator, xid, branch as u64, rows.collect());
    }
    let whole = coordinator.global(xid).expect("it is there");
    let (mut branches, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let bounds = PageBounds { items_max: 70, scanned_max: 100 };
        let part = coordinator.global_part(xid, start, bounds).expect("it is there");
        assert!(part.branches.len() <= 70 && part.scanned <= 100 + 4, "{}", part.scanned);
        assert_eq!((&part.record, part.branch_count), (&whole.record, MANY));
        branches.extend(part.branches.into_iter().map(|branch| branch.record));
        from = part.next;
    }
    assert_eq!(branches, whole.branches);
}

#[test]
fn of_a_branch_with_many_rows_a_hundred_are_shown() {
    let mut coordinator = empty();
    let xid = begin(&mut coordinator, "wide");
    let rows = (0..MANY).map(|key| row("item", key, LockMode::Exclusive)).collect();
    register(&mut coordinator, xid, 1, rows);
    let part = coordinator.global_part(xid, 0, PageBounds::NONE).expect("it is there");
    let [branch] = &part.branches[..] else { panic!("{part:?}") };
    assert_eq!((branch.record.rows.len(), branch.holding), (SHOWN_MAX, MANY));
}

#[test]
fn a_finished_global_is_shown_in_parts_too() {
    let mut coordinator = empty();
    let xid = begin(&mut coordinator, "wide");
    (1..=MANY).for_each(|branch| register(&mut coordinator, xid, branch as u64, Vec::new()));
    end(&mut coordinator, xid);
    for branch in 1..=MANY {
        let (decision, outcome) = (Decision::Commit, PhaseTwoOutcome::Done);
        let branch = BranchId(branch as u64);
        ask(&mut coordinator, Command::FinishPhaseTwo { xid, branch, decision, outcome });
    }
    let all = coordinator.global(xid).expect("it is remembered").record.finished_branches;
    let (mut shown, mut from) = (Vec::new(), Some(0));
    while let Some(start) = from {
        let bounds = PageBounds { items_max: 70, ..PageBounds::NONE };
        let part = coordinator.global_part(xid, start, bounds).expect("it is remembered");
        assert_eq!(part.branch_count, MANY);
        shown.extend(part.record.finished_branches.iter().cloned());
        from = part.next;
    }
    assert_eq!(shown, all.to_vec());
}

/// Asks for a row that another global holds, and waits for it.
fn wait(coordinator: &mut Coordinator, row: RowLock) {
    let xid = begin(coordinator, "second");
    let branch = NewBranch {
        id: BranchId(1),
        resource: "stock".into(),
        mode: Mode::At,
        rows: vec![row],
        application_data: Box::default(),
        registered_by: None,
    };
    let wait = LockWait { timeout_ms: 1_000, holding: Holding::Nothing };
    let command = Command::RegisterBranch { xid, branch, wait };
    let request = Request { reply_to: Some(Correlation(xid.0)), command };
    coordinator.decide(Timestamp(1), request, &mut Outcome::default());
}
