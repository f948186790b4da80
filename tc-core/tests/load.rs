//! Records that contradict each other stop the load: a coordinator never serves from a guess.

use std::sync::Arc;

use handfast_core::{
    BranchId, BranchRecord, BranchState, ClosureReason, ClosureRecord, Coordinator, Epoch,
    FencingToken, GlobalRecord, GlobalState, Labels, Limits, LoadError, LockMode, Mode, Record,
    RecordKey, Resolution, RollbackReason, RowLock, Timestamp, Xid,
};

const FIRST: Xid = Xid((1 << 40) + 1);
const SECOND: Xid = Xid((1 << 40) + 2);
const ROLLING_BACK: GlobalState = GlobalState::RollingBack(RollbackReason::Requested);

#[test]
fn nothing_and_what_fits_is_loaded() {
    assert!(load(1, []).is_ok());
    assert!(
        load(2, [global(FIRST, ROLLING_BACK), branch(FIRST, 0, BranchState::Registered)]).is_ok()
    );
}

#[test]
fn the_order_of_records_does_not_matter() {
    let records = [branch(FIRST, 0, BranchState::Registered), global(FIRST, GlobalState::Active)];
    assert!(load(2, records).is_ok());
}

#[test]
fn records_that_are_not_held_must_be_in_order() {
    let records = || {
        [(SECOND, 0), (FIRST, 1)].map(|(xid, sequence)| {
            [global(xid, GlobalState::Active), branch_without_rows(xid, sequence)]
        })
    };
    let load =
        |records| Coordinator::load_in_order(Epoch(2), "tc".into(), Limits::default(), records);
    assert!(load(records().concat()).is_ok());
    let mut apart = records().concat();
    apart.swap(1, 2);
    let orphan = LoadError::BranchWithoutGlobal { xid: SECOND, branch: BranchId(7) };
    assert_eq!(load(apart).err(), Some(orphan));
    let twice = [records().concat(), records().concat()].concat();
    let expected = LoadError::RecordTwice(RecordKey::Global(SECOND));
    assert_eq!(load(twice).err(), Some(expected));
}

#[test]
fn an_epoch_that_does_not_fit_an_xid() {
    assert_eq!(load(1 << 24, []), Err(LoadError::EpochTooLarge(Epoch(1 << 24))));
}

#[test]
fn an_xid_that_would_be_drawn_again() {
    let records = [global(FIRST, GlobalState::Active)];
    assert_eq!(load(1, records), Err(LoadError::XidOfLaterEpoch(FIRST)));
}

#[test]
fn a_global_twice() {
    let records = [global(FIRST, GlobalState::Active), global(FIRST, ROLLING_BACK)];
    assert_eq!(load(2, records), Err(LoadError::RecordTwice(RecordKey::Global(FIRST))));
}

#[test]
fn a_branch_without_an_unfinished_global() {
    let orphan = || branch(SECOND, 0, BranchState::Registered);
    let expected = Err(LoadError::BranchWithoutGlobal { xid: SECOND, branch: BranchId(7) });
    assert_eq!(load(2, [orphan()]), expected);
    assert_eq!(load(2, [global(FIRST, GlobalState::Active), orphan()]), expected);
    let later = Xid(SECOND.0 + 1);
    assert_eq!(load(2, [global(later, GlobalState::Active), orphan()]), expected);
    let finished = global(SECOND, GlobalState::Committed(Timestamp(5)));
    assert_eq!(load(2, [finished, orphan()]), expected);
}

#[test]
fn a_branch_in_a_state_that_its_global_does_not_allow() {
    let refused = || BranchState::Refused(Arc::from("dirty write"), Arc::default());
    let resolved = || BranchState::Resolved(Resolution::AcceptCurrent);
    let finished = || BranchState::Finished(Timestamp(5));
    for (state, of_branch) in [
        (GlobalState::Active, refused()),
        (GlobalState::Active, resolved()),
        (GlobalState::Active, finished()),
        (GlobalState::Committing, refused()),
        (GlobalState::Committing, resolved()),
    ] {
        let loaded = load(2, [global(FIRST, state), branch(FIRST, 0, of_branch)]);
        assert_eq!(loaded, Err(LoadError::BranchMisfit { xid: FIRST, branch: BranchId(7) }));
    }
}

#[test]
fn two_branches_of_one_id_or_place() {
    let one = || branch(FIRST, 0, BranchState::Registered);
    let expected = Err(LoadError::BranchMisfit { xid: FIRST, branch: BranchId(7) });
    let same_place = [global(FIRST, GlobalState::Active), one(), one()];
    assert_eq!(load(2, same_place), expected);
    let other_place = branch(FIRST, 1, BranchState::Registered);
    assert_eq!(load(2, [global(FIRST, GlobalState::Active), one(), other_place]), expected);
}

#[test]
fn a_decided_global_with_nothing_left_to_do() {
    let finished = branch(FIRST, 0, BranchState::Finished(Timestamp(5)));
    let records = [global(FIRST, GlobalState::Committing), finished];
    assert_eq!(load(2, records), Err(LoadError::NothingLeftToDo(FIRST)));
}

#[test]
fn a_row_of_two_globals() {
    let rows = |xid| [global(xid, GlobalState::Active), branch(xid, 0, BranchState::Registered)];
    let loaded = load(2, rows(FIRST).into_iter().chain(rows(SECOND)));
    let (table, first, second) = (Arc::from("item"), FIRST, SECOND);
    assert_eq!(loaded, Err(LoadError::RowHeldTwice { table, first, second }));
}

#[test]
fn rows_of_a_committing_global_are_free() {
    let committing =
        [global(FIRST, GlobalState::Committing), branch(FIRST, 0, BranchState::Registered)];
    let active = [global(SECOND, GlobalState::Active), branch(SECOND, 0, BranchState::Registered)];
    assert!(load(2, committing.into_iter().chain(active)).is_ok());
}

#[test]
fn closed_records_are_not_gone_on_from() {
    for (reason, code) in [
        (ClosureReason::Moved, "HF-TC-STORE-MOVED"),
        (ClosureReason::Incomplete, "HF-TC-STORE-INCOMPLETE"),
    ] {
        let closure = ClosureRecord { reason, place: "elsewhere".into(), at: Timestamp(7) };
        let records = [global(FIRST, GlobalState::Active), Record::Closure(closure.clone())];
        let refused = load(2, records).unwrap_err();
        assert_eq!(refused.code(), code);
        assert_eq!(refused, LoadError::Closed(closure));
    }
}

fn load(epoch: u64, records: impl IntoIterator<Item = Record>) -> Result<(), LoadError> {
    let coordinator = Coordinator::load(Epoch(epoch), Arc::from("tc"), Limits::default(), records)?;
    coordinator.check_invariants().expect("what is loaded is whole");
    Ok(())
}

fn global(xid: Xid, state: GlobalState) -> Record {
    Record::Global(GlobalRecord {
        xid,
        address: Arc::from("tc"),
        application: Arc::from("shop"),
        name: Arc::from("place-order"),
        begun_at: Timestamp(1),
        deadline: Timestamp(1_000),
        state,
        paused: false,
        rollback_only: false,
        events: [].into(),
        labels: Labels::NONE,
        key: None,
        finished_branches: [].into(),
        trace: None,
    })
}

fn branch_without_rows(xid: Xid, sequence: u32) -> Record {
    let Record::Branch(branch) = branch(xid, sequence, BranchState::Registered) else {
        panic!("it is a branch")
    };
    Record::Branch(BranchRecord { rows: Vec::new(), ..branch })
}

/// Branch 7, which holds a row unless it is finished.
fn branch(xid: Xid, sequence: u32, state: BranchState) -> Record {
    let row =
        RowLock { table: Arc::from("item"), key: Box::from(*b"1:7"), mode: LockMode::Exclusive };
    let rows = if matches!(state, BranchState::Finished(_)) { Vec::new() } else { vec![row] };
    Record::Branch(BranchRecord {
        xid,
        id: BranchId(7),
        sequence,
        resource: Arc::from("orders"),
        mode: Mode::At,
        rows,
        token: FencingToken(1),
        registered_at: Timestamp(2),
        application_data: Box::default(),
        state,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    })
}
