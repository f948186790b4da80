//! The stored form of a branch, version 1. Field numbers are never used for anything else again.

use handfast_core::{
    BranchId, BranchRecord, BranchState, DirtyColumn, DirtyRow, FencingToken, LockMode, Resolution,
    RowLock, Timestamp, Xid,
};

use super::{CodecError, mode, mode_number, unknown};

const REGISTERED: u32 = 1;
const PHASE_ONE_DONE: u32 = 2;
const REFUSED: u32 = 3;
const RESOLVED_ACCEPT_CURRENT: u32 = 4;
const RESOLVED_FORCE_BEFORE: u32 = 5;
const FINISHED: u32 = 6;

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
    /// Of a refused branch.
    #[prost(string, tag = "9")]
    refusal: String,
    #[prost(message, repeated, tag = "10")]
    dirty_rows: Vec<StoredDirtyRow>,
    /// Of a finished branch.
    #[prost(uint64, tag = "11")]
    finished_at: u64,
    #[prost(uint32, tag = "12")]
    attempts: u32,
    #[prost(message, optional, tag = "13")]
    last_failure: Option<StoredFailure>,
}

/// Rows of one table and lock mode that follow one another.
#[derive(Clone, PartialEq, prost::Message)]
struct StoredRows {
    #[prost(string, tag = "1")]
    table: String,
    /// 1 shared, 2 exclusive.
    #[prost(uint32, tag = "2")]
    mode: u32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    keys: Vec<Vec<u8>>,
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

impl From<&BranchRecord> for StoredBranch {
    fn from(branch: &BranchRecord) -> Self {
        let mut stored = Self {
            sequence: branch.sequence,
            resource: branch.resource.as_ref().to_owned(),
            mode: mode_number(branch.mode),
            rows: stored_rows(&branch.rows),
            token: branch.token.0,
            registered_at: branch.registered_at.0,
            application_data: branch.application_data.to_vec(),
            attempts: branch.attempts,
            last_failure: branch
                .last_failure
                .as_ref()
                .map(|(at, error)| StoredFailure { at: at.0, error: error.as_ref().to_owned() }),
            ..Self::default()
        };
        stored.put_state(&branch.state);
        stored
    }
}

impl StoredBranch {
    pub(super) fn read(mut self, xid: Xid, id: BranchId) -> Result<BranchRecord, CodecError> {
        Ok(BranchRecord {
            xid,
            id,
            sequence: self.sequence,
            mode: mode(self.mode)?,
            rows: rows(std::mem::take(&mut self.rows))?,
            token: FencingToken(self.token),
            registered_at: Timestamp(self.registered_at),
            state: self.take_state()?,
            attempts: self.attempts,
            resource: self.resource.into(),
            application_data: self.application_data.into(),
            last_failure: self
                .last_failure
                .map(|failure| (Timestamp(failure.at), failure.error.into())),
        })
    }

    fn put_state(&mut self, state: &BranchState) {
        self.state = match state {
            BranchState::Registered => REGISTERED,
            BranchState::PhaseOneDone => PHASE_ONE_DONE,
            BranchState::Refused(error, rows) => {
                self.refusal = error.as_ref().to_owned();
                self.dirty_rows = rows.iter().map(StoredDirtyRow::from).collect();
                REFUSED
            }
            BranchState::Resolved(Resolution::AcceptCurrent) => RESOLVED_ACCEPT_CURRENT,
            BranchState::Resolved(Resolution::ForceBefore) => RESOLVED_FORCE_BEFORE,
            BranchState::Finished(at) => {
                self.finished_at = at.0;
                FINISHED
            }
        };
    }

    fn take_state(&mut self) -> Result<BranchState, CodecError> {
        match self.state {
            REGISTERED => Ok(BranchState::Registered),
            PHASE_ONE_DONE => Ok(BranchState::PhaseOneDone),
            REFUSED => {
                let rows = std::mem::take(&mut self.dirty_rows);
                let rows = rows.into_iter().map(StoredDirtyRow::read).collect();
                Ok(BranchState::Refused(std::mem::take(&mut self.refusal).into(), rows))
            }
            RESOLVED_ACCEPT_CURRENT => Ok(BranchState::Resolved(Resolution::AcceptCurrent)),
            RESOLVED_FORCE_BEFORE => Ok(BranchState::Resolved(Resolution::ForceBefore)),
            FINISHED => Ok(BranchState::Finished(Timestamp(self.finished_at))),
            other => Err(unknown("state of a branch", other)),
        }
    }
}

impl From<&DirtyRow> for StoredDirtyRow {
    fn from(row: &DirtyRow) -> Self {
        let columns = row.columns.iter().map(|column| StoredDirtyColumn {
            name: column.name.clone(),
            before: column.before.clone(),
            after: column.after.clone(),
            current: column.current.clone(),
        });
        Self { table: row.table.clone(), key: row.key.clone(), columns: columns.collect() }
    }
}

impl StoredDirtyRow {
    fn read(self) -> DirtyRow {
        let columns = self.columns.into_iter().map(|column| DirtyColumn {
            name: column.name,
            before: column.before,
            after: column.after,
            current: column.current,
        });
        DirtyRow { table: self.table, key: self.key, columns: columns.collect() }
    }
}

fn stored_rows(rows: &[RowLock]) -> Vec<StoredRows> {
    let runs = rows.chunk_by(|one, next| one.table == next.table && one.mode == next.mode);
    runs.map(|run| StoredRows {
        table: run[0].table.as_ref().to_owned(),
        mode: lock_mode_number(run[0].mode),
        keys: run.iter().map(|row| row.key.to_vec()).collect(),
    })
    .collect()
}

fn rows(stored: Vec<StoredRows>) -> Result<Vec<RowLock>, CodecError> {
    let mut rows = Vec::new();
    for run in stored {
        let mode = lock_mode(run.mode)?;
        let table: std::sync::Arc<str> = run.table.into();
        let keys = run.keys.into_iter();
        rows.extend(keys.map(|key| RowLock { table: table.clone(), key: key.into(), mode }));
    }
    Ok(rows)
}

fn lock_mode_number(mode: LockMode) -> u32 {
    match mode {
        LockMode::Shared => 1,
        LockMode::Exclusive => 2,
    }
}

fn lock_mode(number: u32) -> Result<LockMode, CodecError> {
    match number {
        1 => Ok(LockMode::Shared),
        2 => Ok(LockMode::Exclusive),
        other => Err(unknown("lock mode", other)),
    }
}
