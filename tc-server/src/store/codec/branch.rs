//! The stored form of a branch, version 1. Field numbers are never used for anything else again.

use handfast_core::{
    BranchId, BranchRecord, BranchState, DeltaTag, DirtyColumn, DirtyRow, FencingToken, LockMode,
    RefusedRows, Resolution, RowChange, RowLock, RowStanding, Timestamp, Xid,
};

use super::fields::Fields;
use super::global::{StoredEvent, read_phase_one_at, write_events};
use super::recurring::Recurring;
use super::trace::{read_request, write_request};
use super::{CodecError, mode, mode_number, unknown};

const REGISTERED: u32 = 1;
const PHASE_ONE_DONE: u32 = 2;
const REFUSED: u32 = 3;
const RESOLVED_ACCEPT_CURRENT: u32 = 4;
const RESOLVED_FORCE_BEFORE: u32 = 5;
const FINISHED: u32 = 6;
const RESOLVED_RESTORE_CLEAN: u32 = 7;
const DECIDING: u32 = 8;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StoredBranch {
    #[prost(uint32, tag = "1")]
    sequence: u32,
    #[prost(string, tag = "2")]
    resource: String,
    #[prost(uint32, tag = "3")]
    mode: u32,
    #[prost(message, repeated, tag = "4")]
    rows: Vec<StoredRows>,
    #[prost(uint64, tag = "5")]
    token: u64,
    #[prost(uint64, tag = "6")]
    registered_at: u64,
    #[prost(bytes = "vec", tag = "7")]
    application_data: Vec<u8>,
    #[prost(uint32, tag = "8")]
    state: u32,
    /// Set for a refused branch.
    #[prost(string, tag = "9")]
    refusal: String,
    #[prost(message, repeated, tag = "10")]
    dirty_rows: Vec<StoredDirtyRow>,
    /// Set for a finished branch.
    #[prost(uint64, tag = "11")]
    finished_at: u64,
    #[prost(uint32, tag = "12")]
    attempts: u32,
    #[prost(message, optional, tag = "13")]
    last_failure: Option<StoredFailure>,
    /// Set for a refused branch, like the fields below.
    #[prost(uint64, tag = "14")]
    rows_total: u64,
    #[prost(uint64, tag = "15")]
    rows_dirty: u64,
    #[prost(uint64, optional, tag = "16")]
    held_events: Option<u64>,
    /// Absent if unknown, as in records from before the field existed.
    #[prost(string, tag = "17")]
    registered_by: String,
    /// 0 if it was not reported.
    #[prost(uint64, tag = "18")]
    phase_one_at: u64,
    #[prost(message, repeated, tag = "19")]
    events: Vec<StoredEvent>,
    #[prost(bytes = "vec", optional, tag = "20")]
    trace: Option<Vec<u8>>,
}

/// Consecutive rows of the same table and lock mode.
///
/// An earlier version does not know mode 3, and refuses the record.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredRows {
    #[prost(string, tag = "1")]
    table: String,
    /// 1 shared, 2 exclusive, 3 delta.
    #[prost(uint32, tag = "2")]
    mode: u32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    keys: Vec<Vec<u8>>,
    /// The tag of mode 3.
    #[prost(uint64, tag = "4")]
    delta_tag: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredFailure {
    #[prost(uint64, tag = "1")]
    at: u64,
    #[prost(string, tag = "2")]
    error: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredDirtyRow {
    #[prost(string, tag = "1")]
    table: String,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(message, repeated, tag = "3")]
    columns: Vec<StoredDirtyColumn>,
    /// 0 dirty, 1 clean, 2 restored.
    #[prost(uint32, tag = "4")]
    standing: u32,
    /// 0 not known, 1 left, 2 written back, 3 removed, 4 inserted.
    #[prost(uint32, tag = "5")]
    on_restore_clean: u32,
    #[prost(uint32, tag = "6")]
    on_force_before: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredDirtyColumn {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, optional, tag = "2")]
    before: Option<String>,
    #[prost(string, optional, tag = "3")]
    after: Option<String>,
    #[prost(string, optional, tag = "4")]
    current: Option<String>,
}

/// Writes what [`StoredBranch`] reads.
pub(super) fn write(branch: &BranchRecord, fields: &mut Fields<'_>) {
    fields.number(1, branch.sequence);
    fields.text(2, &branch.resource);
    fields.number(3, mode_number(branch.mode));
    write_rows(&branch.rows, fields);
    fields.number(5, branch.token.0);
    fields.number(6, branch.registered_at.0);
    fields.bytes(7, &branch.application_data);
    fields.number(8, state_number(&branch.state));
    match &branch.state {
        BranchState::Refused(error, rows) => {
            fields.text(9, error);
            for row in &rows.listed {
                fields.message(10, |fields| write_dirty_row(row, fields));
            }
        }
        BranchState::Finished(at) => fields.number(11, at.0),
        BranchState::Registered
        | BranchState::Deciding
        | BranchState::PhaseOneDone
        | BranchState::Resolved(_) => {}
    }
    fields.number(12, branch.attempts);
    if let Some((at, error)) = &branch.last_failure {
        fields.message(13, |fields| {
            fields.number(1, at.0);
            fields.text(2, error);
        });
    }
    if let BranchState::Refused(_, rows) = &branch.state {
        fields.number(14, rows.total);
        fields.number(15, rows.dirty);
        fields.optional_number(16, rows.held_events);
    }
    fields.text(17, branch.registered_by.as_deref().unwrap_or_default());
    fields.number(18, branch.phase_one_at.unwrap_or_default().0);
    write_events(19, &branch.events, fields);
    write_request(20, branch.trace.as_deref().copied(), fields);
}

/// Writes runs of rows of the same table and lock mode, as [`StoredRows`].
fn write_rows(rows: &[RowLock], fields: &mut Fields<'_>) {
    for run in rows.chunk_by(|one, next| one.table == next.table && one.mode == next.mode) {
        fields.message(4, |fields| {
            fields.text(1, &run[0].table);
            fields.number(2, lock_mode_number(run[0].mode));
            run.iter().for_each(|row| fields.item(3, &row.key));
            fields.number(4, delta_tag(run[0].mode));
        });
    }
}

fn write_dirty_row(row: &DirtyRow, fields: &mut Fields<'_>) {
    fields.text(1, &row.table);
    fields.text(2, &row.key);
    for column in &row.columns {
        fields.message(3, |fields| {
            fields.text(1, &column.name);
            fields.optional(2, column.before.as_deref());
            fields.optional(3, column.after.as_deref());
            fields.optional(4, column.current.as_deref());
        });
    }
    fields.number(4, standing_number(row.standing));
    fields.number(5, row.on_restore_clean.map_or(0, change_number));
    fields.number(6, row.on_force_before.map_or(0, change_number));
}

fn state_number(state: &BranchState) -> u32 {
    match state {
        BranchState::Registered => REGISTERED,
        BranchState::Deciding => DECIDING,
        BranchState::PhaseOneDone => PHASE_ONE_DONE,
        BranchState::Refused(..) => REFUSED,
        BranchState::Resolved(Resolution::RestoreClean) => RESOLVED_RESTORE_CLEAN,
        BranchState::Resolved(Resolution::AcceptCurrent) => RESOLVED_ACCEPT_CURRENT,
        BranchState::Resolved(Resolution::ForceBefore) => RESOLVED_FORCE_BEFORE,
        BranchState::Finished(_) => FINISHED,
    }
}

impl StoredBranch {
    pub(super) fn read(
        mut self,
        xid: Xid,
        id: BranchId,
        recurring: &mut Recurring,
    ) -> Result<BranchRecord, CodecError> {
        let trace = self.trace.as_deref().map(read_request).transpose()?;
        Ok(BranchRecord {
            xid,
            id,
            sequence: self.sequence,
            mode: mode(self.mode)?,
            rows: rows(std::mem::take(&mut self.rows), recurring)?,
            token: FencingToken(self.token),
            registered_at: Timestamp(self.registered_at),
            state: self.take_state()?,
            attempts: self.attempts,
            resource: recurring.text(&self.resource),
            application_data: self.application_data.into(),
            last_failure: self
                .last_failure
                .map(|failure| (Timestamp(failure.at), failure.error.into())),
            registered_by: (!self.registered_by.is_empty())
                .then(|| recurring.text(&self.registered_by)),
            phase_one_at: read_phase_one_at(self.phase_one_at),
            events: recurring.events(self.events.into_iter().map(StoredEvent::read)),
            trace: trace.map(Box::new),
        })
    }

    fn take_state(&mut self) -> Result<BranchState, CodecError> {
        match self.state {
            REGISTERED => Ok(BranchState::Registered),
            DECIDING => Ok(BranchState::Deciding),
            PHASE_ONE_DONE => Ok(BranchState::PhaseOneDone),
            REFUSED => {
                let rows = std::mem::take(&mut self.dirty_rows).into_iter();
                let rows = RefusedRows {
                    listed: rows.map(StoredDirtyRow::read).collect::<Result<_, _>>()?,
                    total: self.rows_total,
                    dirty: self.rows_dirty,
                    held_events: self.held_events,
                };
                Ok(BranchState::Refused(std::mem::take(&mut self.refusal).into(), rows.into()))
            }
            RESOLVED_RESTORE_CLEAN => Ok(BranchState::Resolved(Resolution::RestoreClean)),
            RESOLVED_ACCEPT_CURRENT => Ok(BranchState::Resolved(Resolution::AcceptCurrent)),
            RESOLVED_FORCE_BEFORE => Ok(BranchState::Resolved(Resolution::ForceBefore)),
            FINISHED => Ok(BranchState::Finished(Timestamp(self.finished_at))),
            other => Err(unknown("state of a branch", other)),
        }
    }
}

impl StoredDirtyRow {
    fn read(self) -> Result<DirtyRow, CodecError> {
        let columns = self.columns.into_iter().map(|column| DirtyColumn {
            name: column.name,
            before: column.before,
            after: column.after,
            current: column.current,
        });
        Ok(DirtyRow {
            table: self.table,
            key: self.key,
            columns: columns.collect(),
            standing: standing(self.standing)?,
            on_restore_clean: change(self.on_restore_clean)?,
            on_force_before: change(self.on_force_before)?,
        })
    }
}

fn standing_number(standing: RowStanding) -> u32 {
    match standing {
        RowStanding::Dirty => 0,
        RowStanding::Clean => 1,
        RowStanding::Restored => 2,
    }
}

fn standing(number: u32) -> Result<RowStanding, CodecError> {
    match number {
        0 => Ok(RowStanding::Dirty),
        1 => Ok(RowStanding::Clean),
        2 => Ok(RowStanding::Restored),
        other => Err(unknown("standing of a row", other)),
    }
}

fn change_number(change: RowChange) -> u32 {
    match change {
        RowChange::Left => 1,
        RowChange::WrittenBack => 2,
        RowChange::Removed => 3,
        RowChange::Inserted => 4,
    }
}

fn change(number: u32) -> Result<Option<RowChange>, CodecError> {
    match number {
        0 => Ok(None),
        1 => Ok(Some(RowChange::Left)),
        2 => Ok(Some(RowChange::WrittenBack)),
        3 => Ok(Some(RowChange::Removed)),
        4 => Ok(Some(RowChange::Inserted)),
        other => Err(unknown("change of a row", other)),
    }
}

fn rows(stored: Vec<StoredRows>, recurring: &mut Recurring) -> Result<Vec<RowLock>, CodecError> {
    let mut rows = Vec::new();
    for run in stored {
        let mode = lock_mode(run.mode, run.delta_tag)?;
        let table = recurring.text(&run.table);
        let keys = run.keys.into_iter();
        rows.extend(keys.map(|key| RowLock { table: table.clone(), key: key.into(), mode }));
    }
    Ok(rows)
}

fn lock_mode_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Shared => 1,
        LockMode::Exclusive => 2,
        LockMode::Delta(_) => 3,
    }
}

fn delta_tag(mode: LockMode) -> u64 {
    match mode {
        LockMode::Delta(tag) => tag.number(),
        LockMode::Shared | LockMode::Exclusive => 0,
    }
}

fn lock_mode(number: u32, delta_tag: u64) -> Result<LockMode, CodecError> {
    match number {
        1 => Ok(LockMode::Shared),
        2 => Ok(LockMode::Exclusive),
        3 => Ok(LockMode::Delta(DeltaTag::new(delta_tag))),
        other => Err(unknown("lock mode", other)),
    }
}
