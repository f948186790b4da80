//! Records as bytes: written records are read back, old versions stay readable, and no bytes make
//! the program panic.

use std::path::PathBuf;
use std::sync::Arc;

use handfast_core::{
    BranchId, BranchRecord, BranchState, ClosureReason, ClosureRecord, DeltaTag, DirtyColumn,
    DirtyRow, Event, EventKind, FencingToken, FinishedBranch, GlobalRecord, GlobalState,
    GlobalTrace, Label, Labels, LockMode, Mode, Record, RefusedRows, RequestTrace, Resolution,
    RollbackReason, RowChange, RowLock, RowStanding, SpanPlace, Timestamp, Xid,
};
use handfast_server::store::codec::{CodecError, decode, encode, encode_key};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::lease_records::{self, lease};
use crate::saga_records::{self, saga};

fn text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Arc::from)
}

fn at() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        Just(Mode::At),
        Just(Mode::Tcc),
        Just(Mode::Xa),
        Just(Mode::Saga),
        Just(Mode::TwoPhase)
    ]
}

fn reason() -> impl Strategy<Value = RollbackReason> {
    prop_oneof![
        Just(RollbackReason::Requested),
        Just(RollbackReason::Timeout),
        Just(RollbackReason::BranchUnknown),
        Just(RollbackReason::Operator),
        Just(RollbackReason::Refused),
    ]
}

fn global_state() -> impl Strategy<Value = GlobalState> {
    prop_oneof![
        Just(GlobalState::Active),
        Just(GlobalState::Committing),
        at().prop_map(GlobalState::Committed),
        reason().prop_map(GlobalState::RollingBack),
        (reason(), at()).prop_map(|(reason, at)| GlobalState::RolledBack(reason, at)),
    ]
}

fn finished_branch() -> impl Strategy<Value = FinishedBranch> {
    let course = (phase_one_at(), vec(event(), 0..4));
    (any::<u64>(), text(), mode(), at(), at(), any::<u32>(), course).prop_map(
        |(id, resource, mode, registered_at, finished_at, attempts, course)| FinishedBranch {
            id: BranchId(id),
            resource,
            mode,
            registered_at,
            finished_at,
            attempts,
            phase_one_at: course.0,
            events: course.1.into(),
        },
    )
}

/// A report in the first millisecond of 1970 is none.
fn phase_one_at() -> impl Strategy<Value = Option<Timestamp>> {
    option::of((1..u64::MAX).prop_map(Timestamp))
}

pub(crate) fn event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        Just(EventKind::Note),
        Just(EventKind::Decided),
        Just(EventKind::Acted),
        (any::<u64>(), any::<u64>())
            .prop_map(|(ms, behind)| EventKind::Waited { ms, behind: Xid(behind) }),
        any::<u32>().prop_map(|attempt| EventKind::Failed { attempt }),
    ];
    (at(), text(), kind).prop_map(|(at, what, kind)| Event { at, what, kind })
}

pub(crate) fn labels() -> impl Strategy<Value = Labels> {
    let label = (text(), text()).prop_map(|(name, value)| Label { name, value });
    vec(label, 0..4).prop_map(Labels::from_iter)
}

fn place() -> impl Strategy<Value = SpanPlace> {
    any::<([u8; 16], [u8; 8])>().prop_map(|(trace_id, span_id)| SpanPlace { trace_id, span_id })
}

pub(crate) fn request_trace() -> impl Strategy<Value = RequestTrace> {
    (place(), any::<[u8; 8]>()).prop_map(|(client, own)| RequestTrace { client, own })
}

/// A trace without a place is none.
fn global_trace() -> impl Strategy<Value = Option<Box<GlobalTrace>>> {
    (option::of(place()), option::of(request_trace())).prop_map(|(transaction, decision)| {
        let has_places = transaction.is_some() || decision.is_some();
        has_places.then(|| Box::new(GlobalTrace { transaction, decision }))
    })
}

fn global() -> impl Strategy<Value = Record> {
    let names = (any::<u64>(), text(), text(), text(), at(), at());
    let rest = (
        global_state(),
        any::<bool>(),
        any::<bool>(),
        vec(event(), 0..4),
        (labels(), option::of(text()), global_trace()),
        vec(finished_branch(), 0..4),
    );
    (names, rest).prop_map(|(names, rest)| {
        let (xid, address, application, name, begun_at, deadline) = names;
        let (state, paused, rollback_only, events, named, finished_branches) = rest;
        let (labels, key, trace) = named;
        Record::Global(GlobalRecord {
            xid: Xid(xid),
            address,
            application,
            name,
            begun_at,
            deadline,
            state,
            paused,
            rollback_only,
            events: events.into(),
            labels,
            key,
            finished_branches: finished_branches.into(),
            trace,
        })
    })
}

fn row_lock() -> impl Strategy<Value = RowLock> {
    // Few tables, so that consecutive rows often have the same table.
    let table = prop_oneof![Just("orders"), Just("stock"), Just("")];
    let delta = any::<u64>().prop_map(|number| LockMode::Delta(DeltaTag::new(number)));
    let mode = prop_oneof![Just(LockMode::Shared), delta, Just(LockMode::Exclusive)];
    (table, vec(any::<u8>(), 0..20), mode).prop_map(|(table, key, mode)| RowLock {
        table: table.into(),
        key: key.into(),
        mode,
    })
}

fn dirty_row() -> impl Strategy<Value = DirtyRow> {
    let value = || option::of(any::<String>());
    let column = (any::<String>(), value(), value(), value())
        .prop_map(|(name, before, after, current)| DirtyColumn { name, before, after, current });
    let standing = prop_oneof![
        Just(RowStanding::Dirty),
        Just(RowStanding::Clean),
        Just(RowStanding::Restored)
    ];
    let images = (any::<String>(), any::<String>(), vec(column, 0..3));
    (images, standing, row_change(), row_change()).prop_map(
        |((table, key, columns), standing, on_restore_clean, on_force_before)| DirtyRow {
            table,
            key,
            columns,
            standing,
            on_restore_clean,
            on_force_before,
        },
    )
}

fn row_change() -> impl Strategy<Value = Option<RowChange>> {
    option::of(prop_oneof![
        Just(RowChange::Left),
        Just(RowChange::WrittenBack),
        Just(RowChange::Removed),
        Just(RowChange::Inserted)
    ])
}

fn refused_rows() -> impl Strategy<Value = RefusedRows> {
    let counts = (any::<u64>(), any::<u64>(), option::of(any::<u64>()));
    (vec(dirty_row(), 0..3), counts).prop_map(|(listed, (total, dirty, held_events))| RefusedRows {
        listed,
        total,
        dirty,
        held_events,
    })
}

fn branch_state() -> impl Strategy<Value = BranchState> {
    prop_oneof![
        Just(BranchState::Registered),
        Just(BranchState::Deciding),
        Just(BranchState::PhaseOneDone),
        (text(), refused_rows()).prop_map(|(error, rows)| BranchState::Refused(error, rows.into())),
        Just(BranchState::Resolved(Resolution::RestoreClean)),
        Just(BranchState::Resolved(Resolution::AcceptCurrent)),
        Just(BranchState::Resolved(Resolution::ForceBefore)),
        at().prop_map(BranchState::Finished),
    ]
}

fn branch() -> impl Strategy<Value = Record> {
    let names = (any::<u64>(), any::<u64>(), any::<u32>(), text(), mode(), vec(row_lock(), 0..6));
    let rest = (
        any::<u64>(),
        at(),
        vec(any::<u8>(), 0..40),
        branch_state(),
        any::<u32>(),
        option::of((at(), text())),
        option::of("[a-z]{1,40}".prop_map(Arc::from)),
        (phase_one_at(), vec(event(), 0..4), option::of(request_trace())),
    );
    (names, rest).prop_map(|(names, rest)| {
        let (xid, id, sequence, resource, mode, rows) = names;
        let (token, registered_at, data, state, attempts, last_failure, registered_by, course) =
            rest;
        Record::Branch(BranchRecord {
            xid: Xid(xid),
            id: BranchId(id),
            sequence,
            resource,
            mode,
            rows,
            token: FencingToken(token),
            registered_at,
            application_data: data.into(),
            state,
            attempts,
            last_failure,
            registered_by,
            phase_one_at: course.0,
            events: course.1.into(),
            trace: course.2.map(Box::new),
        })
    })
}

fn closure() -> impl Strategy<Value = Record> {
    let reason = prop_oneof![Just(ClosureReason::Moved), Just(ClosureReason::Incomplete)];
    (reason, text(), at())
        .prop_map(|(reason, place, at)| Record::Closure(ClosureRecord { reason, place, at }))
}

fn record() -> impl Strategy<Value = Record> {
    prop_oneof![global(), branch(), saga(), lease(), closure()]
}

proptest! {
    #[test]
    fn written_records_are_read_back(record in record()) {
        let read = decode(&encode_key(record.key()), &encode(&record));
        prop_assert_eq!(read, Ok(record));
    }

    #[test]
    fn keys_of_one_kind_are_ordered_as_their_ids(one in global(), other in global()) {
        let keys = (encode_key(one.key()), encode_key(other.key()));
        prop_assert_eq!(keys.0.cmp(&keys.1), one.key().cmp(&other.key()));
    }

    #[test]
    fn any_bytes_give_a_record_or_an_error(
        key in vec(any::<u8>(), 0..20),
        value in vec(any::<u8>(), 0..200),
    ) {
        let _ = decode(&key, &value);
    }

    #[test]
    fn damage_never_panics(
        record in record(),
        place in any::<prop::sample::Index>(),
        bits in 1_u8..,
    ) {
        let mut bytes = encode(&record);
        let place = place.index(bytes.len());
        bytes[place] ^= bits;
        let _ = decode(&encode_key(record.key()), &bytes);
    }
}

/// One record of each kind and state. They must never change.
fn examples() -> Vec<(&'static str, Record)> {
    let address: Arc<str> = "127.0.0.1:7091".into();
    let global = GlobalRecord {
        xid: Xid(1 << 40 | 1),
        address,
        application: "order-service".into(),
        name: "place-order".into(),
        begun_at: Timestamp(1_000),
        deadline: Timestamp(61_000),
        state: GlobalState::Active,
        paused: false,
        rollback_only: false,
        events: [].into(),
        labels: Labels::NONE,
        key: None,
        finished_branches: [].into(),
        trace: None,
    };
    let finished = FinishedBranch {
        id: BranchId(7),
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        registered_at: Timestamp(1_010),
        finished_at: Timestamp(2_000),
        attempts: 2,
        phase_one_at: None,
        events: [].into(),
    };
    let rolled_back = GlobalRecord {
        state: GlobalState::RolledBack(RollbackReason::Timeout, Timestamp(2_000)),
        paused: true,
        rollback_only: true,
        events: [note(1_500, "retry by alice")].into(),
        finished_branches: [finished].into(),
        ..global.clone()
    };
    let with_key = GlobalRecord { key: Some("order-42".into()), ..global.clone() };
    let with_trace = GlobalRecord { trace: Some(Box::new(example_of_a_trace())), ..global.clone() };
    let mut examples = vec![
        ("global-active", Record::Global(global)),
        ("global-rolled-back", Record::Global(rolled_back.clone())),
        ("global-with-key", Record::Global(with_key)),
        ("global-with-trace", Record::Global(with_trace)),
        ("global-with-labels-and-course", Record::Global(with_labels_and_course(rolled_back))),
    ];
    examples.extend(examples_of_branches());
    examples.push(("saga-compensating", saga_records::example()));
    examples.push(("saga-with-children", saga_records::example_with_children()));
    examples.push(("saga-with-labels", saga_records::example_with_labels()));
    let started = example_of_a_trace().decision.expect("the example has a decision");
    examples.push(("saga-with-trace", saga_records::example_with_trace(started)));
    examples.extend(lease_records::examples());
    examples.extend(examples_of_closures());
    examples
}

fn with_labels_and_course(rolled_back: GlobalRecord) -> GlobalRecord {
    let labels = [Label::new("order", "42"), Label::new("country", "de")];
    let finished = FinishedBranch {
        phase_one_at: Some(Timestamp(1_400)),
        events: [waited(), failed()].into(),
        ..rolled_back.finished_branches[0].clone()
    };
    let what = "decided: roll back (timeout)".into();
    let decided = Event { at: Timestamp(1_450), what, kind: EventKind::Decided };
    let acted = Event { kind: EventKind::Acted, ..note(1_500, "retry by alice") };
    GlobalRecord {
        events: [decided, acted].into(),
        labels: labels.into_iter().collect(),
        finished_branches: [finished].into(),
        ..rolled_back
    }
}

fn note(at: u64, what: &str) -> Event {
    Event { at: Timestamp(at), what: what.into(), kind: EventKind::Note }
}

fn waited() -> Event {
    let kind = EventKind::Waited { ms: 320, behind: Xid(1 << 40 | 9) };
    Event { kind, ..note(1_330, "granted after 320 ms") }
}

fn failed() -> Event {
    Event { kind: EventKind::Failed { attempt: 1 }, ..note(1_600, "no database") }
}

fn examples_of_closures() -> [(&'static str, Record); 2] {
    let closure = |reason| {
        let (place, at) = ("the directory /var/lib/handfast".into(), Timestamp(3_000));
        Record::Closure(ClosureRecord { reason, place, at })
    };
    [
        ("closure-moved", closure(ClosureReason::Moved)),
        ("closure-incomplete", closure(ClosureReason::Incomplete)),
    ]
}

fn example_of_a_trace() -> GlobalTrace {
    let client = SpanPlace { trace_id: [0x4b; 16], span_id: [0xa1; 8] };
    let decision = Some(RequestTrace { client, own: [0xd2; 8] });
    GlobalTrace { transaction: Some(client), decision }
}

fn examples_of_branches() -> [(&'static str, Record); 9] {
    let row =
        |key: &str, mode| RowLock { table: "orders".into(), key: key.as_bytes().into(), mode };
    let branch = BranchRecord {
        xid: Xid(1 << 40 | 1),
        id: BranchId(7),
        sequence: 0,
        resource: "sqlite:orders".into(),
        mode: Mode::At,
        rows: vec![row("1:1", LockMode::Exclusive), row("1:2", LockMode::Shared)],
        token: FencingToken(1 << 40 | 3),
        registered_at: Timestamp(1_010),
        application_data: b"data".as_slice().into(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    };
    let delta = LockMode::Delta(DeltaTag::new(0x8f3d_2a51_0c77_e604));
    let with_delta =
        BranchRecord { rows: vec![row("1:1", delta), row("1:2", delta)], ..branch.clone() };
    let with_trace =
        BranchRecord { trace: example_of_a_trace().decision.map(Box::new), ..branch.clone() };
    let deciding = BranchRecord { state: BranchState::Deciding, ..branch.clone() };
    let of_a_process =
        BranchRecord { registered_by: Some("shop:10.0.0.1:51234".into()), ..branch.clone() };
    let refused = BranchRecord {
        state: BranchState::Refused("dirty write".into(), example_of_dirty_rows_alone().into()),
        attempts: 2,
        last_failure: Some((Timestamp(1_800), "no database".into())),
        ..branch.clone()
    };
    let with_rows = BranchRecord {
        state: BranchState::Refused("dirty write".into(), example_of_all_rows().into()),
        ..refused.clone()
    };
    let with_course = BranchRecord {
        phase_one_at: Some(Timestamp(1_400)),
        events: [waited(), failed()].into(),
        ..refused.clone()
    };
    let resolved =
        BranchRecord { state: BranchState::Resolved(Resolution::RestoreClean), ..refused.clone() };
    [
        ("branch-with-trace", Record::Branch(with_trace)),
        ("branch-registered", Record::Branch(branch)),
        ("branch-deciding", Record::Branch(deciding)),
        ("branch-refused", Record::Branch(refused)),
        ("branch-of-a-process", Record::Branch(of_a_process)),
        ("branch-refused-with-all-rows", Record::Branch(with_rows)),
        ("branch-resolved-restore-clean", Record::Branch(resolved)),
        ("branch-with-course", Record::Branch(with_course)),
        ("branch-with-delta", Record::Branch(with_delta)),
    ]
}

fn example_of_a_dirty_row() -> DirtyRow {
    DirtyRow {
        table: "orders".to_owned(),
        key: "1".to_owned(),
        columns: vec![DirtyColumn {
            name: "units".to_owned(),
            before: Some("5".to_owned()),
            after: Some("4".to_owned()),
            current: None,
        }],
        standing: RowStanding::Dirty,
        on_restore_clean: None,
        on_force_before: None,
    }
}

/// The form from when only dirty rows were listed, without a count.
fn example_of_dirty_rows_alone() -> RefusedRows {
    RefusedRows { listed: vec![example_of_a_dirty_row()], ..RefusedRows::default() }
}

fn example_of_all_rows() -> RefusedRows {
    let clean = DirtyRow {
        standing: RowStanding::Clean,
        on_restore_clean: Some(RowChange::WrittenBack),
        on_force_before: Some(RowChange::Removed),
        ..example_of_a_dirty_row()
    };
    let listed = vec![example_of_a_dirty_row(), clean];
    RefusedRows { listed, total: 60, dirty: 1, held_events: Some(0) }
}

/// The bytes of each version are kept in files, key and value in hexadecimal.
/// `UPDATE_GOLDENFILES=1` writes those that are missing; a file that differs is a broken promise,
/// not a file to update.
#[test]
fn every_version_stays_readable() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/records");
    for (name, record) in examples() {
        let path = directory.join(format!("v{}-{name}.hex", encode(&record)[0]));
        if !path.exists() && std::env::var_os("UPDATE_GOLDENFILES").is_some() {
            let lines = [hex(&encode_key(record.key())), hex(&encode(&record))];
            std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
        let file = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Vec<u8>> = file.lines().map(bytes).collect();
        assert_eq!(decode(&lines[0], &lines[1]), Ok(record), "{name}");
    }
}

#[test]
fn unreadable_records_give_a_reason() {
    let (_, record) = examples().remove(0);
    let key = encode_key(record.key());
    let mut value = encode(&record);
    assert_eq!(decode(b"x", &value), Err(CodecError::Key(b"x".to_vec())));
    assert_eq!(decode(&key, &[]), Err(CodecError::Empty));
    value[0] = 2;
    let error = decode(&key, &value).unwrap_err();
    assert_eq!(error.to_string(), "the record is of version 2, which this program does not know");
    let no_state = [1];
    let error = decode(&key, &no_state).unwrap_err();
    assert_eq!(error.to_string(), "the record is damaged: state of a global is 0");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}
