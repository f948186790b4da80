//! Many concurrent operations of the same few branches, with tries that fail. No conflict of the
//! database reaches the caller, and each branch ends in an allowed state.

use futures::{FutureExt, StreamExt, stream};
use handfast::Xid;
use handfast::fence::{Fence, Operation};

use crate::at::on_every_database;
use crate::model::{Call, Ended};
use crate::subject::{Levels, Local, RedisSubject, Subject, fence};

const BRANCHES: usize = 6;
const CALLS_AT_A_TIME: usize = 24;
const ROUNDS: usize = 8;

/// The calls that each branch gets repeatedly.
const CALLS: [Call; 5] = [
    Call { operation: Operation::Try, fails: true },
    Call { operation: Operation::Try, fails: true },
    Call { operation: Operation::Cancel, fails: false },
    Call { operation: Operation::Try, fails: false },
    Call { operation: Operation::Cancel, fails: true },
];

on_every_database!(concurrent_operations_end_in_an_allowed_state);

async fn concurrent_operations_end_in_an_allowed_state<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        for _ in 0..ROUNDS {
            check_crowd(&local, local.level).boxed_local().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_operations_end_in_an_allowed_state_on_redis() {
    let remote = RedisSubject::connect().await;
    for _ in 0..ROUNDS {
        check_crowd(&remote, "").await;
    }
}

async fn check_crowd(subject: &impl Subject, level: &str) {
    let branches: Vec<(Xid, Fence)> = (0..BRANCHES).map(|_| fence()).collect();
    let calls = CALLS.iter().flat_map(|call| branches.iter().map(move |(_, fence)| (fence, *call)));
    let running = calls.map(|(fence, call)| async move {
        let ended = subject.run(fence, call).await;
        let refused = Ended::Refused("HF-FENCE-BARRED".to_owned());
        let fine = [Ended::Ran, Ended::AlreadyDone, Ended::Empty, Ended::Failed, refused];
        assert!(fine.contains(&ended), "{call:?} at {level:?}: {ended}");
    });
    stream::iter(running).buffer_unordered(CALLS_AT_A_TIME).for_each(async |()| {}).await;
    for (xid, fence) in &branches {
        // In any order, a cancel has succeeded in the end.
        let cancel = Call::of(Operation::Cancel);
        let last = subject.run(fence, cancel).await;
        match subject.effects(xid).await.as_slice() {
            [] => assert_eq!(last, Ended::Empty, "{xid} at {level:?}"),
            [cancelled, tried] if cancelled == "cancel" && tried == "try" => {
                assert!(
                    [Ended::AlreadyDone, Ended::Ran].contains(&last),
                    "{xid} at {level:?}: {last}"
                );
            }
            other => panic!("{xid} at {level:?}: {other:?}"),
        }
    }
}
