//! Conditions and steps of transactions, and their results.

use bytes::Bytes;

use crate::api::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::range_request::{SortOrder, SortTarget};
use crate::api::request_op::Request as Operation;
use crate::api::response_op::Response;
use crate::api::{
    Compare, DeleteRangeRequest, KeyValue, PutRequest, RangeRequest, RequestOp, ResponseOp,
    TxnResponse,
};
use crate::range::KeyRange;

/// The result of a transaction.
#[derive(Debug)]
pub struct TransactionResult {
    /// Whether its conditions held.
    pub succeeded: bool,
    /// The revision of the store afterwards.
    pub revision: i64,
    answers: Vec<ResponseOp>,
}

impl TransactionResult {
    pub(crate) fn of(done: TxnResponse) -> Self {
        let revision = done.header.map(|header| header.revision).unwrap_or_default();
        Self { succeeded: done.succeeded, revision, answers: done.responses }
    }

    /// Returns what the n-th step found, in the order that the step asked for.
    pub fn found(&mut self, step: usize) -> Vec<KeyValue> {
        let answer = self.answers.get_mut(step).and_then(|answer| answer.response.take());
        match answer {
            Some(Response::ResponseRange(range)) => range.kvs,
            Some(Response::ResponseDeleteRange(deleted)) => deleted.prev_kvs,
            Some(Response::ResponsePut(_)) | None => Vec::new(),
        }
    }
}

/// Makes a condition that holds if no key of the range was created after that revision. With 0, it
/// holds if there is none.
#[must_use]
pub fn none_since(range: &KeyRange, revision: i64) -> Compare {
    let made = TargetUnion::CreateRevision(revision + 1);
    let (key, range_end) = (range.from.clone(), range.to.clone());
    compare(key, range_end, CompareResult::Less, CompareTarget::Create, made)
}

/// Makes a condition that holds if the key is as it was left at that revision. With 0, it holds if
/// there is no such key.
#[must_use]
pub fn is_unchanged(key: Vec<u8>, revision: i64) -> Compare {
    let changed = TargetUnion::ModRevision(revision);
    compare(key, Vec::new(), CompareResult::Equal, CompareTarget::Mod, changed)
}

/// Makes a condition that holds if the key was created at that revision, and not deleted since.
#[must_use]
pub fn is_created(key: Vec<u8>, revision: i64) -> Compare {
    let created = TargetUnion::CreateRevision(revision);
    compare(key, Vec::new(), CompareResult::Equal, CompareTarget::Create, created)
}

/// Makes a condition that holds if there is such a key, and it has that value.
#[must_use]
pub fn is_value(key: Vec<u8>, value: impl Into<Vec<u8>>) -> Compare {
    let value = TargetUnion::Value(value.into());
    compare(key, Vec::new(), CompareResult::Equal, CompareTarget::Value, value)
}

fn compare(
    key: Vec<u8>,
    range_end: Vec<u8>,
    result: CompareResult,
    target: CompareTarget,
    union: TargetUnion,
) -> Compare {
    let (result, target, target_union) = (result.into(), target.into(), Some(union));
    Compare { result, target, key, range_end, target_union }
}

/// Makes a step that writes a key. It ends with the lease; with 0, it has none.
#[must_use]
pub fn put(key: Vec<u8>, value: impl Into<Bytes>, lease: i64) -> RequestOp {
    step(Operation::RequestPut(PutRequest { key, value: value.into(), lease }))
}

/// Makes a step that deletes a key, and returns it.
#[must_use]
pub fn delete(key: Vec<u8>) -> RequestOp {
    let range_end = Vec::new();
    step(Operation::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: true }))
}

/// Makes a step that deletes all keys of a range.
#[must_use]
pub fn delete_range(range: KeyRange) -> RequestOp {
    let (key, range_end) = (range.from, range.to);
    step(Operation::RequestDeleteRange(DeleteRangeRequest { key, range_end, prev_kv: false }))
}

/// Makes a step that reads all keys of a range, the oldest first.
#[must_use]
pub fn read_all(range: &KeyRange) -> RequestOp {
    read(range, SortOrder::Ascend, 0, 0)
}

/// Makes a step that reads the oldest key of a range.
#[must_use]
pub fn read_first(range: &KeyRange) -> RequestOp {
    read(range, SortOrder::Ascend, 1, 0)
}

/// Makes a step that reads the youngest key of a range that was created before that revision.
#[must_use]
pub fn read_last_before(range: &KeyRange, revision: i64) -> RequestOp {
    read(range, SortOrder::Descend, 1, revision - 1)
}

fn read(range: &KeyRange, order: SortOrder, limit: i64, max_create_revision: i64) -> RequestOp {
    step(Operation::RequestRange(RangeRequest {
        key: range.from.clone(),
        range_end: range.to.clone(),
        limit,
        revision: 0,
        sort_order: order.into(),
        sort_target: SortTarget::Create.into(),
        max_create_revision,
    }))
}

fn step(request: Operation) -> RequestOp {
    RequestOp { request: Some(request) }
}
