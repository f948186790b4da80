//! The queue that is a table of its own.

use handfast_locks::{Leave, Left, Place};

use crate::owner::take;
use crate::stage::{Stage, ask, fresh, hold};

/// The request that took the lock may have been cut off before it left the queue. Whoever came
/// later waited for somebody who was not there any more.
pub(crate) async fn whoever_frees_a_lock_stands_in_no_queue(stage: &Stage) {
    let name = fresh();
    let [first, waiter, next] = [hold(&name), hold(&name), hold(&name)];
    assert!(take(stage, &first).await);
    stage.backend.ask(&ask(&waiter, Place::Join)).await.unwrap();
    assert_eq!(leave(stage, first).await, Left::Freed);
    // It takes the lock and stays in the queue.
    assert!(take(stage, &waiter).await);
    assert_eq!(leave(stage, waiter).await, Left::Freed);
    assert!(take(stage, &next).await);
}

async fn leave(stage: &Stage, hold: handfast_locks::Hold) -> Left {
    stage.backend.leave(&Leave { hold, is_doubtful: false, is_alone: false }).await.unwrap()
}
