//! Random messages.

use handfast_seata_wire::message::*;
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The values that a message may hold, so that it is read back unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    All,
    /// Those that have names in protobuf.
    OfProtobuf,
    /// Those that a client before 1.5 knows.
    OldestClient,
}

/// Any message with a body.
pub(crate) fn message(values: Values) -> BoxedStrategy<Message> {
    let ids = || vec(any::<i32>(), 5);
    let parts = move || vec(part(values), 0..5);
    prop_oneof![
        27 => part(values),
        1 => (parts(), ids(), any::<bool>()).prop_map(|(parts, ids, has_ids)| {
            let count = if has_ids { parts.len() } else { 0 };
            Message::MergedWarp(MergedWarp { ids: ids[..count].to_vec(), parts })
        }),
        1 => parts().prop_map(|parts| Message::MergeResult(MergeResult { parts })),
        1 => (parts(), ids()).prop_map(|(parts, ids)| {
            Message::BatchResult(BatchResult { ids: ids[..parts.len()].to_vec(), parts })
        }),
    ]
    .boxed()
}

/// Any message that can be a part of another.
pub(crate) fn part(values: Values) -> BoxedStrategy<Message> {
    prop_oneof![global(values), branch(values), phase_two(values), registration(),].boxed()
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![any::<String>(), "[a-z:,;]{0,40}"]
}

fn some_text() -> impl Strategy<Value = String> {
    "[a-zä]{1,40}"
}

fn result(values: Values) -> impl Strategy<Value = TxResult> {
    let codes = ExceptionCode::ALL.into_iter().filter(move |&code| match values {
        Values::All => true,
        Values::OfProtobuf => {
            code <= ExceptionCode::FailedStore
                && code != ExceptionCode::BeginFailed
                && code != ExceptionCode::FailedLockGlobalTransaction
        }
        Values::OldestClient => code <= ExceptionCode::FailedStore,
    });
    let failure = (text(), select(codes.collect::<Vec<_>>()))
        .prop_map(|(message, code)| RequestFailure { message, code });
    prop_oneof![Just(Ok(())), failure.prop_map(Err)]
}

fn global_status(values: Values) -> impl Strategy<Value = GlobalStatus> {
    let count = if values == Values::All { 21 } else { 16 };
    select(GlobalStatus::ALL[..count].to_vec())
}

fn branch_status(values: Values) -> impl Strategy<Value = BranchStatus> {
    let has_name = move |status: &BranchStatus| {
        values != Values::OfProtobuf
            || !matches!(
                status,
                BranchStatus::PhaseTwoCommitFailedXaerNotaRetryable
                    | BranchStatus::PhaseTwoRollbackFailedXaerNotaRetryable
                    | BranchStatus::StopRetry
            )
    };
    select(BranchStatus::ALL.into_iter().filter(has_name).collect::<Vec<_>>())
}

fn branch_type(values: Values) -> impl Strategy<Value = BranchType> {
    let count = if values == Values::OfProtobuf { 3 } else { 5 };
    select(BranchType::ALL[..count].to_vec())
}

fn global(values: Values) -> BoxedStrategy<Message> {
    let end = || (text(), text()).prop_map(|(xid, extra_data)| GlobalEnd { xid, extra_data });
    let standing = move || {
        (result(values), global_status(values))
            .prop_map(|(result, status)| GlobalStatusAnswer { result, status })
    };
    // Protobuf has no form for a report without a status.
    let status = match values {
        Values::OfProtobuf => global_status(values).prop_map(Some).boxed(),
        Values::All | Values::OldestClient => proptest::option::of(global_status(values)).boxed(),
    };
    prop_oneof![
        (any::<i32>(), text())
            .prop_map(|(timeout_ms, name)| Message::GlobalBegin(GlobalBegin { timeout_ms, name })),
        (result(values), text(), text()).prop_map(|(result, xid, extra_data)| {
            Message::GlobalBeginResult(GlobalBegun { result, xid, extra_data })
        }),
        end().prop_map(Message::GlobalCommit),
        end().prop_map(Message::GlobalRollback),
        end().prop_map(Message::GlobalStatus),
        standing().prop_map(Message::GlobalCommitResult),
        standing().prop_map(Message::GlobalRollbackResult),
        standing().prop_map(Message::GlobalStatusResult),
        standing().prop_map(Message::GlobalReportResult),
        (text(), text(), status).prop_map(|(xid, extra_data, status)| {
            Message::GlobalReport(GlobalReport { xid, extra_data, status })
        }),
    ]
    .boxed()
}

fn register(values: Values) -> impl Strategy<Value = BranchRegister> {
    (text(), branch_type(values), text(), text(), text()).prop_map(
        |(xid, branch_type, resource_id, lock_key, application_data)| BranchRegister {
            xid,
            branch_type,
            resource_id,
            lock_key,
            application_data,
        },
    )
}

fn branch(values: Values) -> BoxedStrategy<Message> {
    let report = (text(), any::<i64>(), branch_status(values), text(), text(), branch_type(values));
    prop_oneof![
        register(values).prop_map(Message::BranchRegister),
        register(values).prop_map(Message::GlobalLockQuery),
        (result(values), any::<i64>()).prop_map(|(result, branch_id)| {
            Message::BranchRegisterResult(BranchRegistered { result, branch_id })
        }),
        report.prop_map(|(xid, branch_id, status, resource_id, application_data, branch_type)| {
            Message::BranchReport(BranchReport {
                xid,
                branch_id,
                status,
                resource_id,
                application_data,
                branch_type,
            })
        }),
        result(values).prop_map(|result| Message::BranchReportResult(BranchReported { result })),
        (result(values), any::<bool>()).prop_map(|(result, lockable)| {
            Message::GlobalLockQueryResult(GlobalLockQueried { result, lockable })
        }),
    ]
    .boxed()
}

fn phase_two(values: Values) -> BoxedStrategy<Message> {
    let end = move || {
        (some_text(), any::<i64>(), branch_type(values), some_text(), text()).prop_map(
            |(xid, branch_id, branch_type, resource_id, application_data)| BranchEnd {
                xid,
                branch_id,
                branch_type,
                resource_id,
                application_data,
            },
        )
    };
    let ended = move || {
        (result(values), text(), any::<i64>(), branch_status(values)).prop_map(
            |(result, xid, branch_id, status)| BranchEnded { result, xid, branch_id, status },
        )
    };
    prop_oneof![
        end().prop_map(Message::BranchCommit),
        end().prop_map(Message::BranchRollback),
        ended().prop_map(Message::BranchCommitResult),
        ended().prop_map(Message::BranchRollbackResult),
        (branch_type(values), text(), any::<i16>()).prop_map(
            |(branch_type, resource_id, save_days)| {
                Message::UndoLogDelete(UndoLogDelete { branch_type, resource_id, save_days })
            }
        ),
    ]
    .boxed()
}

fn registration() -> BoxedStrategy<Message> {
    let client = || {
        (text(), text(), text(), text()).prop_map(
            |(version, application_id, transaction_service_group, extra_data)| Register {
                version,
                application_id,
                transaction_service_group,
                extra_data,
            },
        )
    };
    let resources = move || {
        (client(), text())
            .prop_map(|(client, resource_list)| RegisterResources { client, resource_list })
    };
    let answer = || {
        (prop_oneof![Just(Ok(())), text().prop_map(Err)], text())
            .prop_map(|(outcome, version)| Registered { outcome, version })
    };
    prop_oneof![
        client().prop_map(Message::RegisterTm),
        resources().prop_map(Message::RegisterRm),
        resources().prop_map(Message::UnregisterRm),
        answer().prop_map(Message::RegisterTmResult),
        answer().prop_map(Message::RegisterRmResult),
        answer().prop_map(Message::UnregisterRmResult),
    ]
    .boxed()
}
