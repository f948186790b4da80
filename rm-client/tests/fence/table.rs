//! Every operation in every state, one after the other.

use futures::FutureExt;

use crate::at::on_every_database;
use crate::model::{Call, OPERATIONS, STANDINGS, effects, expected};
use crate::subject::{Levels, Local, RedisSubject, Subject, fence};

on_every_database!(every_operation_in_every_state, failed_work_leaves_no_trace);

async fn every_operation_in_every_state<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        check_table(&local).boxed_local().await;
    }
}

#[tokio::test]
async fn every_operation_in_every_state_on_redis() {
    check_table(&RedisSubject::connect().await).await;
}

/// Brings a branch to each state, calls each operation, then the same one again.
async fn check_table(subject: &impl Subject) {
    for standing in STANDINGS {
        for operation in OPERATIONS {
            let (xid, fence) = fence();
            let calls = standing.way().iter().chain([&operation, &operation]);
            let mut stands = crate::model::Standing::Absent;
            let mut ended = Vec::new();
            for call in calls.copied().map(Call::of) {
                let got = subject.run(&fence, call).await;
                let (wanted, next) = expected(stands, call);
                assert_eq!(got, wanted, "{operation} of a branch that is {standing:?}");
                ended.push((call, got));
                stands = next;
            }
            let wanted = effects(ended.iter().map(|(call, ended)| (*call, ended)));
            assert_eq!(subject.effects(&xid).await, wanted, "{operation} in {standing:?}");
        }
    }
}

async fn failed_work_leaves_no_trace<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        check_failures(&local).boxed_local().await;
    }
}

#[tokio::test]
async fn failed_work_leaves_no_trace_on_redis() {
    check_failures(&RedisSubject::connect().await).await;
}

/// An operation whose work fails can be repeated as if it had not been called.
async fn check_failures(subject: &impl Subject) {
    for standing in STANDINGS {
        for operation in OPERATIONS {
            let (xid, fence) = fence();
            for step in standing.way() {
                subject.run(&fence, Call::of(*step)).await;
            }
            let before = subject.effects(&xid).await;
            let failing = Call { operation, fails: true };
            let (wanted, stands) = expected(standing, failing);
            assert_eq!(subject.run(&fence, failing).await, wanted, "{operation} in {standing:?}");
            assert_eq!(subject.effects(&xid).await, before);
            let (wanted, _) = expected(stands, Call::of(operation));
            assert_eq!(subject.run(&fence, Call::of(operation)).await, wanted);
        }
    }
}
