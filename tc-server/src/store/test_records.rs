//! Records for the tests of this crate.

use handfast_core::{GlobalRecord, GlobalState, Labels, Record, Timestamp, Xid};

/// Returns an active global without branches.
pub(in crate::store) fn global(number: u64, name: &str) -> Record {
    Record::Global(GlobalRecord {
        xid: Xid(number),
        address: "127.0.0.1:7091".into(),
        application: "order-service".into(),
        name: name.into(),
        begun_at: Timestamp(1),
        deadline: Timestamp(2),
        state: GlobalState::Active,
        paused: false,
        rollback_only: false,
        events: [].into(),
        labels: Labels::NONE,
        key: None,
        finished_branches: [].into(),
        trace: None,
    })
}
