//! Who waits and is not heard of for long, and comes back.

use std::time::Duration;

use handfast_locks::{Answer, Ask, Backend, Hold, Leave, LockName, Place, Share, Token};

use crate::tc::Tc;
use crate::{LEASE, connect};

fn ask(token: Token, place: Place) -> Ask {
    let (name, label) = (LockName::new("job").unwrap(), "a test".into());
    Ask { name, token, share: Share::All, lease: LEASE, label, place }
}

/// As after a pause of its process: its place is gone, and it may have another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_who_was_given_up_may_come_back() {
    let tc = Tc::start().await;
    let backend = connect(&tc).await.locks();
    let [holder, waiter] = [1, 2].map(|client| Token { client, number: 1 });
    backend.ask(&ask(holder, Place::None)).await.unwrap();
    let joined = backend.ask(&ask(waiter, Place::Join)).await.unwrap();
    assert!(matches!(joined, Answer::Busy { holder: Some(_), .. }), "{joined:?}");
    tc.queue_of("job", 1).await;
    // It says nothing more.
    tc.queue_of("job", 0).await;
    while tc.view(|coordinator| coordinator.counts().lock_queue).await == 0 {
        backend.ask(&ask(waiter, Place::Keep)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let hold = Hold { name: LockName::new("job").unwrap(), token: holder };
    backend.leave(&Leave { hold, is_doubtful: false, is_alone: false }).await.unwrap();
    while !matches!(backend.ask(&ask(waiter, Place::Keep)).await.unwrap(), Answer::Granted { .. }) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
