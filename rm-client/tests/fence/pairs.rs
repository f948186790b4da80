//! Two concurrent operations of one branch, in every state: the results equal those of the two
//! operations in sequence, in one order or the other. Many branches, which are neighbours in the
//! table, do this concurrently.

use futures::{FutureExt, StreamExt, stream};

use crate::at::on_every_database;
use crate::model::{Call, Ended, OPERATIONS, STANDINGS, Standing, effects, expected};
use crate::subject::{Levels, Local, RedisSubject, Subject, fence};

/// How many pairs run concurrently.
const PAIRS_AT_A_TIME: usize = 8;

on_every_database!(every_concurrent_pair_is_serializable);

async fn every_concurrent_pair_is_serializable<DB: Levels>() {
    for local in Local::<DB>::at_every_level().await {
        check_pairs(&local, local.level).boxed_local().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_concurrent_pair_is_serializable_on_redis() {
    check_pairs(&RedisSubject::connect().await, "").await;
}

async fn check_pairs(subject: &impl Subject, level: &str) {
    let mut pairs = Vec::new();
    for standing in STANDINGS {
        for first in OPERATIONS {
            for second in OPERATIONS {
                for fails in [false, true] {
                    pairs.push((standing, Call { operation: first, fails }, Call::of(second)));
                }
            }
        }
    }
    let checks = pairs
        .into_iter()
        .map(|(standing, first, second)| check_pair(subject, level, standing, first, second));
    stream::iter(checks).buffer_unordered(PAIRS_AT_A_TIME).for_each(async |()| {}).await;
}

async fn check_pair(
    subject: &impl Subject,
    level: &str,
    standing: Standing,
    first: Call,
    second: Call,
) {
    let (xid, fence) = fence();
    for step in standing.way() {
        let call = Call::of(*step);
        assert_eq!(subject.run(&fence, call).await, way_ended(standing, call), "{standing:?}");
    }
    let (one, other) = tokio::join!(subject.run(&fence, first), subject.run(&fence, second));
    let orders = [in_order(standing, first, second), {
        let (other, one) = in_order(standing, second, first);
        (one, other)
    }];
    assert!(
        orders.contains(&(one.clone(), other.clone())),
        "{first:?} beside {second:?} in {standing:?} at {level:?}: {one}, {other}"
    );
    let way = standing.way().iter().map(|step| Call::of(*step));
    let ran = way.map(|call| (call, way_ended(standing, call)));
    let ended: Vec<(Call, Ended)> = ran.chain([(first, one), (second, other)]).collect();
    let wanted = effects(ended.iter().map(|(call, ended)| (*call, ended)));
    let found = subject.effects(&xid).await;
    assert_eq!(found, wanted, "{first:?} beside {second:?} in {standing:?} at {level:?}");
}

/// Returns the results of two calls in sequence.
fn in_order(standing: Standing, first: Call, second: Call) -> (Ended, Ended) {
    let (one, next) = expected(standing, first);
    (one, expected(next, second).0)
}

/// Returns the result of a call on the way to a state.
fn way_ended(standing: Standing, call: Call) -> Ended {
    let mut stands = Standing::Absent;
    for step in standing.way() {
        let (ended, next) = expected(stands, Call::of(*step));
        if *step == call.operation {
            return ended;
        }
        stands = next;
    }
    Ended::Failed
}
